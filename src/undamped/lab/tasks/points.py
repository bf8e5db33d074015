"""Single vectors: classes of points and of cell samples, densities, and their samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Generator, Tensor

from undamped._base.options import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    unknown_name,
)
from undamped._base.registry import tasks
from undamped.lab.tasks.task import Batch, Chance, GeneratedTask, LabelledTask, Split

SHAPES = ("sphere", "cube", "torus", "helix")
_VALIDATION, _TEST = 85, 143  # samples of breast cancer


def annuli(
    count: PositiveInt, dimension: PositiveInt, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Return points of a ball of radius ½ and of a shell of radii 1 to 1½, and their classes.

    A flow in the space of the points cannot move the ball out of the shell, so a neural ODE without
    augmentation cannot separate them linearly.

    Args:
        count: How many points; half in the ball, half in the shell.
        dimension: Dimension of the space.
        generator: The random number generator.

    Returns:
        Points (count, dimension) and classes (count,): 0 in the ball, 1 in the shell.
    """
    label = torch.arange(count) % 2
    direction = torch.randn(count, dimension, generator=generator)
    direction = direction / torch.linalg.vector_norm(direction, dim=1, keepdim=True)
    chance = torch.rand(count, generator=generator)
    # Radii such that both densities are uniform.
    ball = 0.5 * chance ** (1 / dimension)
    shell = (1 + chance * (1.5**dimension - 1)) ** (1 / dimension)
    radius = torch.where(label == 0, ball, shell)
    return direction * radius.unsqueeze(1), label


def spirals(
    count: PositiveInt, generator: Generator, *, turns: PositiveFloat = 1.25, noise: float = 0.02
) -> tuple[Tensor, Tensor]:
    """Return points on two interleaved spirals, and their classes.

    Args:
        count: How many points; half on each.
        generator: The random number generator.
        turns: Number of turns.
        noise: Standard deviation of the noise.
    """
    label = torch.arange(count) % 2
    along = torch.rand(count, generator=generator).sqrt()
    angle = 2 * math.pi * turns * along + math.pi * label
    point = torch.stack((along * torch.cos(angle), along * torch.sin(angle)), dim=1)
    return point + noise * torch.randn(count, 2, generator=generator), label


def _moons(count: int, generator: Generator) -> Tensor:
    angle = math.pi * torch.rand(count, generator=generator)
    upper = torch.arange(count) % 2 == 0
    x = torch.where(upper, torch.cos(angle), 1 - torch.cos(angle))
    y = torch.where(upper, torch.sin(angle), 0.5 - torch.sin(angle))
    point = torch.stack((x - 0.5, y - 0.25), dim=1) * 1.6
    return point + 0.1 * torch.randn(count, 2, generator=generator)


def _checkerboard(count: int, generator: Generator) -> Tensor:
    x = 4 * torch.rand(count, generator=generator) - 2
    column = torch.floor(x) % 2
    row = torch.randint(0, 2, (count,), generator=generator) * 2 - 2
    return torch.stack((x, torch.rand(count, generator=generator) + row + column), dim=1)


def _rings(count: int, generator: Generator) -> Tensor:
    radius = 0.7 * (1 + torch.arange(count) % 3)
    angle = 2 * math.pi * torch.rand(count, generator=generator)
    point = torch.stack((radius * torch.cos(angle), radius * torch.sin(angle)), dim=1)
    return point + 0.06 * torch.randn(count, 2, generator=generator)


def _gaussians(count: int, generator: Generator) -> Tensor:
    angle = 2 * math.pi * (torch.arange(count) % 8) / 8
    centre = 2 * torch.stack((torch.cos(angle), torch.sin(angle)), dim=1)
    return centre + 0.2 * torch.randn(count, 2, generator=generator)


