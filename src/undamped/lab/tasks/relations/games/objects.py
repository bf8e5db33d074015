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
"""The number of the empty cell."""

Cells = frozenset[tuple[int, int]]


@dataclass(frozen=True)
class Objects:
    """All objects of a family.

    Args:
        pictures: (1 + first × second, 3, 12, 12); the first is an empty cell.
        likely: (first,) how likely each first attribute is.
        second: How many second attributes there are; all are equally likely.
        luminance: (first, second) of the colour that a reader meets first.
    """

    pictures: Tensor
    likely: Tensor
    second: int
    luminance: Tensor

    def numbers(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the numbers of objects by their attributes."""
        return 1 + first * self.second + second

    def attributes(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Return the attributes of objects by their numbers; −1 for an empty cell."""
        empty = numbers == BLANK
        first = torch.div(numbers - 1, self.second, rounding_mode="floor")
        return first.masked_fill(empty, -1), ((numbers - 1) % self.second).masked_fill(empty, -1)


@cache
def family(name: Family) -> Objects:
    """Return the objects of a family.

    Args:
        name: Pentominoes and hexominoes that fit into three by three blocks, turned and reflected,
            or vertical stripes of two colours.
    """
    colours = torch.tensor(COLOURS, dtype=torch.float32) / 255
    bright = colours @ torch.tensor(LUMINANCE)
    if name == "stripes":
        outer, inner = torch.ones(3, 3), torch.zeros(3, 3)
        outer[:, 1], inner[:, 1] = 0, 1
        painted = _painted(outer, colours)[:, None] + _painted(inner, colours)[None]
        likely, luminance = torch.ones(len(colours)), bright[:, None].expand(-1, len(colours))
    else:
        shapes = polyominoes(5 if name == "pentominoes" else 6)
        masks = torch.from_numpy(np.stack([mask for kind in shapes for mask in kind]))
        painted = torch.stack([_painted(mask, colours) for mask in masks])
        # Every shape is as likely as any other, however many ways it can be turned.
        likely = torch.tensor([1 / len(kind) for kind in shapes for _ in kind])
        luminance = bright.expand(len(masks), -1)
    second = painted.shape[1]
    pictures = torch.cat([torch.zeros(1, 3, CELL, CELL), painted.flatten(0, 1)])
    return Objects(pictures, likely / likely.sum(), second, luminance)


def polyominoes(size: int) -> list[list[NDArray[np.float32]]]:
    """Return the polyominoes of `size` blocks that fit into three by three, each with its turns.

    One that leaves a row empty lies at the upper edge, and its turns at the others.

    Args:
        size: How many blocks.
    """
    kinds: dict[Cells, set[Cells]] = {}
    places = [(y, x) for y in range(3) for x in range(3)]
    for chosen in combinations(places, size):
        cells = _cornered(frozenset(chosen))
        if _connected(cells):
            turns = set(_turns(cells))
            kinds.setdefault(min(map(_cornered, turns), key=sorted), turns)
    return [
        [_mask(turn) for turn in sorted(turns, key=sorted)]
        for _, turns in sorted(kinds.items(), key=lambda pair: sorted(pair[0]))
    ]


def _turns(cells: Cells) -> Iterator[Cells]:
    for _ in range(4):
        cells = frozenset((x, 2 - y) for y, x in cells)
        yield cells
        yield frozenset((y, 2 - x) for y, x in cells)


def _cornered(cells: Cells) -> Cells:
    top, left = min(y for y, _ in cells), min(x for _, x in cells)
    return frozenset((y - top, x - left) for y, x in cells)


def _connected(cells: Cells) -> bool:
    reached, edge = set(), {min(cells)}
    while edge:
        reached |= edge
        beside = {(y + a, x + b) for y, x in edge for a, b in ((0, 1), (1, 0), (0, -1), (-1, 0))}
        edge = (beside & cells) - reached
    return len(reached) == len(cells)


def _mask(cells: Cells) -> NDArray[np.float32]:
    mask = np.zeros((3, 3), dtype=np.float32)
    for cell in cells:
        mask[cell] = 1
    return mask


def _painted(mask: Tensor, colours: Tensor) -> Tensor:
    """Return a mask of blocks in every colour, (colours, 3, 12, 12)."""
    cell = torch.zeros(CELL, CELL)
    end = OFFSET + 3 * BLOCK
    cell[OFFSET:end, OFFSET:end] = mask.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    return colours[:, :, None, None] * cell
