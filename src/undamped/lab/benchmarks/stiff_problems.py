"""The stiff test set: each problem twice, as a torch field and in NumPy for SciPy.

Reference:
    E. Hairer, G. Wanner. Solving ordinary differential equations II, sections IV.1 and IV.10.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray


@dataclass(frozen=True)
class StiffProblem:
    """One problem.

    Args:
        name: Its name.
        field: f(t, y) of torch, for (…, size).
        plain: The same of NumPy, for (size,).
        start: y at t = 0.
        end: Time to solve to.
        atol: Absolute tolerance over the relative one.
    """

    name: str
    field: Callable[[Any, Tensor], Tensor]
    plain: Callable[[float, Array], Array]
    start: Array
    end: float
    atol: float = 1e-2

    def batch(self, count: int) -> Tensor:
        """Return slightly different starts."""
        start = torch.from_numpy(self.start)
        return start * torch.linspace(1.0, 1.01, count, dtype=start.dtype).unsqueeze(1)


def _both(
    equations: Callable[..., tuple[Any, ...]],
) -> tuple[Callable[[Any, Tensor], Tensor], Callable[[float, Array], Array]]:
    """Return a field of torch and one of NumPy from equations for single components."""

    def field(t: Any, y: Tensor) -> Tensor:
        return torch.stack(equations(*y.unbind(-1)), dim=-1)

    def plain(t: float, y: Array) -> Array:
        return np.array(equations(*y))

    return field, plain


def _robertson(a: Any, b: Any, c: Any) -> tuple[Any, ...]:
    slow, back, fast = 0.04 * a, 1e4 * b * c, 3e7 * b * b
    return back - slow, slow - back - fast, fast


def _hires(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> tuple[Any, ...]:
    bound = 280.0 * f * h
    return (
        -1.71 * a + 0.43 * b + 8.32 * c + 0.0007,
        1.71 * a - 8.75 * b,
        -10.03 * c + 0.43 * d + 0.035 * e,
        8.32 * b + 1.71 * c - 1.12 * d,
        -1.745 * e + 0.43 * f + 0.43 * g,
        -bound + 0.69 * d + 1.71 * e - 0.43 * f + 0.69 * g,
        bound - 1.81 * g,
        -bound + 1.81 * g,
    )


def _van_der_pol(x: Any, v: Any) -> tuple[Any, ...]:
    return v, 1e6 * ((1 - x * x) * v - x)


def _oregonator(a: Any, b: Any, c: Any) -> tuple[Any, ...]:
    return (
        77.27 * (b + a * (1 - 8.375e-6 * a - b)),
        (c - (1 + a) * b) / 77.27,
        0.161 * (a - c),
    )


def _diffusion(y: Any, left: Any, right: Any, cat: Callable[..., Any]) -> Any:
    """Return second differences along the last dimension, with values beyond both ends."""
    padded = cat((left, y, right), -1)
    return padded[..., 2:] - 2 * y + padded[..., :-2]


def _brusselator(points: int) -> StiffProblem:
    scale = (points + 1) ** 2 / 50

    def reaction(y: Any, cat: Callable[..., Any], like: Callable[..., Any]) -> tuple[Any, Any]:
        u, v = y[..., 0::2], y[..., 1::2]
        ones, threes = like(u[..., :1]), 3 * like(u[..., :1])
        rate = u * u * v
        return (
            1 + rate - 4 * u + scale * _diffusion(u, ones, ones, cat),
            3 * u - rate + scale * _diffusion(v, threes, threes, cat),
        )

    def field(t: Any, y: Tensor) -> Tensor:
        return torch.stack(reaction(y, torch.cat, torch.ones_like), dim=-1).flatten(-2)

    def plain(t: float, y: Array) -> Array:
        return np.stack(reaction(y, np.concatenate, np.ones_like), axis=-1).reshape(-1)

    x = np.arange(1, points + 1) / (points + 1)
    start = np.stack((1 + np.sin(2 * np.pi * x), np.full_like(x, 3.0)), axis=-1).reshape(-1)
    return StiffProblem(f"Brusselator, {points} points", field, plain, start, 10.0)


def _heat(points: int) -> StiffProblem:
    scale = float((points + 1) ** 2)

    def field(t: Any, y: Tensor) -> Tensor:
        ends = torch.zeros_like(y[..., :1])
        return scale * _diffusion(y, ends, ends, torch.cat)

    def plain(t: float, y: Array) -> Array:
        ends = np.zeros_like(y[..., :1])
        return scale * _diffusion(y, ends, ends, np.concatenate)

    x = np.arange(1, points + 1) / (points + 1)
    start = np.sin(np.pi * x) + 0.5 * (np.abs(x - 0.5) < 0.2)
    return StiffProblem(f"heat, {points} points", field, plain, start, 0.5)


def problems(quick: bool) -> list[StiffProblem]:
    """Return the test set; the first two problems if `quick`."""
    small = [
        StiffProblem("Robertson", *_both(_robertson), np.array([1.0, 0, 0]), 1e11, 1e-4),
        StiffProblem("HIRES", *_both(_hires), np.array([1.0, 0, 0, 0, 0, 0, 0, 0.0057]), 321.8122),
    ]
    if quick:
        return small
    return [
        *small,
        StiffProblem("Van der Pol", *_both(_van_der_pol), np.array([2.0, 0.0]), 2.0),
        StiffProblem("Oregonator", *_both(_oregonator), np.array([1.0, 2.0, 3.0]), 360.0),
        _brusselator(40),
        _heat(300),
    ]
