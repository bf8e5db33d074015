"""Identity rules: the second row has the pattern of the first, and its last object is sought."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, Unpack

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.registry import tasks
from undamped.lab.tasks.relations.trials import (
    ColouredRelationTask,
    RelationTask,
    TrialOptions,
    in_turn,
    slots_of,
    without_replacement,
)
from undamped.lab.tasks.relations.trivial import Rule, choices

PATTERNS = ("aaa", "aba", "abb")
TWO_OBJECTS = ("aaaa", "abaa", "aaba", "baaa", "abba", "abab", "aabb")
"""Patterns of four with at most two objects."""
THREE_OBJECTS = ("abca", "baca", "bcaa")
MISSING = {"abaa", "abab", "abca"}
"""Patterns that training does not see where some are missing."""


def completed(
    patterns: Sequence[str], choices: int, size: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return slots and answers of trials: a pattern, the same in new objects, and choices.

    Args:
        patterns: The patterns, as words of one length.
        choices: Objects to choose from, which are all that the trial has.
        size: How many trials.
        generator: The random number generator.
    """
    first = slots_of(patterns)
    second = first + torch.tensor([[len(set(word))] for word in patterns])
    kind = in_turn(size, len(patterns), generator)
    offered = without_replacement(size, choices, choices, generator)
    slots = torch.cat([first[kind], second[kind, :-1], offered], 1)
    return slots, (offered == second[kind, -1:]).long().argmax(1)


@tasks.register("identity-rules")
class IdentityRules(ColouredRelationTask):
    """Say which object ends the second row, which has the pattern of the first: AAA, ABA or ABB.

    Example:
        >>> build("identity-rules", holdout=95)

    Reference:
        G. F. Marcus and others. Rule learning by seven-month-old infants. Science 283, 1999; as a
        task of pictures: T. W. Webb and others. ICLR, 2021.
    """

    fewest_seen = 5
    objects_in_trial = (4, 4)
    output_size = 4
    segments = (9,)
    rows = (3, 2, 4)
    answer_names = tuple(f"place {i + 1} below" for i in range(4))

    def trials(self, size: int, new: bool, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return equally many trials of every pattern."""
        return completed(PATTERNS, 4, size, generator)

    def trivial_rules(self) -> dict[str, Rule]:
        """Return rules that do not use the first row."""
        return {**super().trivial_rules(), **choices((3, 2, 4))}


@tasks.register("identity-rules-4")
class IdentityRules4(RelationTask):
    """Say which object ends the second row of four; the patterns of the test are new.

    Training has patterns of at most two objects, the test those of three: ABCA, BACA and BCAA.

    Args:
        variant: "plain"; "missing": training sees neither ABAA nor ABAB; "flipped": training and
            test change places; "flipped-missing": and training does not see ABCA.

    Example:
        >>> build("identity-rules-4", variant="missing")

    Reference:
        G. Kerg and others. On neural architecture inductive biases for relational tasks. 2022.
    """

    recipes: ClassVar = {"*": {"train": {**RelationTask.recipes["*"]["train"], "batch_size": 224}}}
    fewest_seen = 6
    objects_in_trial = (6, 6)
    new_relations = True
    output_size = 6
    segments = (13,)
    rows = (4, 3, 6)
    answer_names = tuple(f"place {i + 1} below" for i in range(6))

    @checked
    def __init__(
        self,
        *,
        variant: Literal["plain", "missing", "flipped", "flipped-missing"] = "plain",
        **options: Unpack[TrialOptions],
    ) -> None:
        self.variant = variant
        self._set_up(**options)

    def trials(self, size: int, new: bool, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return equally many trials of every pattern."""
        flipped = self.variant.startswith("flipped")
        patterns = THREE_OBJECTS if new != flipped else TWO_OBJECTS
        if not new and self.variant.endswith("missing"):
            patterns = tuple(word for word in patterns if word not in MISSING)
        return completed(patterns, 6, size, generator)

    def trivial_rules(self) -> dict[str, Rule]:
        """Return rules that do not use the first row."""
        return {**super().trivial_rules(), **choices((4, 3, 6))}
