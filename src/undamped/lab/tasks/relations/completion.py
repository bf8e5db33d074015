"""Completion of a second row: identity rules, and distribution of N."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Unpack

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.errors import OptionError
from undamped._base.options import Range
from undamped._base.registry import tasks
from undamped.lab.tasks.relations.trials import (
    ColouredRelationTask,
    ColouredTrialOptions,
    RelationTask,
    TrialOptions,
    balanced,
    slots_of,
    without_replacement,
)
from undamped.lab.tasks.relations.trivial import choices

PATTERNS = ("aaa", "aba", "abb")
TWO_OBJECTS = ("aaaa", "abaa", "aaba", "baaa", "abba", "abab", "aabb")
"""Patterns of four with at most two objects."""
THREE_OBJECTS = ("abca", "baca", "bcaa")
MISSING = {"abaa", "abab", "abca"}
"""Patterns that training does not have where some are missing."""
LAST = 3
"""Objects at the end of a row that restricted permutations permute among themselves."""


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
    kind = balanced(size, len(patterns), generator)
    offered = without_replacement(size, choices, choices, generator)
    slots = torch.cat([first[kind], second[kind, :-1], offered], 1)
    return slots, (offered == second[kind, -1:]).long().argmax(1)


def _choice_names(count: int) -> tuple[str, ...]:
    return tuple(f"choice {k + 1}" for k in range(count))


@tasks.register("identity-rules")
class IdentityRules(ColouredRelationTask):
    """Choose the object that ends the second row by the pattern of the first: AAA, ABA or ABB.

    Example:
        >>> build("identity-rules", holdout=95)

    Reference:
        G. F. Marcus and others. Rule learning by seven-month-old infants. Science 283, 1999; with
        images: T. W. Webb and others. ICLR, 2021.
    """

    fewest_seen = 5
    objects_in_trial = (4, 4)
    rows = (3, 2, 4)
    answer_names = _choice_names(4)
    position_rules = staticmethod(choices)

    def draw_slots(self, size: int, new: bool, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return equally many trials of every pattern."""
        return completed(PATTERNS, 4, size, generator)


@tasks.register("identity-rules-4")
class IdentityRules4(RelationTask):
    """Choose the object that ends the second row of four; the patterns of the test are new.

    Training has patterns of at most two objects, the test those of three: ABCA, BACA and BCAA.

    Args:
        variant: "plain"; "missing": training has neither ABAA nor ABAB; "flipped": training and
            test are exchanged; "flipped-missing": and training does not have ABCA.

    Example:
        >>> build("identity-rules-4", variant="missing")

    Reference:
        G. Kerg and others. On neural architecture inductive biases for relational tasks. 2022.
    """

    recipes: ClassVar = {"*": {"train": {**RelationTask.recipes["*"]["train"], "batch_size": 224}}}
    fewest_seen = 6
    objects_in_trial = (6, 6)
    new_relations = True
    rows = (4, 3, 6)
    answer_names = _choice_names(6)
    position_rules = staticmethod(choices)

    @checked
    def __init__(
        self,
        *,
        variant: Literal["plain", "missing", "flipped", "flipped-missing"] = "plain",
        **options: Unpack[TrialOptions],
    ) -> None:
        self.variant = variant
        self._set_up(options)

    def draw_slots(self, size: int, new: bool, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return equally many trials of every pattern."""
        flipped = self.variant.startswith("flipped")
        patterns = THREE_OBJECTS if new != flipped else TWO_OBJECTS
        if not new and self.variant.endswith("missing"):
            patterns = tuple(word for word in patterns if word not in MISSING)
        return completed(patterns, 6, size, generator)


@tasks.register("distribution-of-n")
class DistributionOfN(ColouredRelationTask):
    """Choose the object that is missing in the second row, a permutation of the first.

    The first row has n objects, the second n − 1, the third all of them and one more to choose
    from.

    Args:
        n: Objects of a row.
        permutations: All of them; or restricted, then training has those that permute the first
            n − 3 objects of a row among themselves and the test has the others, as printed; or
            the other way round, as in the authors' program.

    Example:
        >>> build("distribution-of-n", n=10, permutations="restricted")

    Reference:
        P. A. Carpenter, M. A. Just, P. Shell. What one intelligence test measures. Psychological
        Review 97, 1990; with images: T. W. Webb and others. ICLR, 2021; restricted: G. Kerg and
        others. 2022.
    """

    position_rules = staticmethod(choices)

    @checked
    def __init__(
        self,
        n: Annotated[int, Range(low=2, high=100)] = 3,
        *,
        permutations: Literal["all", "restricted", "restricted-as-coded"] = "all",
        **options: Unpack[ColouredTrialOptions],
    ) -> None:
        if permutations != "all" and n <= LAST:
            raise OptionError(f"n must be > {LAST} with restricted permutations, got {n}.")
        self.n, self.permutations = n, permutations
        self.new_relations = permutations != "all"
        self.fewest_seen = max(5, n + 1)
        self.objects_in_trial = (n + 1, n + 1)
        self.rows = (n, n - 1, n + 1)
        self.answer_names = _choice_names(n + 1)
        self._set_up(options)

    def draw_slots(self, size: int, new: bool, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return trials with a random permutation of the second row and of the choices."""
        n = self.n
        order = self._orders(size, new, generator)
        offered = without_replacement(size, n + 1, n + 1, generator)
        first = torch.arange(n).expand(size, n)
        slots = torch.cat([first, order[:, :-1], offered], 1)
        return slots, (offered == order[:, -1:]).long().argmax(1)

    def _orders(self, size: int, new: bool, generator: torch.Generator) -> Tensor:
        """Return permutations (size, n) of training or of the test."""
        n = self.n
        if self.permutations == "all":
            return without_replacement(size, n, n, generator)
        fixed = n - LAST
        if new == (self.permutations == "restricted-as-coded"):
            first = without_replacement(size, fixed, fixed, generator)
            return torch.cat([first, without_replacement(size, LAST, LAST, generator) + fixed], 1)
        orders = without_replacement(size, n, n, generator)
        while (rejected := (orders[:, :fixed] < fixed).all(1)).any():
            orders[rejected] = without_replacement(int(rejected.sum()), n, n, generator)
        return orders
