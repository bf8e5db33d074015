"""Normalisation of rows for the CPU, compiled by Numba; rows are shared by threads.

Sums may be taken in any order, which lets the compiler vectorise them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from undamped.kernels.shared.jit import KERNEL, PART, njit

ANY_ORDER: dict[str, Any] = {"fastmath": {"reassoc", "contract", "nsz"}}


@njit(**PART | ANY_ORDER)
def normalise_row(epsilon: float, row: Any, result: Any) -> Any:
    """Write v, and return 1/√(variance + ε)."""
    number, size = row.dtype.type, row.shape[0]
    share = number(1 / size)
    mean, variance = number(0), number(0)
    for j in range(size):
        mean += row[j]
    mean *= share
    for j in range(size):
        result[j] = row[j] - mean
        variance += result[j] * result[j]
    scale = number(1 / math.sqrt(variance * share + epsilon))
    for j in range(size):
        result[j] *= scale
    return scale


@njit(**PART | ANY_ORDER)
def row_backward(
    v: Any, scale: Any, gradient: Any, grad_e: Any, passing: bool, result: Any
) -> None:
    """Write the gradient of e, given that of v and, if `passing`, another one to be added."""
    number, size = v.dtype.type, v.shape[0]
    share = number(1 / size)
    mean, along = number(0), number(0)
    for j in range(size):
        mean += gradient[j]
        along += gradient[j] * v[j]
    mean, along = mean * share, along * share
    for j in range(size):
        change = scale * (gradient[j] - mean - v[j] * along)
        result[j] = grad_e[j] + change if passing else change


@njit(**KERNEL)
def forward(epsilon: float, e: Any, v: Any, scales: Any, low: int, high: int) -> None:
    """Write v and 1/√(variance + ε)."""
    for i in range(low, high):
        scales[i] = normalise_row(epsilon, e[i], v[i])


@cache
def backward(passing: bool) -> Callable[..., None]:
    """The gradient of e, given that of v and, if `passing`, another one to be added."""

    @njit(**KERNEL)
    def norm_backward(
        v: Any, scales: Any, gradient: Any, grad_e: Any, out: Any, low: int, high: int
    ) -> None:
        for i in range(low, high):
            row_backward(v[i], scales[i], gradient[i], grad_e[i], passing, out[i])

    return norm_backward
