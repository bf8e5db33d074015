"""Distribution of N: the second row is the first in another order; its last object is sought."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from torch import Tensor

from undamped._base.errors import OptionError, explain
from undamped._base.options import NonNegativeInt, Range
from undamped._base.registry import tasks
from undamped.lab.tasks.relations.trials import (
    OURS,
    Colours,
    RelationTask,
    without_replacement,
)
from undamped.lab.tasks.relations.trivial import Rule, choices

LAST = 3
"""Objects at the end of a row that restricted permutations move among themselves alone."""


@tasks.register("distribution-of-n")
class DistributionOfN(RelationTask):
    """Say which object is missing in the second row, which has those of the first in another order.

    The first row has n objects, the second n − 1, the third all of them and one more to choose
    from.

    Args:
        n: Objects of a row.
        permutations: All of them; or restricted, then training has those that keep the first
            n − 3 objects of a row among themselves and the test has the others, as printed; or
            the other way round, as in the authors' program.
        holdout: How many of the objects (m) are kept for the test; if none is given, all but five
            for n = 3, and all but n + 1 for more.
        glyphs: "dejavu", or a folder of pictures, or an .npz file with an array `pictures`.
        colours: Whether the ground of every picture has a random colour that means nothing, and
            whether it is in the same picture or in one of its own behind it.
        seed: Where the random numbers of the data come from, and which objects are kept.

    Example:
        >>> build("distribution-of-n", n=10, permutations="restricted")

    Reference:
        P. A. Carpenter, M. A. Just, P. Shell. What one intelligence test measures. Psychological
        Review 97, 1990; as a task of pictures: T. W. Webb and others. ICLR, 2021; restricted:
        G. Kerg and others. 2022.
    """

    fewest_seen = 5

    def __init__(
        self,
        n: Annotated[int, Range(low=2, high=100)] = 3,
        *,
        permutations: Literal["all", "restricted", "restricted-as-coded"] = "all",
        holdout: NonNegativeInt | None = None,
        glyphs: str = OURS,
        colours: Colours = "none",
        seed: NonNegativeInt = 0,
    ) -> None:
        if permutations != "all" and n <= LAST:
            raise OptionError(
                explain(
                    "n",
                    expected=f"more than {LAST} with restricted permutations, or none is left",
                    got=n,
                    remedy="For example n=10.",
                )
            )
        self.n, self.permutations = n, permutations
        self.new_relations = permutations != "all"
        self.fewest_seen = max(5, n + 1)
        self.objects_in_trial = (n + 1, n + 1)
        self.output_size = n + 1
        self.segments = (3 * n,)
        self.rows = (n, n - 1, n + 1)
        self.answer_names = tuple(f"place {i + 1} below" for i in range(n + 1))
        super().__init__(holdout, glyphs, colours, seed)

    def trials(self, size: int, new: bool, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """A permutation for the second row, and one for what there is to choose from."""
        n = self.n
        order = self._orders(size, new, generator)
        offered = without_replacement(size, n + 1, n + 1, generator)
        missing = order[:, -1:]
        first = torch.arange(n).expand(size, n)
        slots = torch.cat([first, order[:, :-1], offered], 1)
        return slots, (offered == missing).long().argmax(1)

    def _orders(self, size: int, new: bool, generator: torch.Generator) -> Tensor:
        """Return permutations (size, n), of those that belong to training or to the test."""
        n = self.n
        if self.permutations == "all":
            return without_replacement(size, n, n, generator)
        kept = n - LAST
        if new == (self.permutations == "restricted-as-coded"):
            first = without_replacement(size, kept, kept, generator)
            return torch.cat([first, without_replacement(size, LAST, LAST, generator) + kept], 1)
        found = without_replacement(size, n, n, generator)
        while (stays := (found[:, :kept] < kept).all(1)).any():
            found[stays] = without_replacement(int(stays.sum()), n, n, generator)
        return found

    def trivial_rules(self) -> dict[str, Rule]:
        """Return rules that do without the first row."""
        return {**super().trivial_rules(), **choices((self.n, self.n - 1, self.n + 1))}
