"""UnICORNN's scan over time for GPUs, in Triton; see `shared.gpu` for the form. Experimental.

Constants are weight, step, bias and the restoring force α; the state is position and velocity.
"""

# pyright: basic, reportMissingImports=false, reportInvalidTypeForm=false
# pyright: reportGeneralTypeIssues=false, reportAssignmentType=false
from __future__ import annotations

import triton
import triton.language as tl

from undamped.kernels.shared.gpu import (
    STAGES,
    add,
    clear_rows,
    load,
    load_before,
    program_columns,
    tanh,
)


@triton.jit(do_not_specialize=["steps"])
def oscillator_forward(
    projected,
    positions,
    constants,
    state,
    remaining,
    steps,
    hidden,
    LENGTHS: tl.constexpr,
    STORE: tl.constexpr,
    REPLAY: tl.constexpr,
):
    """The scan; with STORE tanh is written over `projected`, with REPLAY it is read there."""
    h, inside, at, columns, live = program_columns(remaining, steps, hidden, LENGTHS)
    w = load(constants, h, inside)
    s = load(constants + hidden, h, inside)
    bias = load(constants + 2 * hidden, h, inside)
    alpha = tl.load(constants + 3 * hidden)
    y = load(state + at, h, inside)
    z = load(state + columns + at, h, inside)
    row = projected + at
    out = positions + at
    for _ in tl.range(0, live, num_stages=STAGES):
        value = load(row, h, inside)
        if not REPLAY:
            value = tanh(w * y + (value + bias))
        if STORE:
            tl.store(row + h, value, mask=inside)
        z = z - s * (value + alpha * y)
        y = y + s * z
        tl.store(out + h, y, mask=inside)
        row += columns
        out += columns
    if LENGTHS:
        clear_rows(positions + at, h, inside, live, steps, columns)
    tl.store(state + at + h, y, mask=inside)
    tl.store(state + columns + at + h, z, mask=inside)


@triton.jit(do_not_specialize=["steps"])
def oscillator_inverse(
    projected, positions, constants, state, remaining, steps, hidden, LENGTHS: tl.constexpr
):
    """The scan backwards in time, from the state at the end to the one at the start."""
    h, inside, at, columns, live = program_columns(remaining, steps, hidden, LENGTHS)
    w = load(constants, h, inside)
    s = load(constants + hidden, h, inside)
    bias = load(constants + 2 * hidden, h, inside)
    alpha = tl.load(constants + 3 * hidden)
    y = load(state + at, h, inside)
    z = load(state + columns + at, h, inside)
    if LENGTHS:
        clear_rows(positions + at, h, inside, live, steps, columns)
    last = at + tl.cast(live - 1, tl.int64) * columns
    row = projected + last
    out = positions + last
    for _ in tl.range(0, live, num_stages=STAGES):
        value = load(row, h, inside)
        tl.store(out + h, y, mask=inside)
        y = y - s * z
        value = tanh(w * y + (value + bias))
        tl.store(row + h, value, mask=inside)
        z = z + s * (value + alpha * y)
        row -= columns
        out -= columns
    tl.store(state + at + h, y, mask=inside)
    tl.store(state + columns + at + h, z, mask=inside)


@triton.jit(do_not_specialize=["steps"])
def oscillator_backward(
    positions,
    tanh_values,
    grad,
    grad_projected,
    first,
    sums,
    constants,
    state,
    remaining,
    steps,
    hidden,
    LENGTHS: tl.constexpr,
):
    """Gradients from the end to the start; the state is a velocity and two gradients."""
    h, inside, at, columns, live = program_columns(remaining, steps, hidden, LENGTHS)
    w = load(constants, h, inside)
    s = load(constants + hidden, h, inside)
    alpha = tl.load(constants + 3 * hidden)
    begin = load(first + at, h, inside)
    z = load(state + at, h, inside)
    gy = load(state + columns + at, h, inside)
    gz = load(state + 2 * columns + at, h, inside)
    gw = tl.zeros_like(w)
    gs = tl.zeros_like(w)
    gb = tl.zeros_like(w)
    if LENGTHS:
        clear_rows(grad_projected + at, h, inside, live, steps, columns)
    last = at + tl.cast(live - 1, tl.int64) * columns
    before = positions + last - columns
    values = tanh_values + last
    grad_row = grad + last
    out = grad_projected + last
    for back in tl.range(0, live, num_stages=STAGES):
        y = load_before(before, begin, h, hidden, back == live - 1)
        value = load(values, h, inside)
        gy += load(grad_row, h, inside)
        gz += s * gy
        force = value + alpha * y
        inner = -s * gz
        slope = inner * (1.0 - value * value)
        gs += gy * z - gz * force
        gw += slope * y
        gb += slope
        gy += inner * alpha + slope * w
        z += s * force
        tl.store(out + h, slope, mask=inside)
        before -= columns
        values -= columns
        grad_row -= columns
        out -= columns
    tl.store(state + columns + at + h, gy, mask=inside)
    tl.store(state + 2 * columns + at + h, gz, mask=inside)
    add(sums + at, h, inside, gw)
    add(sums + columns + at, h, inside, gs)
    add(sums + 2 * columns + at, h, inside, gb)


KERNELS = {
    "forward": (oscillator_forward, {"STORE": False, "REPLAY": False}),
    "forward_store": (oscillator_forward, {"STORE": True, "REPLAY": False}),
    "replay": (oscillator_forward, {"STORE": False, "REPLAY": True}),
    "inverse": (oscillator_inverse, {}),
    "backward": (oscillator_backward, {}),
}
