"""IndRNN's scan over time for the CPU, compiled by Numba; see `unicornn.compiled` for the form."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from undamped.kernels.shared.jit import njit
from undamped.kernels.shared.tanh import tanh
from undamped.kernels.unicornn.compiled import BLOCK, OPTIONS

W, H, REMAINING, GH, GW = 0, BLOCK, 2 * BLOCK, 3 * BLOCK, 4 * BLOCK
ROWS = 5


@cache
def forward(relu: bool, masked: bool) -> Callable[..., None]:
    """The scan; hidden states are written over `projected`."""

    @njit(**OPTIONS)
    def independent_forward(
        projected: Any, weight: Any, hidden: Any, remaining: Any, low: int, high: int
    ) -> None:
        block = np.empty(ROWS * BLOCK, projected.dtype)
        zero = projected.dtype.type(0)
        for at in range(low, high, BLOCK):
            width = min(BLOCK, high - at)
            for j in range(width):
                block[W + j] = weight[(at + j) % weight.shape[0]]
                block[H + j] = hidden[at + j]
                block[REMAINING + j] = remaining[at + j]
            for t in range(projected.shape[0]):
                row = projected[t, at : at + width]
                for j in range(width):
                    h0 = block[H + j]
                    total = block[W + j] * h0 + row[j]
                    # Written so that a NaN passes.
                    h1 = (zero if total < zero else total) if relu else tanh(total)
                    if masked:
                        live = t < block[REMAINING + j]
                        block[H + j] = h1 if live else h0
                        row[j] = h1 if live else zero
                    else:
                        block[H + j] = h1
                        row[j] = h1
            for j in range(width):
                hidden[at + j] = block[H + j]

    return independent_forward


@cache
def backward(relu: bool, masked: bool) -> Callable[..., None]:
    """Gradients from the end to the start, from the hidden states alone."""

    @njit(**OPTIONS)
    def independent_backward(
        outputs: Any,
        grad: Any,
        grad_projected: Any,
        first: Any,
        weight: Any,
        gh: Any,
        grad_weight: Any,
        remaining: Any,
        low: int,
        high: int,
    ) -> None:
        block = np.empty(ROWS * BLOCK, outputs.dtype)
        zero, unit = outputs.dtype.type(0), outputs.dtype.type(1)
        for at in range(low, high, BLOCK):
            width = min(BLOCK, high - at)
            for j in range(width):
                block[W + j] = weight[(at + j) % weight.shape[0]]
                block[REMAINING + j] = remaining[at + j]
                block[GH + j] = gh[at + j]
                block[GW + j] = zero
            for back in range(outputs.shape[0]):
                t = outputs.shape[0] - 1 - back
                before = outputs[t - 1, at : at + width] if t > 0 else first[at : at + width]
                row, grad_row = outputs[t, at : at + width], grad[t, at : at + width]
                out = grad_projected[t, at : at + width]
                for j in range(width):
                    h1 = row[j]
                    gh1 = block[GH + j] + grad_row[j]
                    ga = (gh1 if h1 > zero else zero) if relu else gh1 * (unit - h1 * h1)
                    gw = ga * before[j]
                    gh0 = ga * block[W + j]
                    if masked:
                        live = t < block[REMAINING + j]
                        ga = ga if live else zero
                        gw = gw if live else zero
                        gh0 = gh0 if live else block[GH + j]
                    block[GW + j] += gw
                    block[GH + j] = gh0
                    out[j] = ga
            for j in range(width):
                gh[at + j] = block[GH + j]
                grad_weight[at + j] += block[GW + j]

    return independent_backward
