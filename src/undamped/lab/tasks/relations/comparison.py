"""Comparison of the sizes of two images of an object."""

from __future__ import annotations

from functools import cached_property
from typing import Unpack

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.registry import tasks
from undamped.lab.data.pictures.objects import read_objects
from undamped.lab.tasks.relations.glyphs import SIDE, glyph_images
from undamped.lab.tasks.relations.trials import DEJAVU, RelationTask, TrialOptions, Trials, balanced
from undamped.lab.tasks.task import Split

SIZES = (10, 18, 26)
"""Small, medium and large, in pixels; the thesis does not state its sizes."""
PAIRS = ((0, 2), (2, 0))
ADJACENT_PAIRS = ((1, 2), (2, 1), (0, 1), (1, 0))


@tasks.register("comparison")
class Comparison(RelationTask):
    """Choose the larger of two images of an object.

    Args:
        transitive: Whether training has only adjacent sizes, small and medium, medium and large,
            and the test small and large.

    Example:
        >>> build("comparison", transitive=True)

    Reference:
        G. Kerg. Inductive biases for efficient information transfer in artificial networks, section
        7.2. Thesis, Université de Montréal, 2022.
    """

    fewest_seen = 5
    objects_in_trial = (1, 1)
    rows = (2,)
    answer_names = ("the first", "the second")

    @checked
    def __init__(self, *, transitive: bool = False, **options: Unpack[TrialOptions]) -> None:
        self.transitive = self.new_relations = transitive
        self._set_up(**options)

    @property
    def object_count(self) -> int:
        """The number of objects, each in three sizes."""
        return len(self.images) // len(SIZES)

    @cached_property
    def images(self) -> Tensor:
        """The objects small, medium and large: (3 × objects, 3, height, width)."""
        if self.glyphs == DEJAVU:
            return torch.cat([glyph_images(size) for size in SIZES])
        return torch.cat([_shrink(torch.from_numpy(read_objects(self.glyphs)), s) for s in SIZES])

    def draw_slots(self, size: int, new: bool, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return equally many trials of every pair of sizes; slots are sizes here."""
        pairs = torch.tensor(PAIRS if new or not self.transitive else ADJACENT_PAIRS)
        sizes = pairs[balanced(size, len(pairs), generator)]
        return sizes, sizes.argmax(1)

    def draw_trials(self, size: int, new: bool, generator: torch.Generator) -> Trials:
        """Draw trials of one object in two sizes."""
        pool = self.test_objects if new else self.train_objects
        sizes, targets = self.draw_slots(size, new, generator)
        objects = pool[torch.randint(len(pool), (size, 1), generator=generator)]
        return Trials((sizes * self.object_count + objects).T, None, targets)

    def attributes(self, split: Split, index: int, size: int) -> dict[str, Tensor]:
        """Return shapes and sizes, (time, batch) each."""
        images = self.trials(split, index, size).objects
        count = self.object_count
        return {"shape": images % count, "size": images // count}


def _shrink(images: Tensor, size: int) -> Tensor:
    """Return images scaled by size / SIDE, on a background of the colour of their corner."""
    height, width = images.shape[-2:]
    small = (max(1, round(height * size / SIDE)), max(1, round(width * size / SIDE)))
    scaled = torch.nn.functional.adaptive_avg_pool2d(images, small)
    canvas = images[:, :, :1, :1].expand_as(images).clone()
    y, x = (height - small[0]) // 2, (width - small[1]) // 2
    canvas[:, :, y : y + small[0], x : x + small[1]] = scaled
    return canvas
