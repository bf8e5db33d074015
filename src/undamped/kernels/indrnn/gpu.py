"""IndRNN's scan over time for GPUs, in Triton; see `unicornn.gpu` for the form. Experimental."""

# pyright: basic, reportMissingImports=false, reportInvalidTypeForm=false
# pyright: reportGeneralTypeIssues=false, reportAssignmentType=false
from __future__ import annotations

import triton
import triton.language as tl

from undamped.kernels.shared.gpu import tanh


@triton.jit(do_not_specialize=["steps"])
def independent_forward(
    projected,
    weight,
    state,
    remaining,
    steps,
    hidden,
    columns,
    RELU: tl.constexpr,
    LENGTHS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """The scan; hidden states are written over `projected`."""
    b = tl.program_id(0)
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = h < hidden
    at = tl.cast(b, tl.int64) * hidden
    live = steps
    if LENGTHS:
        live = tl.load(remaining + b)
    w = tl.load(weight + h, mask=inside, other=0.0)
    h0 = tl.load(state + at + h, mask=inside, other=0.0)
    row = projected + at
    for _ in tl.range(0, live, num_stages=STAGES):
        h0 = w * h0 + tl.load(row + h, mask=inside, other=0.0)
        if RELU:  # noqa: SIM108 (one of the two is compiled)
            h0 = tl.where(h0 < 0.0, 0.0, h0)  # written so that a NaN passes
        else:
            h0 = tanh(h0)
        tl.store(row + h, h0, mask=inside)
        row += columns
    if LENGTHS:
        for _ in tl.range(live, steps):
            tl.store(row + h, tl.zeros_like(w), mask=inside)
            row += columns
    tl.store(state + at + h, h0, mask=inside)


@triton.jit(do_not_specialize=["steps"])
def independent_backward(
    outputs,
    grad,
    grad_projected,
    first,
    weight,
    state_gradient,
    grad_weight,
    remaining,
    steps,
    hidden,
    columns,
    RELU: tl.constexpr,
    LENGTHS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Gradients from the end to the start, from the hidden states alone."""
    b = tl.program_id(0)
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = h < hidden
    at = tl.cast(b, tl.int64) * hidden
    live = steps
    if LENGTHS:
        live = tl.load(remaining + b)
        spare = grad_projected + at + tl.cast(live, tl.int64) * columns
        for _ in tl.range(live, steps):
            tl.store(spare + h, tl.zeros([BLOCK], grad.dtype.element_ty), mask=inside)
            spare += columns
    w = tl.load(weight + h, mask=inside, other=0.0)
    begin = tl.load(first + at + h, mask=inside, other=0.0)
    flowing = tl.load(state_gradient + at + h, mask=inside, other=0.0)
    total = tl.zeros_like(w)
    last = at + tl.cast(live - 1, tl.int64) * columns
    row = outputs + last
    before = row - columns
    grad_row = grad + last
    out = grad_projected + last
    for back in tl.range(0, live, num_stages=STAGES):
        width = tl.where(back < live - 1, hidden, 0)  # before the first step is no row
        h1 = tl.load(row + h, mask=inside, other=0.0)
        h0 = tl.load(before + h, mask=h < width, other=0.0)
        h0 = tl.where(h < width, h0, begin)
        ga = flowing + tl.load(grad_row + h, mask=inside, other=0.0)
        if RELU:  # noqa: SIM108
            ga = tl.where(h1 > 0.0, ga, 0.0)
        else:
            ga = ga * (1.0 - h1 * h1)
        total += ga * h0
        flowing = ga * w
        tl.store(out + h, ga, mask=inside)
        row -= columns
        before -= columns
        grad_row -= columns
        out -= columns
    tl.store(state_gradient + at + h, flowing, mask=inside)
    sums = tl.load(grad_weight + at + h, mask=inside, other=0.0)
    tl.store(grad_weight + at + h, sums + total, mask=inside)
