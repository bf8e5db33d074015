"""The objects of relational games: polyominoes and stripes of two attributes, on black cells.

An object has a first and a second attribute: shape and colour for polyominoes, the outer and the
inner colour for stripes. Objects are the same if both are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations, product
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Family = Literal["pentominoes", "hexominoes", "stripes"]
CELL, BLOCK, OFFSET = 12, 3, 1
"""Pixels of a cell, of a block of an object, and from a cell's edge to its object."""
LEVELS = (64, 144, 192)
COLOURS = tuple(c for c in product(LEVELS, repeat=3) if c not in ((64,) * 3, (192,) * 3))
"""All mixtures of three levels of red, green and blue but the darkest and the lightest grey."""
LUMINANCE = (0.2126, 0.7152, 0.0722)
BLANK = 0
"""The index of the empty cell."""

Cells = frozenset[tuple[int, int]]


@dataclass(frozen=True)
class Objects:
    """All objects of a family.

    Args:
        images: (1 + first × second, 3, 12, 12); the first is an empty cell.
        probabilities: (first,) probabilities of the first attribute.
        second: The number of second attributes; all are equally likely.
        luminance: (first, second) luminance of the colour, for stripes of the outer colour.
    """

    images: Tensor
    probabilities: Tensor
    second: int
    luminance: Tensor

    def index(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the indices of objects by their attributes."""
        return 1 + first * self.second + second

    def attributes(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return the attributes of objects by their indices; −1 for an empty cell."""
        empty = index == BLANK
        first = torch.div(index - 1, self.second, rounding_mode="floor")
        return first.masked_fill(empty, -1), ((index - 1) % self.second).masked_fill(empty, -1)


@cache
def family(name: Family) -> Objects:
    """Return the objects of a family.

    Args:
        name: Pentominoes and hexominoes that fit into three by three blocks, rotated and reflected,
            or vertical stripes of two colours.
    """
    colours = torch.tensor(COLOURS, dtype=torch.float32) / 255
    brightness = colours @ torch.tensor(LUMINANCE)
    if name == "stripes":
        outer, inner = torch.ones(3, 3), torch.zeros(3, 3)
        outer[:, 1], inner[:, 1] = 0, 1
        images = _painted(outer, colours)[:, None] + _painted(inner, colours)[None]
        weights, luminance = torch.ones(len(colours)), brightness[:, None].expand(-1, len(colours))
    else:
        shapes = polyominoes(5 if name == "pentominoes" else 6)
        masks = torch.from_numpy(np.stack([mask for kind in shapes for mask in kind]))
        images = torch.stack([_painted(mask, colours) for mask in masks])
        # All shapes are equally likely, however many orientations they have.
        weights = torch.tensor([1 / len(kind) for kind in shapes for _ in kind])
        luminance = brightness.expand(len(masks), -1)
    with_blank = torch.cat([torch.zeros(1, 3, CELL, CELL), images.flatten(0, 1)])
    return Objects(with_blank, weights / weights.sum(), images.shape[1], luminance)


def polyominoes(size: int) -> list[list[NDArray[np.float32]]]:
    """Return the polyominoes of `size` blocks that fit into three by three, in all orientations.

    If one has an empty row, it is at the upper edge, and its rotations are at the other edges.

    Args:
        size: How many blocks.
    """
    kinds: dict[Cells, set[Cells]] = {}
    blocks = [(y, x) for y in range(3) for x in range(3)]
    for subset in combinations(blocks, size):
        cells = _to_corner(frozenset(subset))
        if _connected(cells):
            orientations = set(_orientations(cells))
            kinds.setdefault(min(map(_to_corner, orientations), key=sorted), orientations)
    return [
        [_mask(cells) for cells in sorted(orientations, key=sorted)]
        for _, orientations in sorted(kinds.items(), key=lambda pair: sorted(pair[0]))
    ]


def _orientations(cells: Cells) -> Iterator[Cells]:
    for _ in range(4):
        cells = frozenset((x, 2 - y) for y, x in cells)
        yield cells
        yield frozenset((y, 2 - x) for y, x in cells)


def _to_corner(cells: Cells) -> Cells:
    y0, x0 = min(y for y, _ in cells), min(x for _, x in cells)
    return frozenset((y - y0, x - x0) for y, x in cells)


def _connected(cells: Cells) -> bool:
    reached, edge = set(), {min(cells)}
    while edge:
        reached |= edge
        adjacent = {(y + a, x + b) for y, x in edge for a, b in ((0, 1), (1, 0), (0, -1), (-1, 0))}
        edge = (adjacent & cells) - reached
    return len(reached) == len(cells)


def _mask(cells: Cells) -> NDArray[np.float32]:
    mask = np.zeros((3, 3), dtype=np.float32)
    mask[tuple(zip(*cells, strict=True))] = 1
    return mask


def _painted(mask: Tensor, colours: Tensor) -> Tensor:
    """Return a mask of blocks in every colour, (colours, 3, 12, 12)."""
    cell = torch.zeros(CELL, CELL)
    end = OFFSET + 3 * BLOCK
    cell[OFFSET:end, OFFSET:end] = mask.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    return colours[:, :, None, None] * cell


class Sampler:
    """Draws objects and cells for several trials at once.

    Args:
        objects: The family.
        size: How many trials.
        generator: The random number generator.
    """

    def __init__(self, objects: Objects, size: int, generator: torch.Generator) -> None:
        self.objects, self.size, self.generator = objects, size, generator

    def sample(self) -> Tensor:
        """Return random objects, (size,)."""
        first = self.weighted(self.objects.probabilities)
        return self.objects.index(first, self.integers(self.objects.second))

    def integers(self, count: int) -> Tensor:
        """Return random integers below `count`, (size,)."""
        return torch.randint(count, (self.size,), generator=self.generator)

    def weighted(self, weights: Tensor) -> Tensor:
        """Return random indices with some weights, (size,)."""
        return torch.multinomial(weights, self.size, replacement=True, generator=self.generator)

    def different(self, *objects: Tensor) -> Tensor:
        """Return objects that differ from all of `objects`, (size,)."""
        samples = self.sample()
        while (same := torch.stack([samples == reference for reference in objects]).any(0)).any():
            samples = torch.where(same, self.sample(), samples)
        return samples

    def related(self, objects: Tensor, common: Tensor) -> Tensor:
        """Return objects that differ from others, but may have an attribute in common with them.

        Args:
            objects: (size,) the others.
            common: (size,) 0 for the first attribute, 1 for the second, 2 for neither.
        """
        first, second = self.objects.attributes(objects)
        new_first, new_second = first.clone(), second.clone()
        while (same := new_first == first).any():
            samples, _ = self.objects.attributes(self.sample())
            new_first = torch.where(same, samples, new_first)
        while (same := new_second == second).any():
            new_second = torch.where(same, self.integers(self.objects.second), new_second)
        return self.objects.index(
            torch.where(common == 0, first, new_first), torch.where(common == 1, second, new_second)
        )

    def similar(self, objects: Tensor) -> Tensor:
        """Return objects of the same shape only, the same colour only or neither, a third each."""
        return self.related(objects, self.integers(3))

    def cells(self, count: int) -> Tensor:
        """Return different cells of the nine, (size, count)."""
        return torch.rand(self.size, 9, generator=self.generator).topk(count, dim=1).indices

    def order(self, count: int) -> Tensor:
        """Return permutations, (size, count)."""
        return torch.rand(self.size, count, generator=self.generator).argsort(1)


def grid(cells: Tensor, objects: Tensor) -> Tensor:
    """Return grids (size, 9) with objects (size, count) in cells (size, count)."""
    return objects.new_zeros(len(objects), 9).scatter(1, cells, objects)
