"""Densities to be learned from their points: planar ones, and clouds of points in space.

A model of these gives every point its log-density; there is nothing else to answer.
"""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, Literal

import torch

from undamped._base.options import NonNegativeFloat, NonNegativeInt
from undamped._base.registry import tasks
from undamped.lab.tasks.continuous_data import density, shape_points
from undamped.lab.tasks.task import Batch, Chance, GeneratedTask


class DensityTask(GeneratedTask):
    """Points without answers; the score is their negative log-likelihood, in nats."""

    recipes: ClassVar = {
        "ffjord": {
            "model": {
                "hidden_size": 64,
                "end": 1.0,
                "detail": 6.0,
                "trace": "exact",
                "tolerance": 0.001,
            },
            "train": {"steps": 600, "batch_size": 256, "learning_rate": 0.01, "schedule": "cosine"},
        }
    }

    sequential: ClassVar[bool] = False
    answer = "density"
    metric = "nll"
    higher_is_better = False
    output_size = 0

    @property
    def chance(self) -> Chance:
        """A normal distribution with the mean and the covariance of the points."""
        return Chance(self._normal_nll, self._normal_nll, "a normal distribution")

    @cached_property
    def _normal_nll(self) -> float:
        points = self.draw(20_000, self.generator("train", 0, part=2)).inputs.double()
        # ½ log det(2πe Σ) is what the best normal distribution scores on average.
        turns = 2 * torch.pi * torch.e * points.T.cov()
        return 0.5 * float(torch.linalg.slogdet(turns).logabsdet)


@tasks.register("density")
class PlanarDensity(DensityTask):
    """Learn a density in the plane from its points.

    Args:
        name: Which one.
        seed: Where the random numbers of the data come from.

    Example:
        >>> build("density", name="rings")

    Reference:
        W. Grathwohl and others. FFJORD. ICLR, 2019, figure 2.
    """

    input_size = 2

    def __init__(
        self,
        name: Literal[
            "moons", "checkerboard", "rings", "gaussians", "pinwheel", "spirals"
        ] = "moons",
        *,
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(seed)
        self.name = name

    def draw(self, size: int, generator: torch.Generator) -> Batch:
        """Make `size` points."""
        points = density(self.name, size, generator)
        return Batch(points, points.new_zeros(size))


@tasks.register("point-cloud")
class PointCloud(DensityTask):
    """Learn the density of a cloud of points around a surface or a curve in space.

    Args:
        shape: What the points lie on.
        noise: Standard deviation of their scatter around it.
        seed: Where the random numbers of the data come from.

    Example:
        >>> build("point-cloud", shape="torus")

    Reference:
        G. Yang and others. PointFlow: 3D point cloud generation with continuous normalizing
        flows. ICCV, 2019.
    """

    input_size = 3

    def __init__(
        self,
        shape: Literal["sphere", "cube", "torus", "helix"] = "torus",
        *,
        noise: NonNegativeFloat = 0.05,
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(seed)
        self.shape, self.noise = shape, noise

    def draw(self, size: int, generator: torch.Generator) -> Batch:
        """Make `size` points."""
        points = shape_points(self.shape, size, generator)
        points = points + self.noise * torch.randn(size, 3, generator=generator)
        return Batch(points, points.new_zeros(size))
