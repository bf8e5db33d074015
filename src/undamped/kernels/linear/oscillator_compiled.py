"""Driven linear oscillators for the CPU, compiled by Numba; see `unicornn.compiled` for the form.

Only positions are written. On the backward pass velocities are wanted too: where nothing damps them
(a = 1) they are found going back, from the one at the end; otherwise `velocities` runs a chunk
again from the one kept at its start.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from undamped.kernels.shared.jit import njit
from undamped.kernels.unicornn.compiled import BLOCK, OPTIONS

# Rows of the block's own array: a, k, f, s, position, velocity, their gradients, sums.
A, K, F, S, X, Z, REMAINING = (row * BLOCK for row in range(7))
GX, GZ, GA, GK, GF, GS = (row * BLOCK for row in range(7, 13))
ROWS = 13


@njit(**OPTIONS)
def _load(
    block: Any, coefficients: Any, x: Any, z: Any, remaining: Any, at: int, width: int
) -> None:
    hidden = coefficients.shape[1]
    for j in range(width):
        h = (at + j) % hidden
        for k in range(4):
            block[A + k * BLOCK + j] = coefficients[k, h]
            block[GA + k * BLOCK + j] = 0
        block[X + j] = x[at + j]
        block[Z + j] = z[at + j]
        block[REMAINING + j] = remaining[at + j]


@cache
def forward(masked: bool) -> Callable[..., None]:
    """z' = a z − k x + f u, x' = x + s z'; positions are written."""

    @njit(**OPTIONS)
    def forced_forward(
        inputs: Any,  # (steps, columns)
        coefficients: Any,  # (a, k, f, s; hidden)
        outputs: Any,  # (steps, columns)
        x: Any,  # (columns,)
        z: Any,
        remaining: Any,
        low: int,
        high: int,
    ) -> None:
        block = np.empty(ROWS * BLOCK, inputs.dtype)
        zero = inputs.dtype.type(0)
        for at in range(low, high, BLOCK):
            width = min(BLOCK, high - at)
            _load(block, coefficients, x, z, remaining, at, width)
            for t in range(inputs.shape[0]):
                row, out = inputs[t, at : at + width], outputs[t, at : at + width]
                for j in range(width):
                    x0, z0 = block[X + j], block[Z + j]
                    z1 = block[A + j] * z0 + (block[F + j] * row[j] - block[K + j] * x0)
                    x1 = x0 + block[S + j] * z1
                    if masked:
                        live = t < block[REMAINING + j]
                        block[X + j] = x1 if live else x0
                        block[Z + j] = z1 if live else z0
                        out[j] = x1 if live else zero
                    else:
                        block[X + j], block[Z + j] = x1, z1
                        out[j] = x1
            for j in range(width):
                x[at + j], z[at + j] = block[X + j], block[Z + j]

    return forced_forward


@cache
def velocities(masked: bool) -> Callable[..., None]:
    """The scan of a chunk again, positions known: writes the velocity before every step."""

    @njit(**OPTIONS)
    def driven_velocities(
        inputs: Any,
        outputs: Any,
        coefficients: Any,
        found: Any,  # (steps, columns)
        first: Any,  # (columns,) the position before the first step
        z: Any,
        remaining: Any,
        low: int,
        high: int,
    ) -> None:
        block = np.empty(ROWS * BLOCK, inputs.dtype)
        for at in range(low, high, BLOCK):
            width = min(BLOCK, high - at)
            _load(block, coefficients, first, z, remaining, at, width)
            for t in range(inputs.shape[0]):
                before = outputs[t - 1, at : at + width] if t > 0 else first[at : at + width]
                row, out = inputs[t, at : at + width], found[t, at : at + width]
                for j in range(width):
                    z0 = block[Z + j]
                    out[j] = z0
                    z1 = block[A + j] * z0 + (block[F + j] * row[j] - block[K + j] * before[j])
                    if masked:
                        z1 = z1 if t < block[REMAINING + j] else z0
                    block[Z + j] = z1
            for j in range(width):
                z[at + j] = block[Z + j]

    return driven_velocities


@cache
def backward(reversible: bool, masked: bool) -> Callable[..., None]:
    """Gradients from the end to the start; `reversible` where every a is one."""

    @njit(**OPTIONS)
    def forced_backward(
        inputs: Any,
        outputs: Any,
        grad: Any,
        grad_inputs: Any,
        before_steps: Any,  # velocities before every step, (steps, columns); unread if reversible
        first: Any,  # (columns,) the position before the first step
        coefficients: Any,
        z: Any,  # (columns,) the velocity after the last step; before the first in the end
        gx: Any,
        gz: Any,
        sums: Any,  # (a, k, f, s; columns) in double precision
        remaining: Any,
        low: int,
        high: int,
    ) -> None:
        block = np.empty(ROWS * BLOCK, inputs.dtype)
        zero = inputs.dtype.type(0)
        for at in range(low, high, BLOCK):
            width = min(BLOCK, high - at)
            _load(block, coefficients, first, z, remaining, at, width)
            for j in range(width):
                block[GX + j], block[GZ + j] = gx[at + j], gz[at + j]
            for back in range(inputs.shape[0]):
                t = inputs.shape[0] - 1 - back
                before = outputs[t - 1, at : at + width] if t > 0 else first[at : at + width]
                row, grad_row = inputs[t, at : at + width], grad[t, at : at + width]
                out = grad_inputs[t, at : at + width]
                velocity = before_steps[t % before_steps.shape[0], at : at + width]
                for j in range(width):
                    u, x0, z1 = row[j], before[j], block[Z + j]
                    f, k, a, s = block[F + j], block[K + j], block[A + j], block[S + j]
                    z0 = z1 - (f * u - k * x0) if reversible else velocity[j]
                    gx1 = block[GX + j] + grad_row[j]
                    gz1 = block[GZ + j] + s * gx1
                    if masked:
                        live = t < block[REMAINING + j]
                        block[Z + j] = z0 if live else z1
                        block[GX + j] = gx1 - k * gz1 if live else block[GX + j]
                        block[GZ + j] = a * gz1 if live else block[GZ + j]
                        gx1 = gx1 if live else zero
                        gz1 = gz1 if live else zero
                        u = u if live else zero
                        x0 = x0 if live else zero
                        z0 = z0 if live else zero
                    else:
                        block[Z + j] = z0
                        block[GX + j] = gx1 - k * gz1
                        block[GZ + j] = a * gz1
                    out[j] = f * gz1
                    block[GA + j] += gz1 * z0
                    block[GK + j] -= gz1 * x0
                    block[GF + j] += gz1 * u
                    block[GS + j] += gx1 * z1
            for j in range(width):
                z[at + j], gx[at + j], gz[at + j] = block[Z + j], block[GX + j], block[GZ + j]
                for k in range(4):
                    sums[k, at + j] += block[GA + k * BLOCK + j]

    return forced_backward
