"""Comparison: which of two sizes of one object is the larger one."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from undamped._base.options import NonNegativeInt
from undamped._base.registry import tasks
from undamped.lab.data.pictures.objects import read_objects
from undamped.lab.tasks.relations.glyphs import SIDE, glyph_pictures
from undamped.lab.tasks.relations.trials import OURS, RelationTask, Trials, in_turn
from undamped.lab.tasks.task import Split

SIZES = (10, 18, 26)
"""Small, medium and large, in pixels; the thesis does not say its own."""
PAIRS = ((0, 2), (2, 0))
NEIGHBOURS = ((1, 2), (2, 1), (0, 1), (1, 0))


@tasks.register("comparison")
class Comparison(RelationTask):
    """Say which of two pictures of one object is the larger one.

    Args:
        transitive: Whether training has only neighbouring sizes, small and medium, medium and
            large, and the test small and large.
        holdout: How many of the objects (m) are kept for the test; if none is given, all but five.
        glyphs: "dejavu", or a folder of pictures, or an .npz file with an array `pictures`.
        seed: Where the random numbers of the data come from, and which objects are kept.

    Example:
        >>> build("comparison", transitive=True)

    Reference:
        G. Kerg. Inductive biases for efficient information transfer in artificial networks, section
        7.2. Thesis, Université de Montréal, 2022.
    """

    fewest_seen = 5
    objects_in_trial = (1, 1)
    output_size = 2
    segments = (2,)
    rows = (2,)
    answer_names = ("the first", "the second")

    def __init__(
        self,
        *,
        transitive: bool = False,
        holdout: NonNegativeInt | None = None,
        glyphs: str = OURS,
        seed: NonNegativeInt = 0,
    ) -> None:
        self.transitive = self.new_relations = transitive
        super().__init__(holdout, glyphs, "none", seed)

    @property
    def object_count(self) -> int:
        """How many objects there are, each in three sizes."""
        return len(self.pictures) // len(SIZES)

    @cached_property
    def pictures(self) -> Tensor:
        """The objects small, medium and large: (3 × objects, 3, height, width)."""
        if self.glyphs == OURS:
            return torch.cat([glyph_pictures(size) for size in SIZES])
        return torch.cat([_shrunk(torch.from_numpy(read_objects(self.glyphs)), s) for s in SIZES])

    def trials(self, size: int, new: bool, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """As many of every pair of sizes; slots are sizes here."""
        pairs = torch.tensor(PAIRS if new or not self.transitive else NEIGHBOURS)
        sizes = pairs[in_turn(size, len(pairs), generator)]
        return sizes, sizes.argmax(1)

    def drawn(self, size: int, new: bool, generator: torch.Generator) -> Trials:
        """One object in two sizes."""
        known = self.unseen if new else self.seen
        sizes, targets = self.trials(size, new, generator)
        objects = known[torch.randint(len(known), (size, 1), generator=generator)]
        return Trials((sizes * self.object_count + objects).T, None, targets)

    def attributes(self, split: Split, number: int, size: int) -> dict[str, Tensor]:
        """Return shapes and sizes, (time, batch) each."""
        numbers = self.shown(split, number, size).objects
        count = self.object_count
        return {"shape": numbers % count, "size": numbers // count}


def _shrunk(pictures: Tensor, size: int) -> Tensor:
    """Return pictures smaller by size / SIDE on a ground of the colour of their corner."""
    height, width = pictures.shape[-2:]
    small = (max(1, round(height * size / SIDE)), max(1, round(width * size / SIDE)))
    fitted = torch.nn.functional.adaptive_avg_pool2d(pictures, small)
    shown = pictures[:, :, :1, :1].expand_as(pictures).clone()
    top, left = (height - small[0]) // 2, (width - small[1]) // 2
    shown[:, :, top : top + small[0], left : left + small[1]] = fitted
    return shown
