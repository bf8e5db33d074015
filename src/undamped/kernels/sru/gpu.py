"""SRU's light recurrence for GPUs, in Triton; see `unicornn.gpu` for the form. Experimental.

What is projected holds candidate, forget gate, reset gate and what passes by, side by side.
"""

# pyright: basic, reportMissingImports=false, reportInvalidTypeForm=false
# pyright: reportGeneralTypeIssues=false, reportAssignmentType=false
from __future__ import annotations

import triton
import triton.language as tl

from undamped.kernels.shared.gpu import sigmoid


@triton.jit(do_not_specialize=["steps"])
def light_forward(
    projected,  # (steps, batch, 4 × hidden)
    forget,
    reset,
    outputs,  # (steps, columns)
    memories,  # (steps, columns)
    memory,  # (columns,)
    remaining,
    steps,
    hidden,
    columns,
    LENGTHS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """c' = f c + (1 − f) x, h' = r c' + (1 − r) s."""
    b = tl.program_id(0)
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = h < hidden
    at = tl.cast(b, tl.int64) * hidden
    live = steps
    if LENGTHS:
        live = tl.load(remaining + b)
    forgetting = tl.load(forget + h, mask=inside, other=0.0)
    resetting = tl.load(reset + h, mask=inside, other=0.0)
    c = tl.load(memory + at + h, mask=inside, other=0.0)
    row = projected + 4 * at
    out = outputs + at
    memory_at = memories + at
    for _ in tl.range(0, live, num_stages=STAGES):
        candidate = tl.load(row + h, mask=inside, other=0.0)
        f = tl.load(row + hidden + h, mask=inside, other=0.0)
        r = tl.load(row + 2 * hidden + h, mask=inside, other=0.0)
        passing = tl.load(row + 3 * hidden + h, mask=inside, other=0.0)
        row += 4 * columns
        f = sigmoid(f + forgetting * c)
        r = sigmoid(r + resetting * c)
        c = f * c + (1.0 - f) * candidate
        tl.store(memory_at + h, c, mask=inside)
        tl.store(out + h, r * c + (1.0 - r) * passing, mask=inside)
        memory_at += columns
        out += columns
    if LENGTHS:
        for _ in tl.range(live, steps):
            tl.store(memory_at + h, c, mask=inside)
            tl.store(out + h, tl.zeros_like(c), mask=inside)
            memory_at += columns
            out += columns
    tl.store(memory + at + h, c, mask=inside)


@triton.jit(do_not_specialize=["steps"])
def light_backward(
    projected,
    forget,
    reset,
    memories,
    first,  # (columns,) the memory before the first step
    grad,
    grad_projected,
    flowing,  # (columns,) the gradient of the memory
    grad_forget,  # (columns,) sums in double precision
    grad_reset,
    remaining,
    steps,
    hidden,
    columns,
    LENGTHS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Gradients from the end to the start; gates are computed again."""
    b = tl.program_id(0)
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = h < hidden
    at = tl.cast(b, tl.int64) * hidden
    live = steps
    if LENGTHS:
        live = tl.load(remaining + b)
        spare = grad_projected + 4 * (at + tl.cast(live, tl.int64) * columns)
        for _ in tl.range(live, steps):
            for part in tl.static_range(4):
                zeros = tl.zeros([BLOCK], grad.dtype.element_ty)
                tl.store(spare + part * hidden + h, zeros, mask=inside)
            spare += 4 * columns
    forgetting = tl.load(forget + h, mask=inside, other=0.0)
    resetting = tl.load(reset + h, mask=inside, other=0.0)
    begin = tl.load(first + at + h, mask=inside, other=0.0)
    gc = tl.load(flowing + at + h, mask=inside, other=0.0)
    for_forget = tl.zeros_like(gc)
    for_reset = tl.zeros_like(gc)
    last = at + tl.cast(live - 1, tl.int64) * columns
    row = projected + 4 * last
    out = grad_projected + 4 * last
    grad_row = grad + last
    before = memories + last - columns
    for back in tl.range(0, live, num_stages=STAGES):
        width = tl.where(back < live - 1, hidden, 0)  # before the first step is no row
        c = tl.load(before + h, mask=h < width, other=0.0)
        c = tl.where(h < width, c, begin)
        candidate = tl.load(row + h, mask=inside, other=0.0)
        f = tl.load(row + hidden + h, mask=inside, other=0.0)
        r = tl.load(row + 2 * hidden + h, mask=inside, other=0.0)
        passing = tl.load(row + 3 * hidden + h, mask=inside, other=0.0)
        g = tl.load(grad_row + h, mask=inside, other=0.0)
        f = sigmoid(f + forgetting * c)
        r = sigmoid(r + resetting * c)
        gc += g * r
        after = f * c + (1.0 - f) * candidate
        opening = g * (after - passing) * r * (1.0 - r)
        closing = gc * (c - candidate) * f * (1.0 - f)
        tl.store(out + h, gc * (1.0 - f), mask=inside)
        tl.store(out + hidden + h, closing, mask=inside)
        tl.store(out + 2 * hidden + h, opening, mask=inside)
        tl.store(out + 3 * hidden + h, g * (1.0 - r), mask=inside)
        for_forget += closing * c
        for_reset += opening * c
        gc = gc * f + closing * forgetting + opening * resetting
        row -= 4 * columns
        out -= 4 * columns
        grad_row -= columns
        before -= columns
    tl.store(flowing + at + h, gc, mask=inside)
    sums = tl.load(grad_forget + at + h, mask=inside, other=0.0)
    tl.store(grad_forget + at + h, sums + for_forget, mask=inside)
    sums = tl.load(grad_reset + at + h, mask=inside, other=0.0)
    tl.store(grad_reset + at + h, sums + for_reset, mask=inside)