def _pinwheel(count: int, generator: Generator) -> Tensor:
    arm = torch.arange(count) % 5
    noise = torch.randn(count, 2, generator=generator)
    along, across = 1 + 0.3 * noise[:, 0], 0.1 * noise[:, 1]
    turn = 2 * math.pi * arm / 5 + 0.25 * torch.exp(along)
    cosine, sine = torch.cos(turn), torch.sin(turn)
    return 1.5 * torch.stack((along * cosine - across * sine, along * sine + across * cosine), 1)


DENSITIES: dict[str, Callable[[int, Generator], Tensor]] = {
    "moons": _moons,
    "checkerboard": _checkerboard,
    "rings": _rings,
    "gaussians": _gaussians,
    "pinwheel": _pinwheel,
    "spirals": lambda count, generator: 2.5 * spirals(count, generator, turns=1.5, noise=0.03)[0],
}


def density(name: str, count: PositiveInt, generator: Generator) -> Tensor:
    """Return points of a planar density, (count, 2), about within [−3, 3]².

    Args:
        name: moons, checkerboard, rings, gaussians, pinwheel or spirals.
        count: How many points.
        generator: The random number generator.
    """
    if name not in DENSITIES:
        raise unknown_name("density", name, list(DENSITIES))
    return DENSITIES[name](count, generator)


def shape_points(name: str, count: PositiveInt, generator: Generator) -> Tensor:
    """Return points on a shape in space, (count, 3), about within [−1, 1]³.

    Args:
        name: sphere, cube, torus or helix.
        count: How many points.
        generator: The random number generator.
    """
    if name not in SHAPES:
        raise unknown_name("shape", name, list(SHAPES))
    if name == "sphere":
        points = torch.randn(count, 3, generator=generator)
        return points / torch.linalg.vector_norm(points, dim=1, keepdim=True)
    a, b = 2 * math.pi * torch.rand(2, count, generator=generator)
    if name == "cube":
        points = 2 * torch.rand(count, 3, generator=generator) - 1
        face = torch.randint(0, 3, (count,), generator=generator)
        side = torch.randint(0, 2, (count,), generator=generator) * 2.0 - 1
        points[torch.arange(count), face] = side
        return 0.7 * points
    if name == "torus":
        ring = 0.8 + 0.25 * torch.cos(b)
        return torch.stack((ring * torch.cos(a), ring * torch.sin(a), 0.25 * torch.sin(b)), dim=1)
    return torch.stack((0.6 * torch.cos(2 * a), 0.6 * torch.sin(2 * a), a / math.pi - 1), dim=1)


class PointTask(GeneratedTask):
    """Two classes of points, equally many of each."""

    recipes: ClassVar = {
        "*": {"model": {"hidden_size": 32}, "train": {"steps": 500, "batch_size": 128}}
    }

    sequential: ClassVar[bool] = False
    output_size = 2

    @property
    def chance(self) -> Chance:
        """Both classes are equally likely."""
        return Chance(loss=math.log(2), metric=0.5, rule="either")


@tasks.register("annuli")
class Annuli(PointTask):
    """Separate a ball from the shell around it.

    A neural ODE is a homeomorphism, so in the dimension of the points the ball cannot leave the
    shell and no plane can separate them at the end. With one more dimension, or with a velocity, it
    can.

    Args:
        dimension: Dimension of the points.
        seed: Seed of the data.

    Reference:
        E. Dupont, A. Doucet, Y. W. Teh. Augmented neural ODEs. NeurIPS, 2019.
    """

    def __init__(self, dimension: PositiveInt = 2, *, seed: NonNegativeInt = 0) -> None:
        super().__init__(seed)
        self.input_size = dimension

    def draw(self, size: int, generator: torch.Generator) -> Batch:
        return Batch(*annuli(size, self.input_size, generator))


