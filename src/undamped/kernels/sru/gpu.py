"""SRU's light recurrence for GPUs, in Triton; see `shared.gpu` for the form. Experimental.

The projected input holds candidate, forget gate, reset gate and the highway connection,
concatenated; constants are the recurrent weights of forget and reset gate.
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
    sigmoid,
)


@triton.jit(do_not_specialize=["steps"])
def light_forward(
    projected, memories, outputs, constants, state, remaining, steps, hidden, LENGTHS: tl.constexpr
):
    """c' = f c + (1 − f) x, h' = r c' + (1 − r) s; memories and outputs are written."""
    h, inside, at, columns, live = program_columns(remaining, steps, hidden, LENGTHS)
    forget = load(constants, h, inside)
    reset = load(constants + hidden, h, inside)
    c = load(state + at, h, inside)
    row = projected + 4 * at
    out = outputs + at
    memory = memories + at
    for _ in tl.range(0, live, num_stages=STAGES):
        candidate = load(row, h, inside)
        f = load(row + hidden, h, inside)
        r = load(row + 2 * hidden, h, inside)
        highway = load(row + 3 * hidden, h, inside)
        row += 4 * columns
        f = sigmoid(f + forget * c)
        r = sigmoid(r + reset * c)
        c = f * c + (1.0 - f) * candidate
        tl.store(memory + h, c, mask=inside)
        tl.store(out + h, r * c + (1.0 - r) * highway, mask=inside)
        memory += columns
        out += columns
    if LENGTHS:
        clear_rows(outputs + at, h, inside, live, steps, columns)
        for _ in tl.range(live, steps):
            tl.store(memory + h, c, mask=inside)
            memory += columns
    tl.store(state + at + h, c, mask=inside)


@triton.jit(do_not_specialize=["steps"])
def light_backward(
    memories,
    projected,
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
    """Gradients from the end to the start; gates are recomputed."""
    h, inside, at, columns, live = program_columns(remaining, steps, hidden, LENGTHS)
    if LENGTHS:
        for part in tl.static_range(4):
            start = grad_projected + 4 * at + part * hidden
            clear_rows(start, h, inside, live, steps, 4 * columns)
    forget = load(constants, h, inside)
    reset = load(constants + hidden, h, inside)
    begin = load(first + at, h, inside)
    gc = load(state + at, h, inside)
    grad_forget = tl.zeros_like(gc)
    grad_reset = tl.zeros_like(gc)
    last = at + tl.cast(live - 1, tl.int64) * columns
    row = projected + 4 * last
    out = grad_projected + 4 * last
    grad_row = grad + last
    before = memories + last - columns
    for back in tl.range(0, live, num_stages=STAGES):
        c = load_before(before, begin, h, hidden, back == live - 1)
        candidate = load(row, h, inside)
        f = load(row + hidden, h, inside)
        r = load(row + 2 * hidden, h, inside)
        highway = load(row + 3 * hidden, h, inside)
        g = load(grad_row, h, inside)
        f = sigmoid(f + forget * c)
        r = sigmoid(r + reset * c)
        gc += g * r
        after = f * c + (1.0 - f) * candidate
        slope_r = g * (after - highway) * r * (1.0 - r)
        slope_f = gc * (c - candidate) * f * (1.0 - f)
        tl.store(out + h, gc * (1.0 - f), mask=inside)
        tl.store(out + hidden + h, slope_f, mask=inside)
        tl.store(out + 2 * hidden + h, slope_r, mask=inside)
        tl.store(out + 3 * hidden + h, g * (1.0 - r), mask=inside)
        grad_forget += slope_f * c
        grad_reset += slope_r * c
        gc = gc * f + slope_f * forget + slope_r * reset
        row -= 4 * columns
        out -= 4 * columns
        grad_row -= columns
        before -= columns
    tl.store(state + at + h, gc, mask=inside)
    add(sums + at, h, inside, grad_forget)
    add(sums + columns + at, h, inside, grad_reset)


KERNELS = {"forward": (light_forward, {}), "backward": (light_backward, {})}
