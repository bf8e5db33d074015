"""UnICORNN's scan over time for the CPU, compiled by Numba.

A kernel goes through `steps` rows of (steps, columns), where a column is one neuron of one
sequence: columns = batch × hidden, all independent. It handles the columns from `low` to `high` in
blocks whose state stays in the first-level cache; the innermost loop runs over a block and
vectorises.

Two things look odd and are deliberate. Whatever belongs to a block (weights, state, sums) lies
in one small array at constant distances: then the compiler has only a few pairs of arrays that
might overlap, and vectorises; with an array for each it gives up. And `projected` is overwritten
(by the positions, or by the values of tanh): the same reason, and half the memory traffic.

`remaining` (columns) holds how many of these steps each column still lives; `masked` kernels leave
a column alone after that, the others do not look at it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from undamped.kernels.shared.jit import njit
from undamped.kernels.shared.tanh import tanh

BLOCK = 256
# Rows of the block's own array.
W, S, B, Y, Z, REMAINING = 0, BLOCK, 2 * BLOCK, 3 * BLOCK, 4 * BLOCK, 5 * BLOCK
GY, GZ, GW, GS, GB = 6 * BLOCK, 7 * BLOCK, 8 * BLOCK, 9 * BLOCK, 10 * BLOCK
ROWS = 11
OPTIONS: dict[str, Any] = {
    "nogil": True,
    "cache": True,
    "fastmath": {"contract"},
    "error_model": "numpy",
    "boundscheck": False,
}


@njit(**OPTIONS)
def _load(
    block: Any,
    weight: Any,
    step: Any,
    bias: Any,
    y: Any,
    z: Any,
    remaining: Any,
    at: int,
    width: int,
) -> None:
    hidden = weight.shape[0]
    for j in range(width):
        h = (at + j) % hidden
        block[W + j] = weight[h]
        block[S + j] = step[h]
        block[B + j] = bias[h]
        block[Y + j] = y[at + j]
        block[Z + j] = z[at + j]
        block[REMAINING + j] = remaining[at + j]


@njit(**OPTIONS)
def _save(block: Any, y: Any, z: Any, at: int, width: int) -> None:
    for j in range(width):
        y[at + j] = block[Y + j]
        z[at + j] = block[Z + j]


@cache
def forward(masked: bool) -> Callable[..., None]:
    """The scan; positions are written over `projected`."""

    @njit(**OPTIONS)
    def oscillator_forward(
        projected: Any,
        weight: Any,
        step: Any,
        bias: Any,
        alpha: Any,
        y: Any,
        z: Any,
        remaining: Any,
        low: int,
        high: int,
    ) -> None:
        block = np.empty(ROWS * BLOCK, projected.dtype)
        zero = projected.dtype.type(0)
        for at in range(low, high, BLOCK):
            width = min(BLOCK, high - at)
            _load(block, weight, step, bias, y, z, remaining, at, width)
            for t in range(projected.shape[0]):
                row = projected[t, at : at + width]
                for j in range(width):
                    y0 = block[Y + j]
                    z0 = block[Z + j]
                    s = block[S + j]
                    tanh_value = tanh(block[W + j] * y0 + (row[j] + block[B + j]))
                    z1 = z0 - s * (tanh_value + alpha * y0)
                    y1 = y0 + s * z1
                    if masked:
                        live = t < block[REMAINING + j]
                        block[Y + j] = y1 if live else y0
                        block[Z + j] = z1 if live else z0
                        row[j] = y1 if live else zero
                    else:
                        block[Y + j] = y1
                        block[Z + j] = z1
                        row[j] = y1
            _save(block, y, z, at, width)

    return oscillator_forward


@cache
def forward_keep(masked: bool, known: bool = False) -> Callable[..., None]:
    """The scan; the values of tanh are written over `projected`, positions into their own.

    With `known` they are there already and are read: a scan done again, without its tanh.
    """

    @njit(**OPTIONS)
    def oscillator_forward_keep(
        projected: Any,
        positions: Any,
        weight: Any,
        step: Any,
        bias: Any,
        alpha: Any,
        y: Any,
        z: Any,
        remaining: Any,
        low: int,
        high: int,
    ) -> None:
        block = np.empty(ROWS * BLOCK, projected.dtype)
        zero = projected.dtype.type(0)
        for at in range(low, high, BLOCK):
            width = min(BLOCK, high - at)
            _load(block, weight, step, bias, y, z, remaining, at, width)
            for t in range(projected.shape[0]):
                row, out = projected[t, at : at + width], positions[t, at : at + width]
                for j in range(width):
                    y0 = block[Y + j]
                    z0 = block[Z + j]
                    s = block[S + j]
                    if known:
                        tanh_value = row[j]
                    else:
                        tanh_value = tanh(block[W + j] * y0 + (row[j] + block[B + j]))
                        row[j] = tanh_value
                    z1 = z0 - s * (tanh_value + alpha * y0)
                    y1 = y0 + s * z1
                    if masked:
                        live = t < block[REMAINING + j]
                        block[Y + j] = y1 if live else y0
                        block[Z + j] = z1 if live else z0
                        out[j] = y1 if live else zero
                    else:
                        block[Y + j] = y1
                        block[Z + j] = z1
                        out[j] = y1
            _save(block, y, z, at, width)

    return oscillator_forward_keep


@cache
def inverse(masked: bool) -> Callable[..., None]:
    """The scan backwards in time (eq. 7), from the state at the end to the one at the start.

    Like `forward_keep` it leaves tanh in `projected` and the positions in their own array.
    """

    @njit(**OPTIONS)
    def oscillator_inverse(
        projected: Any,
        positions: Any,
        weight: Any,
        step: Any,
        bias: Any,
        alpha: Any,
        y: Any,
        z: Any,
        remaining: Any,
        low: int,
        high: int,
    ) -> None:
        block = np.empty(ROWS * BLOCK, projected.dtype)
        zero = projected.dtype.type(0)
        for at in range(low, high, BLOCK):
            width = min(BLOCK, high - at)
            _load(block, weight, step, bias, y, z, remaining, at, width)
            for back in range(projected.shape[0]):
                t = projected.shape[0] - 1 - back
                row, out = projected[t, at : at + width], positions[t, at : at + width]
                for j in range(width):
                    y1 = block[Y + j]
                    z1 = block[Z + j]
                    s = block[S + j]
                    y0 = y1 - s * z1
                    tanh_value = tanh(block[W + j] * y0 + (row[j] + block[B + j]))
                    z0 = z1 + s * (tanh_value + alpha * y0)
                    row[j] = tanh_value
                    if masked:
                        live = t < block[REMAINING + j]
                        block[Y + j] = y0 if live else y1
                        block[Z + j] = z0 if live else z1
                        out[j] = y1 if live else zero
                    else:
                        block[Y + j] = y0
                        block[Z + j] = z0
                        out[j] = y1
            _save(block, y, z, at, width)

    return oscillator_inverse


@cache
def backward(masked: bool) -> Callable[..., None]:
    """Gradients, from the end to the start.

    Takes the positions, the values of tanh, the positions `first` before the first step and the
    velocity `z` after the last; gradients of the outputs come in `grad`, gradients of the
    projection go out in `grad_projected`, gradients of the state are carried in `gy` and `gz`,
    and those of weight, step and bias are added to (columns) sums.
    """

    @njit(**OPTIONS)
    def oscillator_backward(
        positions: Any,
        tanh_values: Any,
        grad: Any,
        grad_projected: Any,
        first: Any,
        weight: Any,
        step: Any,
        alpha: Any,
        z: Any,
        gy: Any,
        gz: Any,
        grad_weight: Any,
        grad_step: Any,
        grad_bias: Any,
        remaining: Any,
        low: int,
        high: int,
    ) -> None:
        block = np.empty(ROWS * BLOCK, positions.dtype)
        # Typed, because a whole number would lift the sum to float64.
        zero, unit = positions.dtype.type(0), positions.dtype.type(1)
        for at in range(low, high, BLOCK):
            width = min(BLOCK, high - at)
            _load(block, weight, step, step, gy, z, remaining, at, width)
            for j in range(width):
                block[GY + j] = gy[at + j]
                block[GZ + j] = gz[at + j]
                block[GW + j] = zero
                block[GS + j] = zero
                block[GB + j] = zero
            for back in range(positions.shape[0]):
                t = positions.shape[0] - 1 - back
                before = positions[t - 1, at : at + width] if t > 0 else first[at : at + width]
                curve_row, grad_row = tanh_values[t, at : at + width], grad[t, at : at + width]
                out = grad_projected[t, at : at + width]
                for j in range(width):
                    s = block[S + j]
                    y0 = before[j]
                    tanh_value = curve_row[j]
                    force = tanh_value + alpha * y0
                    z1 = block[Z + j]
                    gy1 = block[GY + j] + grad_row[j]
                    gz1 = block[GZ + j] + s * gy1
                    inner = -s * gz1
                    ga = inner * (unit - tanh_value * tanh_value)
                    gs = gy1 * z1 - gz1 * force
                    gy0 = gy1 + (inner * alpha + ga * block[W + j])
                    if masked:
                        live = t < block[REMAINING + j]
                        ga = ga if live else zero
                        block[GS + j] += gs if live else zero
                        block[GW + j] += ga * y0 if live else zero
                        block[GY + j] = gy0 if live else block[GY + j]
                        block[GZ + j] = gz1 if live else block[GZ + j]
                        block[Z + j] = z1 + s * force if live else z1
                    else:
                        block[GS + j] += gs
                        block[GW + j] += ga * y0
                        block[GY + j] = gy0
                        block[GZ + j] = gz1
                        block[Z + j] = z1 + s * force
                    block[GB + j] += ga
                    out[j] = ga
            for j in range(width):
                gy[at + j] = block[GY + j]
                gz[at + j] = block[GZ + j]
                grad_weight[at + j] += block[GW + j]
                grad_step[at + j] += block[GS + j]
                grad_bias[at + j] += block[GB + j]

    return oscillator_backward