@tasks.register("spirals")
class Spirals(PointTask):
    """Separate two interleaved spirals.

    Args:
        turns: Number of turns of each spiral.
        noise: Standard deviation of the noise.
        seed: Seed of the data.

    Reference:
        K. J. Lang, M. J. Witbrock. Learning to tell two spirals apart. Connectionist Models
        Summer School, 1988.
    """

    input_size = 2

    def __init__(
        self,
        turns: PositiveFloat = 1.25,
        *,
        noise: NonNegativeFloat = 0.02,
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(seed)
        self.turns, self.noise = turns, noise

    def draw(self, size: int, generator: torch.Generator) -> Batch:
        return Batch(*spirals(size, generator, turns=self.turns, noise=self.noise))


@tasks.register("breast-cancer")
class BreastCancer(LabelledTask):
    """Classify cell samples as malignant or benign by thirty measurements of nuclei.

    The 569 samples of Wisconsin's diagnostic set, which scikit-learn ships, stratified by class:
    341 to train, 85 to validate, 143 to test. Measurements are standardised with mean and deviation
    of the training split.

    Args:
        split_seed: Seed of the split.
        seed: Seed of the order of the batches.

    Reference:
        W. N. Street, W. H. Wolberg, O. L. Mangasarian. Nuclear feature extraction for breast
        tumor diagnosis. Biomedical Image Processing, 1993.
    """

    recipes: ClassVar = {
        "*": {"model": {"hidden_size": 32}, "train": {"batch_size": 64, "epochs": 20}}
    }

    sequential: ClassVar[bool] = False
    input_size = 30
    output_size = 2
    answer_names = ("malignant", "benign")

    def __init__(self, *, split_seed: NonNegativeInt = 0, seed: NonNegativeInt = 0) -> None:
        super().__init__(seed)
        self.split_seed = split_seed

    def load(self) -> dict[Split, tuple[Tensor, Tensor]]:
        from sklearn.datasets import load_breast_cancer
        from sklearn.model_selection import train_test_split

        values, labels = load_breast_cancer(return_X_y=True)
        rest, test, rest_labels, test_labels = train_test_split(
            values, labels, test_size=_TEST, stratify=labels, random_state=self.split_seed
        )
        train, valid, train_labels, valid_labels = train_test_split(
            rest,
            rest_labels,
            test_size=_VALIDATION,
            stratify=rest_labels,
            random_state=self.split_seed,
        )
        arrays: dict[Split, Any] = {
            "train": (train, train_labels),
            "valid": (valid, valid_labels),
            "test": (test, test_labels),
        }
        mean, deviation = np.mean(train, axis=0), np.std(train, axis=0)
        return {
            split: (torch.tensor((x - mean) / deviation).float(), torch.tensor(y))
            for split, (x, y) in arrays.items()
        }

    @property
    def chance(self) -> Chance:
        """The entropy of the test classes, and the accuracy of the commoner one."""
        benign = self._data["test"][1].double().mean().item()
        loss = -benign * math.log(benign) - (1 - benign) * math.log(1 - benign)
        return Chance(loss=loss, metric=max(benign, 1 - benign), rule="always benign")


class DensityTask(GeneratedTask):
    """Points without targets, whose log-density a model predicts; the score is in nats."""

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
        points = self.draw(20_000, self.generator("train", 0, stream=2)).inputs.double()
        # The mean score of the best normal distribution is ½ log det(2πe Σ).
        scaled = 2 * torch.pi * torch.e * points.T.cov()
        return 0.5 * float(torch.linalg.slogdet(scaled).logabsdet)


@tasks.register("density")
class PlanarDensity(DensityTask):
    """Learn a density in the plane from its points.

    Args:
        name: The density.
        seed: Seed of the data.

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
        points = density(self.name, size, generator)
        return Batch(points, points.new_zeros(size))


@tasks.register("point-cloud")
class PointCloud(DensityTask):
    """Learn the density of a cloud of points around a surface or a curve in space.

    Args:
        shape: The surface or curve.
        noise: Standard deviation of the noise around it.
        seed: Seed of the data.

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
        points = shape_points(self.shape, size, generator)
        points = points + self.noise * torch.randn(size, 3, generator=generator)
        return Batch(points, points.new_zeros(size))
