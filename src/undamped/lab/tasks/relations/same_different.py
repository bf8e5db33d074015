"""Same or different: two objects, or two triplets of them."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from undamped._base.registry import tasks
from undamped.lab.tasks.relations.trials import (
    ColouredRelationTask,
    RelationTask,
    in_turn,
    slots_of,
)
from undamped.lab.tasks.relations.trivial import Rule, ink, pairs


@tasks.register("same-different")
class SameDifferent(ColouredRelationTask):
    """Say whether two objects are the same.

    Example:
        >>> build("same-different", holdout=98)

    Reference:
        T. W. Webb, I. Sinha, J. D. Cohen. Emergent symbols through binding in external memory.
        ICLR, 2021.
    """

    fewest_seen = 2
    objects_in_trial = (2, 2)
    output_size = 2
    segments = (2,)
    rows = (2,)
    answer_names = ("same", "different")

    def trials(self, size: int, new: bool, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return equally many pairs of both kinds."""
        different = in_turn(size, 2, generator)
        return torch.stack([torch.zeros_like(different), different], 1), different

    def trivial_rules(self) -> dict[str, Rule]:
        """Return rules that do not use the relation; counting images would be the relation."""
        return ink(self.images)


SAME = ("aaaaaa", "abbabb", "abaaba")
DIFFERENT = ("aaabaa", "baaaaa", "baaaba", "ababaa", "abaaaa", "aaaaba")
NEW_SAME = ("aabaab",)
NEW_DIFFERENT = ("aaaaab", "aabaaa", "aabbaa", "baaaab", "aababa", "abaaab")


@tasks.register("same-different-6")
class SameDifferent6(RelationTask):
    """Say whether two triplets of objects are the same; one kind of triplet is in the test only.

    A triplet has at most two objects. Training has AAA, ABA and BAA; every trial of the test has
    an AAB.

    Example:
        >>> build("same-different-6", holdout=98)

    Reference:
        G. Kerg and others. On neural architecture inductive biases for relational tasks. 2022.
    """

    recipes: ClassVar = {"*": {"train": {**RelationTask.recipes["*"]["train"], "batch_size": 384}}}
    fewest_seen = 2
    objects_in_trial = (2, 2)
    new_relations = True
    output_size = 2
    segments = (6,)
    rows = (3, 3)
    answer_names = ("same", "different")

    def trials(self, size: int, new: bool, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return equally many trials of both answers, and of every rule of an answer."""
        same, different = (NEW_SAME, NEW_DIFFERENT) if new else (SAME, DIFFERENT)
        repeated = same * (len(different) // len(same))
        rules = slots_of([*repeated, *different])
        kind = in_turn(size, len(rules), generator)
        return rules[kind], (kind >= len(repeated)).long()

    def trivial_rules(self) -> dict[str, Rule]:
        """Return rules that do not use the relation but a pair of positions."""
        return {**super().trivial_rules(), **pairs(6)}
