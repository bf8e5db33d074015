"""Normalisation of rows for the CPU, compiled by Numba; rows are shared by threads.

Sums may be taken in any order, which lets the compiler vectorise them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from undamped.kernels.shared.jit import njit
from undamped.kernels.unicornn.compiled import OPTIONS

SUMS = OPTIONS | {"fastmath": {"reassoc", "contract", "nsz"}}


@njit(**SUMS)
def forward(epsilon: float, e: Any, v: Any, scales: Any, low: int, high: int) -> None:
    """Write v and 1/√(variance + ε)."""
    number, size = e.dtype.type, e.shape[1]
    share = number(1 / size)
    for i in range(low, high):
        given, result = e[i], v[i]
        mean, variance = number(0), number(0)
        for j in range(size):
            mean += given[j]
        mean *= share
        for j in range(size):
            result[j] = given[j] - mean
            variance += result[j] * result[j]
        scale = number(1 / math.sqrt(variance * share + epsilon))
        for j in range(size):
            result[j] *= scale
        scales[i] = scale


@cache
def backward(passing: bool) -> Callable[..., None]:
    """The gradient of e, given that of v and, if `passing`, another one to be added."""

    @njit(**SUMS)
    def norm_backward(
        v: Any, scales: Any, gradient: Any, passed: Any, out: Any, low: int, high: int
    ) -> None:
        number, size = v.dtype.type, v.shape[1]
        share = number(1 / size)
        for i in range(low, high):
            shown, given, other, result = v[i], gradient[i], passed[i], out[i]
            mean, along = number(0), number(0)
            for j in range(size):
                mean += given[j]
                along += given[j] * shown[j]
            mean, along, scale = mean * share, along * share, scales[i]
            for j in range(size):
                change = scale * (given[j] - mean - shown[j] * along)
                result[j] = other[j] + change if passing else change

    return norm_backward
