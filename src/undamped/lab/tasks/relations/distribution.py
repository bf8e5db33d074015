"""Distribution of N: the second row is the first in another order; its last object is sought."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.errors import OptionError
from undamped._base.options import Range
from undamped._base.registry import tasks
from undamped.lab.tasks.relations.trials import (
    ColouredRelationTask,
    ColouredTrialOptions,
    without_replacement,
)
from undamped.lab.tasks.relations.trivial import Rule, choices

LAST = 3
"""Objects at the end of a row that restricted permutations permute among themselves."""


@tasks.register("distribution-of-n")
class DistributionOfN(ColouredRelationTask):
    """Say which object is missing in the second row, which has those of the first in another order.

    The first row has n objects, the second n − 1, the third all of them and one more to choose
    from.

    Args:
        n: Objects of a row.
        permutations: All of them; or restricted, then training has those that keep the first
            n − 3 objects of a row among themselves and the test has the others, as printed; or
            the other way round, as in the authors' program.

    Example:
        >>> build("distribution-of-n", n=10, permutations="restricted")

    Reference:
        P. A. Carpenter, M. A. Just, P. Shell. What one intelligence test measures. Psychological
        Review 97, 1990; as a task of pictures: T. W. Webb and others. ICLR, 2021; restricted:
        G. Kerg and others. 2022.
    """

    fewest_seen = 5

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
        self.output_size = n + 1
        self.segments = (3 * n,)
        self.rows = (n, n - 1, n + 1)
        self.answer_names = tuple(f"place {i + 1} below" for i in range(n + 1))
        self._set_up(**options)

    def trials(self, size: int, new: bool, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return trials with a random permutation of the second row and of the choices."""
        n = self.n
        order = self._orders(size, new, generator)
        offered = without_replacement(size, n + 1, n + 1, generator)
        missing = order[:, -1:]
        first = torch.arange(n).expand(size, n)
        slots = torch.cat([first, order[:, :-1], offered], 1)
        return slots, (offered == missing).long().argmax(1)

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

    def trivial_rules(self) -> dict[str, Rule]:
        """Return rules that do not use the first row."""
        return {**super().trivial_rules(), **choices((self.n, self.n - 1, self.n + 1))}
