"""Linear recurrences for the CPU, compiled by Numba; see `unicornn.compiled` for the form.

Coefficients are the same at every step (`fixed`, one set a unit) or come with the inputs
(`stepwise`, one set a step and column); a kernel reads one of the two, and of the other, one row
without columns, nothing. Outputs are the states, so
the backward pass needs nothing else, and on it the gradient of an input is the gradient of the
state it was added to.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from undamped.kernels.shared.jit import njit
from undamped.kernels.unicornn.compiled import BLOCK, OPTIONS

# Rows of the block's own array, for numbers …
A, H, REMAINING, GA = 0, BLOCK, 2 * BLOCK, 3 * BLOCK
ROWS = 4
# … and for pairs: a 2×2 matrix, the state, and sums for the gradient of the matrix.
M, S, PAIR_REMAINING, GM = 0, 4 * BLOCK, 6 * BLOCK, 7 * BLOCK
PAIR_ROWS = 11


@cache
def forward(per_step: bool, masked: bool) -> Callable[..., None]:
    """h' = a h + u."""

    @njit(**OPTIONS)
    def linear_forward(
        inputs: Any,  # (steps, columns)
        fixed: Any,  # (hidden,)
        stepwise: Any,  # (steps, columns)
        outputs: Any,  # (steps, columns)
        state: Any,  # (columns,)
        remaining: Any,
        low: int,
        high: int,
    ) -> None:
        block = np.empty(ROWS * BLOCK, inputs.dtype)
        zero = inputs.dtype.type(0)
        for at in range(low, high, BLOCK):
            width = min(BLOCK, high - at)
            for j in range(width):
                block[A + j] = zero if per_step else fixed[(at + j) % fixed.shape[0]]
                block[H + j] = state[at + j]
                block[REMAINING + j] = remaining[at + j]
            for t in range(inputs.shape[0]):
                row, out = inputs[t, at : at + width], outputs[t, at : at + width]
                factors = stepwise[t % stepwise.shape[0], at : at + width]
                for j in range(width):
                    h0 = block[H + j]
                    a = factors[j] if per_step else block[A + j]
                    h1 = a * h0 + row[j]
                    if masked:
                        live = t < block[REMAINING + j]
                        block[H + j] = h1 if live else h0
                        out[j] = h1 if live else zero
                    else:
                        block[H + j] = h1
                        out[j] = h1
            for j in range(width):
                state[at + j] = block[H + j]

    return linear_forward


@cache
def backward(per_step: bool, masked: bool) -> Callable[..., None]:
    """Gradients from the end to the start, from the states alone."""

    @njit(**OPTIONS)
    def linear_backward(
        outputs: Any,
        grad: Any,
        grad_inputs: Any,
        first: Any,  # (columns,) the state before the first step
        fixed: Any,
        stepwise: Any,
        state_gradient: Any,
        grad_fixed: Any,  # (columns,) sums in double precision
        grad_stepwise: Any,
        remaining: Any,
        low: int,
        high: int,
    ) -> None:
        block = np.empty(ROWS * BLOCK, outputs.dtype)
        zero = outputs.dtype.type(0)
        for at in range(low, high, BLOCK):
            width = min(BLOCK, high - at)
            for j in range(width):
                block[A + j] = zero if per_step else fixed[(at + j) % fixed.shape[0]]
                block[H + j] = state_gradient[at + j]
                block[REMAINING + j] = remaining[at + j]
                block[GA + j] = zero
            for back in range(outputs.shape[0]):
                t = outputs.shape[0] - 1 - back
                before = outputs[t - 1, at : at + width] if t > 0 else first[at : at + width]
                grad_row, out = grad[t, at : at + width], grad_inputs[t, at : at + width]
                factors = stepwise[t % stepwise.shape[0], at : at + width]
                grad_factors = grad_stepwise[t % grad_stepwise.shape[0], at : at + width]
                for j in range(width):
                    g1 = block[H + j] + grad_row[j]
                    a = factors[j] if per_step else block[A + j]
                    g0 = a * g1
                    ga = g1 * before[j]
                    if masked:
                        live = t < block[REMAINING + j]
                        g0 = g0 if live else block[H + j]
                        ga = ga if live else zero
                        g1 = g1 if live else zero
                    block[H + j] = g0
                    out[j] = g1
                    if per_step:
                        grad_factors[j] = ga
                    else:
                        block[GA + j] += ga
            for j in range(width):
                state_gradient[at + j] = block[H + j]
                grad_fixed[at + j] += block[GA + j]

    return linear_backward


