"""Functions of rows for the CPU, compiled by Numba: normalisation, gelu, gated linear unit.

A row is one sequence at one time, and a row of the masks belongs to a sequence. Each loop writes
one array and reads few, so that the compiler vectorises it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba.extending import register_jitable

from undamped.kernels.shared.jit import KERNEL, PART, njit
from undamped.kernels.shared.tanh import sigmoid

SLOPE, CUBE = math.sqrt(2 / math.pi), 0.044715
FLAT = 12.0
"""Where gelu's slope is 0 or 1 in every precision; the cube of larger numbers may overflow."""
SUMMED = 256
"""Rows that are summed in their own precision before their sum is added to the total, in double."""
# Inlined: a call would take as long as a short row.
row_function: Any = register_jitable(**PART, fastmath={"contract"}, forceinline=True)
row_sum: Any = register_jitable(**PART, fastmath={"reassoc", "contract", "nsz"}, forceinline=True)
"""For sums in arbitrary order, which the compiler can vectorise."""


@row_sum
def normalise_row(epsilon: float, row: Any, result: Any) -> Any:
    """Write v = (row − mean)/√(variance + ε), and return 1/√(variance + ε)."""
    number, size = row.dtype.type, row.shape[0]
    weight = number(1 / size)  # a division in the loop would not be vectorised
    mean, variance = number(0), number(0)
    for j in range(size):
        mean += row[j]
    mean *= weight
    for j in range(size):
        result[j] = row[j] - mean
        variance += result[j] * result[j]
    scale = number(1 / math.sqrt(variance * weight + epsilon))
    for j in range(size):
        result[j] *= scale
    return scale


@row_sum
def normalise_row_backward(
    v: Any, scale: Any, gradient: Any, grad_e: Any, adds: bool, result: Any
) -> None:
    """Write the gradient of e from that of v; with `adds`, add another gradient."""
    number, size = v.dtype.type, v.shape[0]
    weight = number(1 / size)
    mean, along = number(0), number(0)
    for j in range(size):
        mean += gradient[j]
        along += gradient[j] * v[j]
    mean, along = mean * weight, along * weight
    for j in range(size):
        change = scale * (gradient[j] - mean - v[j] * along)
        result[j] = grad_e[j] + change if adds else change


@row_function
def gelu_row(r: Any, mask: Any, result: Any) -> None:
    """r/2 (1 + tanh(√(2/π) (r + 0.044715 r³))), times the mask."""
    number = r.dtype.type
    double_slope, cube = number(2 * SLOPE), number(CUBE)
    for j in range(r.shape[0]):
        v = r[j]
        result[j] = mask[j] * v * sigmoid(double_slope * (v + cube * v * v * v))


@row_function
def gelu_row_backward(r: Any, mask: Any, gradient: Any) -> None:
    """Replace the gradient of the result of `gelu_row` by that of r."""
    number = r.dtype.type
    unit, three, cube, double_slope = number(1), number(3), number(CUBE), number(2 * SLOPE)
    flat = number(FLAT)
    for j in range(r.shape[0]):
        v = -flat if r[j] < -flat else r[j]
        v = flat if v > flat else v
        square = cube * v * v
        gate = sigmoid(double_slope * v * (unit + square))
        rise = double_slope * v * (unit + three * square) * (unit - gate)
        gradient[j] *= mask[j] * gate * (unit + rise)


@row_function
def gated_row(pair: Any, bias: Any, mask: Any, e: Any, result: Any) -> None:
    """Add the bias to `pair`; e plus its first half times the sigmoid of its second and the mask.

    The bias is added here because a product with a bias first writes it to all rows.
    """
    size = e.shape[0]
    for j in range(2 * size):
        pair[j] += bias[j]
    for j in range(size):
        result[j] = e[j] + mask[j] * pair[j] * sigmoid(pair[size + j])


@row_function
def gated_row_backward(pair: Any, mask: Any, gradient: Any, gates: Any, result: Any) -> None:
    """Write the gradient of `pair`; `gates` is a buffer for a row.

    The buffer is needed because a loop that reads the array it writes is not vectorised.
    """
    size, unit = gradient.shape[0], gradient.dtype.type(1)
    for j in range(size):
        gates[j] = sigmoid(pair[size + j])
    for j in range(size):
        result[j] = gradient[j] * mask[j] * gates[j]
    for j in range(size):
        result[size + j] = gradient[j] * mask[j] * gates[j] * pair[j] * (unit - gates[j])


# For all rows from `low` to `high`; threads divide them.


@njit(**KERNEL)
def normalise(epsilon: float, e: Any, v: Any, scales: Any, low: int, high: int) -> None:
    """`normalise_row` for a range of rows."""
    for i in range(low, high):
        scales[i] = normalise_row(epsilon, e[i], v[i])


@njit(**KERNEL)
def normalise_backward(
    v: Any, scales: Any, gradient: Any, grad_e: Any, adds: bool, out: Any, low: int, high: int
) -> None:
    """`normalise_row_backward` for a range of rows."""
    for i in range(low, high):
        normalise_row_backward(v[i], scales[i], gradient[i], grad_e[i], adds, out[i])


@njit(**KERNEL)
def gelu(r: Any, mask: Any, out: Any, low: int, high: int) -> None:
    """`gelu_row` for a range of rows."""
    for i in range(low, high):
        gelu_row(r[i], mask[i % mask.shape[0]], out[i])


@njit(**KERNEL)
def gelu_backward(r: Any, mask: Any, gradient: Any, low: int, high: int) -> None:
    """`gelu_row_backward` for a range of rows."""
    for i in range(low, high):
        gelu_row_backward(r[i], mask[i % mask.shape[0]], gradient[i])


@njit(**KERNEL)
def gated(both: Any, bias: Any, mask: Any, e: Any, out: Any, low: int, high: int) -> None:
    """`gated_row` for a range of rows."""
    for i in range(low, high):
        gated_row(both[i], bias, mask[i % mask.shape[0]], e[i], out[i])


@njit(**KERNEL)
def gated_backward(both: Any, mask: Any, gradient: Any, out: Any, low: int, high: int) -> None:
    """`gated_row_backward` for a range of rows."""
    gates = np.empty(gradient.shape[1], gradient.dtype)
    for i in range(low, high):
        gated_row_backward(both[i], mask[i % mask.shape[0]], gradient[i], gates, out[i])


@njit(**KERNEL)
def add_scaled(factor: Any, rows: Any, out: Any, low: int, high: int) -> None:
    """Add factor ⊙ rows to `out`."""
    for i in range(low, high):
        row, result = rows[i], out[i]
        for j in range(factor.shape[0]):
            result[j] += factor[j] * row[j]


@njit(**KERNEL)
def add_scaled_backward(
    factor: Any, rows: Any, gradient: Any, grad_rows: Any, sums: Any, low: int, high: int
) -> None:
    """Write the gradient of `rows`, add that of the factor to `sums`; for a range of features."""
    width = high - low
    factors, total = factor[low:high], np.empty(width, rows.dtype)
    for start in range(0, rows.shape[0], SUMMED):
        for j in range(width):
            total[j] = 0
        for i in range(start, min(start + SUMMED, rows.shape[0])):
            grad, row, result = gradient[i, low:high], rows[i, low:high], grad_rows[i, low:high]
            for j in range(width):
                total[j] += grad[j] * row[j]
            for j in range(width):
                result[j] = factors[j] * grad[j]
        for j in range(width):
            sums[low + j] += total[j]
