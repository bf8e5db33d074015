"""Linear recurrences for GPUs, in Triton: numbers and pairs, in chunks of time. Experimental.

A linear recurrence can be summarised: what a chunk of steps does to a state is one coefficient and
one summand. So chunks run side by side, a third axis of programs. With SUMMARY a kernel starts from
zero and writes the two, at the chunk's place; `scan` then goes from chunk to chunk, which is the
same recurrence again, and the kernel runs a second time from states that are known.

Coefficients are the same at every step (`fixed`) or come with the inputs (`stepwise`), as in
`compiled`; the kernel reads one of the two. `lengths` (batch,) say where sequences end.
"""

# pyright: basic, reportMissingImports=false, reportInvalidTypeForm=false
# pyright: reportGeneralTypeIssues=false, reportAssignmentType=false
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def chunk_of(lengths, b, steps, chunk, LENGTHS: tl.constexpr):
    """Return the first step of this program's chunk, how many there are and how many are live."""
    begin = tl.program_id(2) * chunk
    count = tl.minimum(steps - begin, chunk)
    live = count
    if LENGTHS:
        live = tl.minimum(tl.maximum(tl.load(lengths + b) - begin, 0), count)
    return tl.cast(begin, tl.int64), count, live


@triton.jit(do_not_specialize=["steps"])
def linear_forward(
    inputs,  # (steps, columns)
    fixed,  # (hidden,)
    stepwise,  # (steps, columns)
    outputs,  # (steps, columns)
    starts,  # (chunks, columns), states before each chunk
    final,  # (columns,)
    ends,  # (chunks, columns), written with SUMMARY, as the next
    products,
    lengths,
    steps,
    chunk,
    hidden,
    columns,
    PER_STEP: tl.constexpr,
    SUMMARY: tl.constexpr,
    LENGTHS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """h' = a h + u."""
    b = tl.program_id(0)
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = h < hidden
    at = tl.cast(b, tl.int64) * hidden
    begin, count, live = chunk_of(lengths, b, steps, chunk, LENGTHS)
    summary_at = tl.cast(tl.program_id(2), tl.int64) * columns + at
    row = inputs + begin * columns + at
    factors = stepwise + begin * columns + at
    out = outputs + begin * columns + at
    state = tl.zeros([BLOCK], inputs.dtype.element_ty)
    product = state + 1.0
    a = product
    if not SUMMARY:
        state = tl.load(starts + summary_at + h, mask=inside, other=0.0)
    if not PER_STEP:
        a = tl.load(fixed + h, mask=inside, other=0.0)
    for _ in tl.range(0, live, num_stages=STAGES):
        if PER_STEP:
            a = tl.load(factors + h, mask=inside, other=0.0)
            factors += columns
        state = a * state + tl.load(row + h, mask=inside, other=0.0)
        row += columns
        if SUMMARY:
            product *= a
        else:
            tl.store(out + h, state, mask=inside)
            out += columns
    if SUMMARY:
        tl.store(ends + summary_at + h, state, mask=inside)
        tl.store(products + summary_at + h, product, mask=inside)
    else:
        if LENGTHS:
            for _ in tl.range(live, count):
                tl.store(out + h, tl.zeros_like(state), mask=inside)
                out += columns
        if tl.program_id(2) == tl.num_programs(2) - 1:
            tl.store(final + at + h, state, mask=inside)


@triton.jit(do_not_specialize=["steps"])
def linear_backward(
    outputs,
    grad,
    grad_inputs,
    first,  # (columns,) the state before the first step
    fixed,
    stepwise,
    starts,  # (chunks, columns), gradients of the states after each chunk
    final,  # (columns,) the gradient of the first state
    grad_fixed,  # (chunks, columns)
    grad_stepwise,
    ends,
    products,
    lengths,
    steps,
    chunk,
    hidden,
    columns,
    PER_STEP: tl.constexpr,
    SUMMARY: tl.constexpr,
    LENGTHS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Gradients from the end to the start, from the states alone."""
    b = tl.program_id(0)
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = h < hidden
    at = tl.cast(b, tl.int64) * hidden
    begin, count, live = chunk_of(lengths, b, steps, chunk, LENGTHS)
    summary_at = tl.cast(tl.program_id(2), tl.int64) * columns + at
    last = (begin + live - 1) * columns + at
    grad_row = grad + last
    factors = stepwise + last
    before = outputs + last - columns
    out = grad_inputs + last
    out_factors = grad_stepwise + last
    zeros = tl.zeros([BLOCK], grad.dtype.element_ty)
    flowing = zeros
    product = zeros + 1.0
    a = product
    total = zeros
    if not SUMMARY:
        flowing = tl.load(starts + summary_at + h, mask=inside, other=0.0)
        if LENGTHS:
            spare = (begin + live) * columns + at
            for _ in tl.range(live, count):
                tl.store(grad_inputs + spare + h, zeros, mask=inside)
                if PER_STEP:
                    tl.store(grad_stepwise + spare + h, zeros, mask=inside)
                spare += columns
    if not PER_STEP:
        a = tl.load(fixed + h, mask=inside, other=0.0)
    begin_state = tl.load(first + at + h, mask=inside, other=0.0)
    for back in tl.range(0, live, num_stages=STAGES):
        if PER_STEP:
            a = tl.load(factors + h, mask=inside, other=0.0)
            factors -= columns
        g = flowing + tl.load(grad_row + h, mask=inside, other=0.0)
        grad_row -= columns
        flowing = a * g
        if SUMMARY:
            product *= a
        else:
            width = tl.where(begin + live - 1 - back > 0, hidden, 0)
            h0 = tl.load(before + h, mask=h < width, other=0.0)
            h0 = tl.where(h < width, h0, begin_state)
            before -= columns
            tl.store(out + h, g, mask=inside)
            out -= columns
            if PER_STEP:
                tl.store(out_factors + h, g * h0, mask=inside)
                out_factors -= columns
            else:
                total += g * h0
    if SUMMARY:
        tl.store(ends + summary_at + h, flowing, mask=inside)
        tl.store(products + summary_at + h, product, mask=inside)
    else:
        if not PER_STEP:
            tl.store(grad_fixed + summary_at + h, total, mask=inside)
        if tl.program_id(2) == 0:
            tl.store(final + at + h, flowing, mask=inside)


@triton.jit
def matrix_at(factors, h, inside, COMPLEX: tl.constexpr):
    """Return the matrix of a step: four numbers, or [[a, −b], [b, a]] of a complex (a, b)."""
    if COMPLEX:
        m0 = tl.load(factors + 2 * h, mask=inside, other=0.0)
        m2 = tl.load(factors + 2 * h + 1, mask=inside, other=0.0)
        m1 = -m2
        m3 = m0
    else:
        m0 = tl.load(factors + 4 * h, mask=inside, other=0.0)
        m1 = tl.load(factors + 4 * h + 1, mask=inside, other=0.0)
        m2 = tl.load(factors + 4 * h + 2, mask=inside, other=0.0)
        m3 = tl.load(factors + 4 * h + 3, mask=inside, other=0.0)
    return m0, m1, m2, m3


@triton.jit
def store_summary(ends, products, summary_at, h, inside, x, y, p0, p1, p2, p3):
    """Write what a chunk does to a pair: a summand and a matrix."""
    tl.store(ends + 2 * (summary_at + h), x, mask=inside)
    tl.store(ends + 2 * (summary_at + h) + 1, y, mask=inside)
    tl.store(products + 4 * (summary_at + h), p0, mask=inside)
    tl.store(products + 4 * (summary_at + h) + 1, p1, mask=inside)
    tl.store(products + 4 * (summary_at + h) + 2, p2, mask=inside)
    tl.store(products + 4 * (summary_at + h) + 3, p3, mask=inside)


@triton.jit(do_not_specialize=["steps"])
def pair_forward(
    inputs,  # (steps, columns, 2)
    fixed,  # (hidden, 4), or (hidden, 2) for complex numbers
    stepwise,  # (steps, columns, 4) or (steps, columns, 2)
    outputs,
    starts,  # (chunks, columns, 2)
    final,  # (columns, 2)
    ends,  # (chunks, columns, 2)
    products,  # (chunks, columns, 4)
    lengths,
    steps,
    chunk,
    hidden,
    columns,
    COMPLEX: tl.constexpr,
    PER_STEP: tl.constexpr,
    SUMMARY: tl.constexpr,
    LENGTHS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """(x, y)' = [[m₀, m₁], [m₂, m₃]] (x, y) + (u, v)."""
    SIZE: tl.constexpr = 2 if COMPLEX else 4
    b = tl.program_id(0)
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = h < hidden
    at = tl.cast(b, tl.int64) * hidden
    begin, count, live = chunk_of(lengths, b, steps, chunk, LENGTHS)
    summary_at = tl.cast(tl.program_id(2), tl.int64) * columns + at
    row = inputs + 2 * (begin * columns + at)
    factors = stepwise + SIZE * (begin * columns + at)
    out = outputs + 2 * (begin * columns + at)
    x = tl.zeros([BLOCK], inputs.dtype.element_ty)
    y = x
    p0, p1, p2, p3 = x + 1.0, x, x, x + 1.0
    if not SUMMARY:
        x = tl.load(starts + 2 * (summary_at + h), mask=inside, other=0.0)
        y = tl.load(starts + 2 * (summary_at + h) + 1, mask=inside, other=0.0)
    if not PER_STEP:
        m0, m1, m2, m3 = matrix_at(fixed, h, inside, COMPLEX)
    for _ in tl.range(0, live, num_stages=STAGES):
        if PER_STEP:
            m0, m1, m2, m3 = matrix_at(factors, h, inside, COMPLEX)
            factors += SIZE * columns
        u = tl.load(row + 2 * h, mask=inside, other=0.0)
        v = tl.load(row + 2 * h + 1, mask=inside, other=0.0)
        row += 2 * columns
        x, y = m0 * x + (m1 * y + u), m2 * x + (m3 * y + v)
        if SUMMARY:
            p0, p2 = m0 * p0 + m1 * p2, m2 * p0 + m3 * p2
            p1, p3 = m0 * p1 + m1 * p3, m2 * p1 + m3 * p3
        else:
            tl.store(out + 2 * h, x, mask=inside)
            tl.store(out + 2 * h + 1, y, mask=inside)
            out += 2 * columns
    if SUMMARY:
        store_summary(ends, products, summary_at, h, inside, x, y, p0, p1, p2, p3)
    else:
        if LENGTHS:
            for _ in tl.range(live, count):
                tl.store(out + 2 * h, tl.zeros_like(x), mask=inside)
                tl.store(out + 2 * h + 1, tl.zeros_like(x), mask=inside)
                out += 2 * columns
        if tl.program_id(2) == tl.num_programs(2) - 1:
            tl.store(final + 2 * (at + h), x, mask=inside)
            tl.store(final + 2 * (at + h) + 1, y, mask=inside)


@triton.jit(do_not_specialize=["steps"])
def pair_backward(
    outputs,
    grad,
    grad_inputs,
    first,  # (columns, 2)
    fixed,
    stepwise,
    starts,  # (chunks, columns, 2)
    final,  # (columns, 2)
    grad_fixed,  # (chunks, columns, 4)
    grad_stepwise,
    ends,
    products,
    lengths,
    steps,
    chunk,
    hidden,
    columns,
    COMPLEX: tl.constexpr,
    PER_STEP: tl.constexpr,
    SUMMARY: tl.constexpr,
    LENGTHS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Gradients of `pair_forward` from the end to the start, from the states alone."""
    SIZE: tl.constexpr = 2 if COMPLEX else 4
    b = tl.program_id(0)
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = h < hidden
    at = tl.cast(b, tl.int64) * hidden
    begin, count, live = chunk_of(lengths, b, steps, chunk, LENGTHS)
    summary_at = tl.cast(tl.program_id(2), tl.int64) * columns + at
    last = (begin + live - 1) * columns + at
    grad_row = grad + 2 * last
    factors = stepwise + SIZE * last
    before = outputs + 2 * (last - columns)
    out = grad_inputs + 2 * last
    out_factors = grad_stepwise + SIZE * last
    zeros = tl.zeros([BLOCK], grad.dtype.element_ty)
    gx, gy = zeros, zeros
    p0, p1, p2, p3 = zeros + 1.0, zeros, zeros, zeros + 1.0
    t0, t1, t2, t3 = zeros, zeros, zeros, zeros
    if not SUMMARY:
        gx = tl.load(starts + 2 * (summary_at + h), mask=inside, other=0.0)
        gy = tl.load(starts + 2 * (summary_at + h) + 1, mask=inside, other=0.0)
        if LENGTHS:
            spare = (begin + live) * columns + at
            for _ in tl.range(live, count):
                tl.store(grad_inputs + 2 * (spare + h), zeros, mask=inside)
                tl.store(grad_inputs + 2 * (spare + h) + 1, zeros, mask=inside)
                if PER_STEP:
                    for k in tl.static_range(SIZE):
                        tl.store(grad_stepwise + SIZE * (spare + h) + k, zeros, mask=inside)
                spare += columns
    if not PER_STEP:
        m0, m1, m2, m3 = matrix_at(fixed, h, inside, COMPLEX)
    first_x = tl.load(first + 2 * (at + h), mask=inside, other=0.0)
    first_y = tl.load(first + 2 * (at + h) + 1, mask=inside, other=0.0)
    for back in tl.range(0, live, num_stages=STAGES):
        if PER_STEP:
            m0, m1, m2, m3 = matrix_at(factors, h, inside, COMPLEX)
            factors -= SIZE * columns
        hx = gx + tl.load(grad_row + 2 * h, mask=inside, other=0.0)
        hy = gy + tl.load(grad_row + 2 * h + 1, mask=inside, other=0.0)
        grad_row -= 2 * columns
        gx = m0 * hx + m2 * hy
        gy = m1 * hx + m3 * hy
        if SUMMARY:
            p0, p2 = m0 * p0 + m2 * p2, m1 * p0 + m3 * p2
            p1, p3 = m0 * p1 + m2 * p3, m1 * p1 + m3 * p3
        else:
            width = tl.where(begin + live - 1 - back > 0, hidden, 0)
            x0 = tl.load(before + 2 * h, mask=h < width, other=0.0)
            y0 = tl.load(before + 2 * h + 1, mask=h < width, other=0.0)
            x0 = tl.where(h < width, x0, first_x)
            y0 = tl.where(h < width, y0, first_y)
            before -= 2 * columns
            tl.store(out + 2 * h, hx, mask=inside)
            tl.store(out + 2 * h + 1, hy, mask=inside)
            out -= 2 * columns
            if not PER_STEP:
                t0 += hx * x0
                t1 += hx * y0
                t2 += hy * x0
                t3 += hy * y0
            else:
                if COMPLEX:
                    tl.store(out_factors + 2 * h, hx * x0 + hy * y0, mask=inside)
                    tl.store(out_factors + 2 * h + 1, hy * x0 - hx * y0, mask=inside)
                else:
                    tl.store(out_factors + 4 * h, hx * x0, mask=inside)
                    tl.store(out_factors + 4 * h + 1, hx * y0, mask=inside)
                    tl.store(out_factors + 4 * h + 2, hy * x0, mask=inside)
                    tl.store(out_factors + 4 * h + 3, hy * y0, mask=inside)
                out_factors -= SIZE * columns
    if SUMMARY:
        store_summary(ends, products, summary_at, h, inside, gx, gy, p0, p1, p2, p3)
    else:
        if not PER_STEP:
            sums = grad_fixed + 4 * (summary_at + h)
            tl.store(sums, t0, mask=inside)
            tl.store(sums + 1, t1, mask=inside)
            tl.store(sums + 2, t2, mask=inside)
            tl.store(sums + 3, t3, mask=inside)
        if tl.program_id(2) == 0:
            tl.store(final + 2 * (at + h), gx, mask=inside)
            tl.store(final + 2 * (at + h) + 1, gy, mask=inside)
