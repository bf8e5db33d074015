"""gelu and the gated linear unit for the CPU, compiled by Numba; rows are shared by threads.

A row of the masks belongs to a sequence: rows are time × sequences. One array is written per loop,
and no loop reads more than a few: the compiler then vectorises it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from undamped.kernels.shared.jit import KERNEL, PART, njit
from undamped.kernels.shared.tanh import sigmoid

SLOPE, CUBE = math.sqrt(2 / math.pi), 0.044715
FLAT = 12.0
"""Where gelu's slope is 0 or 1 in every precision; the cube of larger numbers may overflow."""
ROW: dict[str, Any] = PART | {"fastmath": {"contract"}}


@njit(**ROW)
def gelu_row(r: Any, mask: Any, result: Any) -> None:
    """r/2 (1 + tanh(√(2/π) (r + 0.044715 r³))), times the mask."""
    number = r.dtype.type
    double_slope, cube = number(2 * SLOPE), number(CUBE)
    for j in range(r.shape[0]):
        v = r[j]
        result[j] = mask[j] * v * sigmoid(double_slope * (v + cube * v * v * v))


@njit(**ROW)
def gelu_row_backward(r: Any, mask: Any, gradient: Any) -> None:
    """Turn the gradient of what `gelu_row` gave into that of r, in place."""
    number = r.dtype.type
    unit, three, cube, double_slope = number(1), number(3), number(CUBE), number(2 * SLOPE)
    flat = number(FLAT)
    for j in range(r.shape[0]):
        v = -flat if r[j] < -flat else r[j]
        v = flat if v > flat else v
        square = cube * v * v
        share = sigmoid(double_slope * v * (unit + square))
        rise = double_slope * v * (unit + three * square) * (unit - share)
        gradient[j] *= mask[j] * share * (unit + rise)


@njit(**ROW)
def gated_row(pair: Any, bias: Any, mask: Any, e: Any, result: Any) -> None:
    """Add the bias to `pair`; e plus its first half times the sigmoid of its second and the mask.

    A product that adds a bias writes it to all rows before it begins; here it costs nothing.
    """
    size = e.shape[0]
    for j in range(2 * size):
        pair[j] += bias[j]
    for j in range(size):
        result[j] = e[j] + mask[j] * pair[j] * sigmoid(pair[size + j])


@njit(**ROW)
def gated_row_backward(pair: Any, mask: Any, gradient: Any, shares: Any, result: Any) -> None:
    """Write the gradient of `pair`; `shares` is room for a row.

    Of its own: what is read from the array that is written is not vectorised.
    """
    size, unit = gradient.shape[0], gradient.dtype.type(1)
    for j in range(size):
        shares[j] = sigmoid(pair[size + j])
    for j in range(size):
        result[j] = gradient[j] * mask[j] * shares[j]
    for j in range(size):
        result[size + j] = gradient[j] * mask[j] * shares[j] * pair[j] * (unit - shares[j])


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
    shares = np.empty(gradient.shape[1], gradient.dtype)
    for i in range(low, high):
        gated_row_backward(both[i], mask[i % mask.shape[0]], gradient[i], shares, out[i])
