"""Relational match to sample: which of two targets has the structure of the source."""

from __future__ import annotations

from collections.abc import Sequence
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
from undamped.lab.tasks.relations.trivial import Rule, pairs

PAIRS = (("aa", "bb", "cd"), ("ab", "cd", "ee"))
"""A source, the target that matches and the one that does not."""
TRIPLETS = (
    ("aaa", "bbb", "cdc"),
    ("aaa", "bbb", "cdd"),
    ("aba", "cdc", "eee"),
    ("abb", "cdd", "eee"),
    ("aba", "cdc", "eff"),
    ("abb", "cdd", "efe"),
)
NEW_TRIPLETS = (("aab", "ccd", "efg"), ("abc", "fgh", "dde"))


def matches(
    rules: Sequence[tuple[str, str, str]], size: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return slots and answers of trials, each rule with its targets in both orders.

    Args:
        rules: Sources, targets that match, and targets that do not.
        size: How many trials.
        generator: The random number generator.
    """
    first = [source + match + other for source, match, other in rules]
    second = [source + other + match for source, match, other in rules]
    kind = in_turn(size, 2 * len(rules), generator)
    return slots_of([*first, *second])[kind], (kind >= len(rules)).long()


@tasks.register("rmts")
class RMTS(ColouredRelationTask):
    """Say which of two pairs matches a first one: both have equal objects, or both different.

    Example:
        >>> build("rmts", holdout=95, colours="joint")

    Reference:
        T. W. Webb, I. Sinha, J. D. Cohen. Emergent symbols through binding in external memory.
        ICLR, 2021.
    """

    fewest_seen = 5
    objects_in_trial = (5, 5)
    output_size = 2
    segments = (2, 2, 2)
    rows = (2, 2, 2)
    answer_names = ("the second row", "the third row")

    def trials(self, size: int, new: bool, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return equally many sources of equal and of different objects."""
        return matches(PAIRS, size, generator)

    def trivial_rules(self) -> dict[str, Rule]:
        """Return rules that do not use the relation."""
        return {**super().trivial_rules(), **pairs(6)}


@tasks.register("rmts-3")
class RMTS3(RelationTask):
    """Say which of two triplets has the structure of a first one; those of the test are new.

    Training has AAA, ABA and ABB; the test has AAB against ABC.

    Example:
        >>> build("rmts-3", holdout=94)

    Reference:
        G. Kerg and others. On neural architecture inductive biases for relational tasks. 2022.
    """

    recipes: ClassVar = {"*": {"train": {**RelationTask.recipes["*"]["train"], "batch_size": 192}}}
    fewest_seen = 6
    objects_in_trial = (6, 8)
    new_relations = True
    output_size = 2
    segments = (3, 3, 3)
    rows = (3, 3, 3)
    answer_names = ("the second row", "the third row")

    def trials(self, size: int, new: bool, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return equally many trials of every rule and every order of the targets."""
        return matches(NEW_TRIPLETS if new else TRIPLETS, size, generator)

    def trivial_rules(self) -> dict[str, Rule]:
        """Return rules that do not use the relation."""
        return {**super().trivial_rules(), **pairs(9)}
