"""A factor for every feature, for the CPU, compiled by Numba."""

from __future__ import annotations

from typing import Any

import numpy as np

from undamped.kernels.shared.jit import KERNEL, njit

SUMMED = 256
"""Rows that are summed in their own precision before the sum goes to that of all, in double."""


@njit(**KERNEL)
def add_scaled(factor: Any, rows: Any, out: Any, low: int, high: int) -> None:
    """Add factor ⊙ rows to `out`, for a range of rows."""
    for i in range(low, high):
        row, result = rows[i], out[i]
        for j in range(factor.shape[0]):
            result[j] += factor[j] * row[j]


@njit(**KERNEL)
def add_scaled_backward(
    factor: Any, rows: Any, gradient: Any, of_rows: Any, sums: Any, low: int, high: int
) -> None:
    """Write the gradient of `rows`, add that of the factor to `sums`; for a range of features."""
    width = high - low
    factors, total = factor[low:high], np.empty(width, rows.dtype)
    for start in range(0, rows.shape[0], SUMMED):
        for j in range(width):
            total[j] = 0
        for i in range(start, min(start + SUMMED, rows.shape[0])):
            grad, row, result = gradient[i, low:high], rows[i, low:high], of_rows[i, low:high]
            for j in range(width):
                total[j] += grad[j] * row[j]
            for j in range(width):
                result[j] = factors[j] * grad[j]
        for j in range(width):
            sums[low + j] += total[j]