@njit(**OPTIONS)
def _load_pairs(block: Any, fixed: Any, state: Any, remaining: Any, at: int, width: int) -> None:
    """Fill a block: matrices (hidden, 4), states (columns, 2) and what remains."""
    for j in range(width):
        h = (at + j) % fixed.shape[0]
        for k in range(4):
            block[M + k * BLOCK + j] = fixed[h, k]
            block[GM + k * BLOCK + j] = 0
        block[S + j] = state[at + j, 0]
        block[S + BLOCK + j] = state[at + j, 1]
        block[PAIR_REMAINING + j] = remaining[at + j]


@cache
def pair_forward(per_step: bool, complex_numbers: bool, masked: bool) -> Callable[..., None]:
    """(x, y)' = [[m₀, m₁], [m₂, m₃]] (x, y) + (u, v); two numbers lie side by side in memory.

    Where pairs stand for complex numbers, stepwise coefficients are (a, b) in place of the matrix
    [[a, −b], [b, a]].
    """
    size = 2 if complex_numbers else 4

    @njit(**OPTIONS)
    def pair_linear_forward(
        inputs: Any,  # (steps, 2 × columns)
        fixed: Any,  # (hidden, 4)
        stepwise: Any,  # (steps, size × columns)
        outputs: Any,  # (steps, 2 × columns)
        state: Any,  # (columns, 2)
        remaining: Any,
        low: int,
        high: int,
    ) -> None:
        block = np.empty(PAIR_ROWS * BLOCK, inputs.dtype)
        zero = inputs.dtype.type(0)
        for at in range(low, high, BLOCK):
            width = min(BLOCK, high - at)
            _load_pairs(block, fixed, state, remaining, at, width)
            for t in range(inputs.shape[0]):
                row = inputs[t, 2 * at : 2 * (at + width)]
                out = outputs[t, 2 * at : 2 * (at + width)]
                factors = stepwise[t % stepwise.shape[0], size * at : size * (at + width)]
                for j in range(width):
                    x0, y0 = block[S + j], block[S + BLOCK + j]
                    if not per_step:
                        m0, m1 = block[M + j], block[M + BLOCK + j]
                        m2, m3 = block[M + 2 * BLOCK + j], block[M + 3 * BLOCK + j]
                    elif complex_numbers:
                        m0, m2 = factors[2 * j], factors[2 * j + 1]
                        m1, m3 = -m2, m0
                    else:
                        m0, m1 = factors[4 * j], factors[4 * j + 1]
                        m2, m3 = factors[4 * j + 2], factors[4 * j + 3]
                    x1 = m0 * x0 + (m1 * y0 + row[2 * j])
                    y1 = m2 * x0 + (m3 * y0 + row[2 * j + 1])
                    if masked:
                        live = t < block[PAIR_REMAINING + j]
                        block[S + j] = x1 if live else x0
                        block[S + BLOCK + j] = y1 if live else y0
                        out[2 * j] = x1 if live else zero
                        out[2 * j + 1] = y1 if live else zero
                    else:
                        block[S + j], block[S + BLOCK + j] = x1, y1
                        out[2 * j], out[2 * j + 1] = x1, y1
            for j in range(width):
                state[at + j, 0], state[at + j, 1] = block[S + j], block[S + BLOCK + j]

    return pair_linear_forward


