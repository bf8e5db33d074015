"""A handwritten digit that turns once around, of which some frames are seen."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from undamped._base.checked import checked
from undamped._base.errors import OptionError, explain
from undamped._base.options import NonNegativeInt, PositiveInt
from undamped._base.registry import tasks
from undamped.lab.data.published.cache import folder
from undamped.lab.data.published.formats.images import read_idx_folder
from undamped.lab.tasks.irregular.curves import Ask, CurveTask
from undamped.lab.tasks.task import Split

SIDE = 14
"""Rows and columns of a frame: those of MNIST, two by two."""


@tasks.register("rotating-digits")
class RotatingDigits(CurveTask):
    """Say all frames of a digit that turns once around, from a few of them.

    Pictures of one digit of MNIST, each 28 × 28 averaged to 14 × 14, begin at a random angle and
    turn once in a unit of time; a frame is a vector of 196 numbers in [0, 1]. Test digits are those
    of the published test part.

    Args:
        digit: Which digit turns.
        series: How many pictures there are to learn from, at most.
        points: Frames of a turn.
        seen: How many of them a model sees.
        ask: Whether all frames are asked for, or the second half from the first.
        seed: Where all random numbers come from.

    Example:
        >>> build("rotating-digits", seen=8).batch("test", 0, 4).inputs.shape
        torch.Size([8, 4, 196])

    Reference:
        Ç. Yıldız, M. Heinonen, H. Lähdesmäki. ODE²VAE: deep generative second order ODEs with
        Bayesian neural networks. NeurIPS, 2019; their digits are the threes, and have 28 × 28
        pixels.
    """

    input_size = SIDE * SIDE
    output_size = SIDE * SIDE
    span = 1.0
    held_out: ClassVar[dict[Split, int]] = {"valid": 100, "test": 200}
    recipes: ClassVar = {
        "*": {"model": {"hidden_size": 64}, "train": {"batch_size": 40, "minutes": 10}}
    }

    @checked
    def __init__(
        self,
        *,
        digit: NonNegativeInt = 3,
        series: PositiveInt = 1000,
        points: PositiveInt = 16,
        seen: PositiveInt = 8,
        ask: Ask = "all",
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(series=series, points=points, seen=seen, ask=ask, seed=seed)
        if digit > 9:
            raise OptionError(
                explain("task.digit", expected="0 to 9", got=digit, remedy="Choose another.")
            )
        self.digit = digit
        self._pictures: dict[Split, Tensor] | None = None

    def pictures(self) -> dict[Split, Tensor]:
        """Return the pictures of the digit (count, 28, 28), by part; none is in two parts."""
        if self._pictures is None:
            found = read_idx_folder(folder("mnist"))
            train, test = (
                torch.from_numpy(images[labels == self.digit].astype(np.float32) / 255)
                for images, labels in (
                    (found.train, found.train_labels),
                    (found.test, found.test_labels),
                )
            )
            kept = min(self.held_out["valid"], max(1, len(train) // 4))
            self._pictures = {
                "train": train[kept:][: self.series],
                "valid": train[:kept],
                "test": test[: self.held_out["test"]],
            }
        return self._pictures

    def sequences(self, split: Split) -> int:
        """How many pictures a part has."""
        return len(self.pictures()[split])

    def of(self, split: Split) -> tuple[Tensor, Tensor]:
        """Return times (pictures, points) and frames (pictures, points, 196) of a part."""
        if split not in self._curves:
            number = {"train": 0, "valid": 1, "test": 2}[split]
            random = np.random.default_rng([self.seed, number])
            pictures = self.pictures()[split]
            begin = torch.from_numpy(random.uniform(0, 2 * math.pi, len(pictures)))
            times = torch.arange(self.points, dtype=torch.float64) / self.points
            angles = begin.unsqueeze(1) + 2 * math.pi * times
            frames = [turned(pictures, angle.float()) for angle in angles.T]
            every = times.expand(len(pictures), -1).contiguous()
            self._curves[split] = every, torch.stack(frames, 1).flatten(2)
        return self._curves[split]

    def curves(self, count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Not drawn by number: pictures are those there are; see `of`."""
        times, values = self.of("train")
        return times[:count].numpy(), values[:count].numpy()


def turned(pictures: Tensor, angle: Tensor) -> Tensor:
    """Return pictures (count, 28, 28), each turned by its angle (count,), as (count, 14, 14)."""
    cos, sin, none = angle.cos(), angle.sin(), torch.zeros_like(angle)
    matrix = torch.stack([torch.stack([cos, -sin, none], 1), torch.stack([sin, cos, none], 1)], 1)
    shape = (len(pictures), 1, *pictures.shape[1:])
    places = F.affine_grid(matrix, list(shape), align_corners=False)
    found = F.grid_sample(pictures.view(shape), places, align_corners=False)
    return F.avg_pool2d(found, 2).squeeze(1)
