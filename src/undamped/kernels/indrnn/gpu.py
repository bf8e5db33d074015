"""IndRNN's scan over time for GPUs, in Triton; see `shared.gpu` for the form. Experimental."""

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
def independent_forward(
    projected, weight, state, remaining, steps, hidden, LENGTHS: tl.constexpr, RELU: tl.constexpr
):
    """The scan; hidden states are written over `projected`."""
    h, inside, at, columns, live = program_columns(remaining, steps, hidden, LENGTHS)
    w = load(weight, h, inside)
    value = load(state + at, h, inside)
    row = projected + at
    for _ in tl.range(0, live, num_stages=STAGES):
        value = w * value + load(row, h, inside)
        if RELU:  # noqa: SIM108 (one of the two is compiled)
            value = tl.where(value < 0.0, 0.0, value)  # written so that a NaN passes
        else:
            value = tanh(value)
        tl.store(row + h, value, mask=inside)
        row += columns
    if LENGTHS:
        clear_rows(projected + at, h, inside, live, steps, columns)
    tl.store(state + at + h, value, mask=inside)


@triton.jit(do_not_specialize=["steps"])
def independent_backward(
    outputs,
    grad,
    grad_projected,
    first,
    sums,
    weight,
    state,
    remaining,
    steps,
    hidden,
    LENGTHS: tl.constexpr,
    RELU: tl.constexpr,
):
    """Gradients from the end to the start, from the hidden states alone."""
    h, inside, at, columns, live = program_columns(remaining, steps, hidden, LENGTHS)
    if LENGTHS:
        clear_rows(grad_projected + at, h, inside, live, steps, columns)
    w = load(weight, h, inside)
    begin = load(first + at, h, inside)
    grad_state = load(state + at, h, inside)
    total = tl.zeros_like(w)
    last = at + tl.cast(live - 1, tl.int64) * columns
    row = outputs + last
    grad_row = grad + last
    out = grad_projected + last
    for back in tl.range(0, live, num_stages=STAGES):
        new = load(row, h, inside)
        old = load_before(row - columns, begin, h, hidden, back == live - 1)
        slope = grad_state + load(grad_row, h, inside)
        if RELU:  # noqa: SIM108
            slope = tl.where(new > 0.0, slope, 0.0)
        else:
            slope = slope * (1.0 - new * new)
        total += slope * old
        grad_state = slope * w
        tl.store(out + h, slope, mask=inside)
        row -= columns
        grad_row -= columns
        out -= columns
    tl.store(state + at + h, grad_state, mask=inside)
    add(sums + at, h, inside, total)


KERNELS = {
    f"{name}_{direction}": (kernel, {"RELU": name == "relu"})
    for name in ("relu", "tanh")
    for direction, kernel in (("forward", independent_forward), ("backward", independent_backward))
}
