"""A rotating handwritten digit that is observed in some frames."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Annotated, ClassVar, Unpack

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from undamped._base.checked import checked
from undamped._base.options import Default, PositiveInt, Range
from undamped._base.registry import tasks
from undamped.lab.data.published.cache import folder
from undamped.lab.data.published.formats.images import read_idx_folder
from undamped.lab.tasks.irregular.curves import CurveOptions, CurveTask, Data
from undamped.lab.tasks.task import Split

SIDE = 14
"""Rows and columns of a frame, half of those of MNIST."""


class RotationOptions(CurveOptions, total=False):
    """Options of rotating digits."""

    series: Annotated[PositiveInt, Default(1000, "Digits of the training split, at most.")]
    points: Annotated[PositiveInt, Default(16, "Frames of a rotation.")]
    observed: Annotated[PositiveInt, Default(8, "How many frames a model receives.")]


@tasks.register("rotating-digits")
class RotatingDigits(CurveTask):
    """Predict all frames of a digit that rotates once, from a few of them.

    Images of one digit of MNIST, averaged from 28 × 28 to 14 × 14 pixels, start at a random angle
    and rotate once in a unit of time; a frame is a vector of 196 numbers in [0, 1]. Test digits are
    those of the published test split.

    Args:
        digit: The digit, from 0 to 9.

    Example:
        >>> build("rotating-digits", observed=8).batch("test", 0, 4).inputs.shape
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
        self, *, digit: Annotated[int, Range(low=0, high=9)] = 3, **options: Unpack[RotationOptions]
    ) -> None:
        super().__init__(options)
        self.digit = digit

    @cached_property
    def images(self) -> dict[Split, Tensor]:
        """The images of the digit (count, 28, 28) of each split."""
        mnist = read_idx_folder(folder("mnist"))
        train, test = (
            torch.from_numpy(images[labels == self.digit].astype(np.float32) / 255)
            for images, labels in (
                (mnist.train, mnist.train_labels),
                (mnist.test, mnist.test_labels),
            )
        )
        valid = min(self.held_out["valid"], max(1, len(train) // 4))
        return {
            "train": train[valid:][: self.series],
            "valid": train[:valid],
            "test": test[: self.held_out["test"]],
        }

    def sequences(self, split: Split) -> int:
        return len(self.images[split])

    def simulate_split(self, split: Split, random: np.random.Generator) -> Data:
        """Return times (images, points) and frames (images, points, 196) of a split."""
        images = self.images[split]
        start = torch.from_numpy(random.uniform(0, 2 * math.pi, len(images)))
        times = torch.arange(self.points, dtype=torch.float64) / self.points
        angles = start.unsqueeze(1) + 2 * math.pi * times
        frames = [rotate(images, angle.float()) for angle in angles.T]
        return times.expand(len(images), -1).contiguous(), torch.stack(frames, 1).flatten(2)


def rotate(images: Tensor, angle: Tensor) -> Tensor:
    """Return images (count, 28, 28), each rotated by its angle (count,), as (count, 14, 14)."""
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    matrix = torch.stack([torch.stack([cos, -sin, zero], 1), torch.stack([sin, cos, zero], 1)], 1)
    shape = (len(images), 1, *images.shape[1:])
    grid = F.affine_grid(matrix, list(shape), align_corners=False)
    rotated = F.grid_sample(images.view(shape), grid, align_corners=False)
    return F.avg_pool2d(rotated, 2).squeeze(1)
