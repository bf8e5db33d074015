"""Samples for continuous-depth models: annuli, spirals, planar densities, shapes in space.

All functions are pure functions of a size and a generator.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from undamped._base.options import PositiveFloat, PositiveInt, unknown_name


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


def _two_spirals(count: int, generator: Generator) -> Tensor:
    point, _ = spirals(count, generator, turns=1.5, noise=0.03)
    return 2.5 * point


DENSITIES: dict[str, Callable[[int, Generator], Tensor]] = {
    "moons": _moons,
    "checkerboard": _checkerboard,
    "rings": _rings,
    "gaussians": _gaussians,
    "pinwheel": _pinwheel,
    "spirals": _two_spirals,
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


SHAPES = ("sphere", "cube", "torus", "helix")


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
