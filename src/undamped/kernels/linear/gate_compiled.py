"""gelu and the gated linear unit for the CPU, compiled by Numba; rows are shared by threads.

A row of the masks belongs to a sequence: rows are time × sequences. One array is written per loop,
and no loop reads more than a few: the compiler then vectorises it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from undamped.kernels.shared.jit import njit
from undamped.kernels.shared.tanh import sigmoid, tanh
from undamped.kernels.unicornn.compiled import OPTIONS

SLOPE, CUBE = math.sqrt(2 / math.pi), 0.044715


@njit(**OPTIONS)
def gelu(r: Any, mask: Any, out: Any, low: int, high: int) -> None:
    """r/2 (1 + tanh(√(2/π) (r + 0.044715 r³))), times the mask."""
    number = r.dtype.type
    half, one, slope, cube = number(0.5), number(1), number(SLOPE), number(CUBE)
    for i in range(low, high):
        x, m, result = r[i], mask[i % mask.shape[0]], out[i]
        for j in range(r.shape[1]):
            v = x[j]
            result[j] = m[j] * half * v * (one + tanh(slope * (v + cube * v * v * v)))


@njit(**OPTIONS)
def gelu_backward(r: Any, mask: Any, gradient: Any, low: int, high: int) -> None:
    """Turn the gradient of what `gelu` gave into that of r, in place."""
    number = r.dtype.type
    half, one, slope, cube = number(0.5), number(1), number(SLOPE), number(CUBE)
    three = number(3)
    for i in range(low, high):
        x, m, result = r[i], mask[i % mask.shape[0]], gradient[i]
        for j in range(r.shape[1]):
            v = x[j]
            square = v * v
            bent = tanh(slope * v * (one + cube * square))
            rise = slope * (one + three * cube * square) * (one - bent * bent)
            result[j] *= m[j] * half * (one + bent + v * rise)


@njit(**OPTIONS)
def gated(both: Any, bias: Any, mask: Any, e: Any, out: Any, low: int, high: int) -> None:
    """Add the bias to `both`; e plus its first half times the sigmoid of its second and the mask.

    A product that adds a bias writes it to all rows before it begins; here it costs nothing.
    """
    size = e.shape[1]
    for i in range(low, high):
        pair, m, given, result = both[i], mask[i % mask.shape[0]], e[i], out[i]
        for j in range(2 * size):
            pair[j] += bias[j]
        for j in range(size):
            result[j] = given[j] + m[j] * pair[j] * sigmoid(pair[size + j])


@njit(**OPTIONS)
def gated_backward(both: Any, mask: Any, gradient: Any, out: Any, low: int, high: int) -> None:
    """Write the gradient of `both`."""
    size, one = gradient.shape[1], gradient.dtype.type(1)
    # Of its own: what is read from the array that is written is not vectorised.
    shares = np.empty(size, gradient.dtype)
    for i in range(low, high):
        pair, m, given, result = both[i], mask[i % mask.shape[0]], gradient[i], out[i]
        for j in range(size):
            shares[j] = sigmoid(pair[size + j])
        for j in range(size):
            result[j] = given[j] * m[j] * shares[j]
        for j in range(size):
            result[size + j] = given[j] * m[j] * shares[j] * pair[j] * (one - shares[j])