@cache
def pair_backward(per_step: bool, complex_numbers: bool, masked: bool) -> Callable[..., None]:
    """Gradients of `pair_forward` from the end to the start, from the states alone."""
    size = 2 if complex_numbers else 4

    @njit(**OPTIONS)
    def pair_linear_backward(
        outputs: Any,
        grad: Any,
        grad_inputs: Any,
        first: Any,  # (2 × columns,) the state before the first step
        fixed: Any,
        stepwise: Any,
        state_gradient: Any,  # (columns, 2)
        grad_fixed: Any,  # (4, columns) sums in double precision
        grad_stepwise: Any,
        remaining: Any,
        low: int,
        high: int,
    ) -> None:
        block = np.empty(PAIR_ROWS * BLOCK, outputs.dtype)
        zero = outputs.dtype.type(0)
        for at in range(low, high, BLOCK):
            width = min(BLOCK, high - at)
            _load_pairs(block, fixed, state_gradient, remaining, at, width)
            for back in range(outputs.shape[0]):
                t = outputs.shape[0] - 1 - back
                columns = slice(2 * at, 2 * (at + width))
                before = outputs[t - 1, columns] if t > 0 else first[columns]
                grad_row, out = grad[t, columns], grad_inputs[t, columns]
                each = slice(size * at, size * (at + width))
                factors = stepwise[t % stepwise.shape[0], each]
                grad_factors = grad_stepwise[t % grad_stepwise.shape[0], each]
                for j in range(width):
                    x0, y0 = before[2 * j], before[2 * j + 1]
                    gx, gy = block[S + j], block[S + BLOCK + j]
                    gx1, gy1 = gx + grad_row[2 * j], gy + grad_row[2 * j + 1]
                    if not per_step:
                        m0, m1 = block[M + j], block[M + BLOCK + j]
                        m2, m3 = block[M + 2 * BLOCK + j], block[M + 3 * BLOCK + j]
                    elif complex_numbers:
                        m0, m2 = factors[2 * j], factors[2 * j + 1]
                        m1, m3 = -m2, m0
                    else:
                        m0, m1 = factors[4 * j], factors[4 * j + 1]
                        m2, m3 = factors[4 * j + 2], factors[4 * j + 3]
                    gx0 = m0 * gx1 + m2 * gy1
                    gy0 = m1 * gx1 + m3 * gy1
                    if masked:
                        live = t < block[PAIR_REMAINING + j]
                        gx0 = gx0 if live else gx
                        gy0 = gy0 if live else gy
                        gx1 = gx1 if live else zero
                        gy1 = gy1 if live else zero
                        x0 = x0 if live else zero
                        y0 = y0 if live else zero
                    block[S + j], block[S + BLOCK + j] = gx0, gy0
                    out[2 * j], out[2 * j + 1] = gx1, gy1
                    if not per_step:
                        block[GM + j] += gx1 * x0
                        block[GM + BLOCK + j] += gx1 * y0
                        block[GM + 2 * BLOCK + j] += gy1 * x0
                        block[GM + 3 * BLOCK + j] += gy1 * y0
                    elif complex_numbers:
                        grad_factors[2 * j] = gx1 * x0 + gy1 * y0
                        grad_factors[2 * j + 1] = gy1 * x0 - gx1 * y0
                    else:
                        grad_factors[4 * j] = gx1 * x0
                        grad_factors[4 * j + 1] = gx1 * y0
                        grad_factors[4 * j + 2] = gy1 * x0
                        grad_factors[4 * j + 3] = gy1 * y0
            for j in range(width):
                state_gradient[at + j, 0] = block[S + j]
                state_gradient[at + j, 1] = block[S + BLOCK + j]
                for k in range(4):
                    grad_fixed[k, at + j] += block[GM + k * BLOCK + j]

    return pair_linear_backward
