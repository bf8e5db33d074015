"""IndRNN's steps for the CPU, compiled by Numba; see `shared.column_loop` for the form."""

from __future__ import annotations

from typing import Any

from undamped.kernels.shared.column_loop import BLOCK, block_rows, column_scan, step_function
from undamped.kernels.shared.tanh import tanh

W, H, GW = block_rows(3)  # H is the state, or its gradient in the backward pass


@step_function
def relu_forward(block: Any, rows: Any, width: int) -> None:
    """One step; hidden states are written over the projected input."""
    (row,), zero = rows, block.dtype.type(0)
    for j in range(min(BLOCK, width)):
        total = block[W + j] * block[H + j] + row[j]
        new = zero if total < zero else total  # a comparison that keeps NaN
        block[H + j] = new
        row[j] = new


@step_function
def tanh_forward(block: Any, rows: Any, width: int) -> None:
    """The same with tanh."""
    (row,) = rows
    for j in range(min(BLOCK, width)):
        new = tanh(block[W + j] * block[H + j] + row[j])
        block[H + j] = new
        row[j] = new


@step_function
def relu_backward(block: Any, rows: Any, width: int) -> None:
    """Gradients of one step, from the hidden states before and after it."""
    before, after, grad, grad_projected = rows
    zero = block.dtype.type(0)
    for j in range(min(BLOCK, width)):
        total = block[H + j] + grad[j]
        slope = total if after[j] > zero else zero
        block[GW + j] += slope * before[j]
        block[H + j] = slope * block[W + j]
        grad_projected[j] = slope


@step_function
def tanh_backward(block: Any, rows: Any, width: int) -> None:
    """The same with tanh."""
    before, after, grad, grad_projected = rows
    unit = block.dtype.type(1)
    for j in range(min(BLOCK, width)):
        slope = (block[H + j] + grad[j]) * (unit - after[j] * after[j])
        block[GW + j] += slope * before[j]
        block[H + j] = slope * block[W + j]
        grad_projected[j] = slope


KERNELS = {
    "relu_forward": column_scan(relu_forward, 1),
    "tanh_forward": column_scan(tanh_forward, 1),
    "relu_backward": column_scan(relu_backward, 4, backwards=True),
    "tanh_backward": column_scan(tanh_backward, 4, backwards=True),
}
