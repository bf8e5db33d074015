"""What a system looks like: bodies in the plane, and the rods between them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Drawing:
    """Bodies of a system at some states.

    Args:
        bodies: Where they are, (…, bodies, 2).
        rods: Pairs of bodies with a line between them, numbered from 1; 0 is the origin.
        x: What the horizontal axis is.
        y: What the vertical axis is.
        equal: Whether both axes have the same scale.
    """

    bodies: Tensor
    rods: tuple[tuple[int, int], ...] = ()
    x: str = "x"
    y: str = "y"
    equal: bool = True


def hanging(angles: Tensor) -> Drawing:
    """Draw rods of length one that hang from each other.

    Args:
        angles: Of every rod from straight down, (…, rods).
    """
    steps = torch.stack((angles.sin(), -angles.cos()), dim=-1)
    rods = tuple((k, k + 1) for k in range(angles.shape[-1]))
    return Drawing(steps.cumsum(-2), rods)


def in_phase_plane(states: Tensor, names: tuple[str, ...]) -> Drawing:
    """Draw a point in the plane of the first position and its partner."""
    half = states.shape[-1] // 2
    point = states[..., [0, half]].unsqueeze(-2)
    return Drawing(point, (), names[0], names[half], equal=False)
