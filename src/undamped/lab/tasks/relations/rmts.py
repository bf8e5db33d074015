"""Relational match to sample: which of two targets has the structure of the source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from undamped._base.options import NonNegativeInt
from undamped._base.registry import tasks
from undamped.lab.tasks.relations.trials import OURS, Colours, RelationTask, in_turn, slots_of
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
        generator: Where the random numbers come from.
    """
    first = [source + match + other for source, match, other in rules]
    second = [source + other + match for source, match, other in rules]
    kind = in_turn(size, 2 * len(rules), generator)
    return slots_of([*first, *second])[kind], (kind >= len(rules)).long()


@tasks.register("rmts")
class RMTS(RelationTask):
    """Say which of two pairs matches a first one: both have equal objects, or both different.

    Args:
        holdout: How many of the objects (m) are kept for the test; if none is given, all but five.
        glyphs: "dejavu", or a folder of pictures, or an .npz file with an array `pictures`.
        colours: Whether the ground of every picture has a random colour that means nothing, and
            whether it is in the same picture or in one of its own behind it.
        seed: Where the random numbers of the data come from, and which objects are kept.

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

    def __init__(
        self,
        *,
        holdout: NonNegativeInt | None = None,
        glyphs: str = OURS,
        colours: Colours = "none",
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(holdout, glyphs, colours, seed)

    def trials(self, size: int, new: bool, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """As many sources of equal objects as of different ones."""
        return matches(PAIRS, size, generator)

    def trivial_rules(self) -> dict[str, Rule]:
        """Return rules that do without the relation."""
        return {**super().trivial_rules(), **pairs(6)}


@tasks.register("rmts-3")
class RMTS3(RelationTask):
    """Say which of two triplets has the structure of a first one; those of the test are new.

    Training has AAA, ABA and ABB; the test has AAB against ABC.

    Args:
        holdout: How many of the objects (m) are kept for the test; if none is given, all but six.
        glyphs: "dejavu", or a folder of pictures, or an .npz file with an array `pictures`.
        seed: Where the random numbers of the data come from, and which objects are kept.

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

    def __init__(
        self,
        *,
        holdout: NonNegativeInt | None = None,
        glyphs: str = OURS,
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(holdout, glyphs, "none", seed)

    def trials(self, size: int, new: bool, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """As many trials of every rule, and of every order of the targets."""
        return matches(NEW_TRIPLETS if new else TRIPLETS, size, generator)

    def trivial_rules(self) -> dict[str, Rule]:
        """Return rules that do without the relation."""
        return {**super().trivial_rules(), **pairs(9)}
