"""UnICORNN's steps for the CPU, compiled by Numba; see `shared.column_loop` for the form."""

from __future__ import annotations

from typing import Any

from undamped.kernels.shared.column_loop import BLOCK, block_rows, column_scan, step_function
from undamped.kernels.shared.tanh import tanh

W, S, B, ALPHA, Y, Z = block_rows(6)  # α is the same for all units
VELOCITY, GY, GZ, GW, GS, GB = block_rows(10)[4:]  # after the constants, in the backward pass


@step_function
def oscillator_forward(block: Any, rows: Any, width: int) -> None:
    """One step of the scan; positions are written over the projected input."""
    (row,), alpha = rows, block[ALPHA]
    for j in range(min(BLOCK, width)):
        y, s = block[Y + j], block[S + j]
        z = block[Z + j] - s * (tanh(block[W + j] * y + (row[j] + block[B + j])) + alpha * y)
        y = y + s * z
        block[Y + j] = y
        block[Z + j] = z
        row[j] = y


@step_function
def oscillator_forward_store(block: Any, rows: Any, width: int) -> None:
    """The same; tanh is written over the projected input, positions to another sequence."""
    (row, positions), alpha = rows, block[ALPHA]
    for j in range(min(BLOCK, width)):
        y, s = block[Y + j], block[S + j]
        value = tanh(block[W + j] * y + (row[j] + block[B + j]))
        z = block[Z + j] - s * (value + alpha * y)
        y = y + s * z
        block[Y + j] = y
        block[Z + j] = z
        row[j] = value
        positions[j] = y


@step_function
def oscillator_replay(block: Any, rows: Any, width: int) -> None:
    """The same, from stored values of tanh."""
    (tanh_values, positions), alpha = rows, block[ALPHA]
    for j in range(min(BLOCK, width)):
        y, s = block[Y + j], block[S + j]
        z = block[Z + j] - s * (tanh_values[j] + alpha * y)
        y = y + s * z
        block[Y + j] = y
        block[Z + j] = z
        positions[j] = y


@step_function
def oscillator_inverse(block: Any, rows: Any, width: int) -> None:
    """One step backwards in time (eq. 7), with the results of `oscillator_forward_store`."""
    (row, positions), alpha = rows, block[ALPHA]
    for j in range(min(BLOCK, width)):
        s, y1, z1 = block[S + j], block[Y + j], block[Z + j]
        y = y1 - s * z1
        value = tanh(block[W + j] * y + (row[j] + block[B + j]))
        block[Y + j] = y
        block[Z + j] = z1 + s * (value + alpha * y)
        row[j] = value
        positions[j] = y1


@step_function
def oscillator_backward(block: Any, rows: Any, width: int) -> None:
    """Gradients of one step, from the old position, its tanh and the new velocity."""
    before, tanh_values, grad, grad_projected = rows
    # Typed, because a Python integer would promote the sum to float64.
    unit, alpha = block.dtype.type(1), block[ALPHA]
    for j in range(min(BLOCK, width)):
        s, y0, value, z1 = block[S + j], before[j], tanh_values[j], block[VELOCITY + j]
        force = value + alpha * y0
        gy = block[GY + j] + grad[j]
        gz = block[GZ + j] + s * gy
        inner = -s * gz
        slope = inner * (unit - value * value)
        block[GS + j] += gy * z1 - gz * force
        block[GW + j] += slope * y0
        block[GY + j] = gy + (inner * alpha + slope * block[W + j])
        block[GZ + j] = gz
        block[VELOCITY + j] = z1 + s * force
        block[GB + j] += slope
        grad_projected[j] = slope


KERNELS = {
    "forward": column_scan(oscillator_forward, 1),
    "forward_store": column_scan(oscillator_forward_store, 2),
    "replay": column_scan(oscillator_replay, 2),
    "inverse": column_scan(oscillator_inverse, 2, backwards=True),
    "backward": column_scan(oscillator_backward, 4, backwards=True),
}
