"""Drawing objects with things in common, and cells of the grid."""

from __future__ import annotations

import torch
from torch import Tensor

from undamped.lab.tasks.relations.games.objects import Objects


class Drawer:
    """Draws objects and cells for a number of trials at once.

    Args:
        objects: The family.
        size: How many trials.
        generator: Where the random numbers come from.
    """

    def __init__(self, objects: Objects, size: int, generator: torch.Generator) -> None:
        self.objects, self.size, self.generator = objects, size, generator

    def any(self) -> Tensor:
        """Return objects of any kind, (size,)."""
        first = torch.multinomial(
            self.objects.likely, self.size, replacement=True, generator=self.generator
        )
        return self.objects.numbers(first, self.below(self.objects.second))

    def below(self, count: int) -> Tensor:
        """Return whole numbers below `count`, (size,)."""
        return torch.randint(count, (self.size,), generator=self.generator)

    def unlike(self, *others: Tensor) -> Tensor:
        """Return objects that are the same as none of the others, (size,)."""
        found = self.any()
        while (same := torch.stack([found == other for other in others]).any(0)).any():
            found = torch.where(same, self.any(), found)
        return found

    def akin(self, other: Tensor, common: Tensor) -> Tensor:
        """Return objects that differ from others, and have something in common with them.

        Args:
            other: (size,) the others.
            common: (size,) 0 for the first attribute, 1 for the second, 2 for nothing.
        """
        first, second = self.objects.attributes(other)
        new_first, new_second = first.clone(), second.clone()
        while (again := new_first == first).any():
            drawn, _ = self.objects.attributes(self.any())
            new_first = torch.where(again, drawn, new_first)
        while (again := new_second == second).any():
            new_second = torch.where(again, self.below(self.objects.second), new_second)
        return self.objects.numbers(
            torch.where(common == 0, first, new_first), torch.where(common == 1, second, new_second)
        )

    def nearly(self, other: Tensor) -> Tensor:
        """Return objects that share shape only, colour only or neither, a third each."""
        return self.akin(other, self.below(3))

    def cells(self, count: int) -> Tensor:
        """Return different cells of the nine, (size, count)."""
        return torch.rand(self.size, 9, generator=self.generator).topk(count, dim=1).indices

    def order(self, count: int) -> Tensor:
        """Return permutations, (size, count)."""
        return torch.rand(self.size, count, generator=self.generator).argsort(1)


def grid(cells: Tensor, objects: Tensor) -> Tensor:
    """Return grids (size, 9) with objects (size, count) in cells (size, count)."""
    return objects.new_zeros(len(objects), 9).scatter(1, cells, objects)
