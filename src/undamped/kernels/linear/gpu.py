"""Linear recurrences for GPUs, in Triton, in chunks of time; see `shared.gpu`. Experimental.

A chunk of steps of a linear recurrence multiplies the state by a coefficient and adds a summand. So
chunks run in parallel, as a third dimension of programs: a summary kernel starts from zero and
writes both, `gpu_scan` scans over the chunks, which is the same recurrence, and the kernel itself
starts from the resulting states, `starts`. Its last state, of the last chunk forward and of the
first one backward, overwrites the one from which that chunk started.

SIZE is the number of coefficients per unit: 1 for numbers, 2 for complex numbers as pairs, 4 for
pairs with a 2×2 matrix. They are the same at every step or, with PER_STEP, a sequence.
"""

# pyright: basic, reportMissingImports=false, reportInvalidTypeForm=false
# pyright: reportGeneralTypeIssues=false, reportAssignmentType=false, reportArgumentType=false
from __future__ import annotations

import triton
import triton.language as tl

from undamped.kernels.shared.gpu import (
    BLOCK,
    STAGES,
    clear_rows,
    load,
    load_before,
    program_columns,
)

CHUNK = tl.constexpr(256)
"""Steps of a chunk: sums over one are in the type of the inputs, sums of those in double."""


@triton.jit
def program_chunk(remaining, steps, hidden, LENGTHS: tl.constexpr):
    """Return the work of a program.

    These are its units, which of them exist, the offset of its sequence in the first row of the
    chunk and in a row of chunks, the length of a row, the first step, how many steps there are and
    how many are left.
    """
    h, inside, at, columns, live = program_columns(remaining, steps, hidden, LENGTHS)
    index = tl.cast(tl.program_id(2), tl.int64)
    begin = tl.program_id(2) * CHUNK
    count = tl.minimum(steps - begin, CHUNK)
    live = tl.minimum(tl.maximum(live - begin, 0), count)
    return (
        h,
        inside,
        index * CHUNK * columns + at,
        index * columns + at,
        columns,
        begin,
        count,
        live,
    )


@triton.jit
def load_pair(row, h, inside, WIDTH: tl.constexpr):
    """Return a number of each unit twice, or the two numbers of a pair."""
    x = tl.load(row + WIDTH * h, mask=inside, other=0.0)
    y = x
    if WIDTH == 2:
        y = tl.load(row + 2 * h + 1, mask=inside, other=0.0)
    return x, y


@triton.jit
def store_pair(row, h, inside, x, y, WIDTH: tl.constexpr):
    """Write a number of each unit, or a pair."""
    tl.store(row + WIDTH * h, x, mask=inside)
    if WIDTH == 2:
        tl.store(row + 2 * h + 1, y, mask=inside)


@triton.jit
def load_matrix(row, h, inside, SIZE: tl.constexpr):
    """Return the matrix of each unit; [[a, −b], [b, a]] for a complex number, a four times."""
    m0 = tl.load(row + SIZE * h, mask=inside, other=0.0)
    m1, m2, m3 = m0, m0, m0
    if SIZE == 2:
        m2 = tl.load(row + 2 * h + 1, mask=inside, other=0.0)
        m1 = -m2
    if SIZE == 4:
        m1 = tl.load(row + 4 * h + 1, mask=inside, other=0.0)
        m2 = tl.load(row + 4 * h + 2, mask=inside, other=0.0)
        m3 = tl.load(row + 4 * h + 3, mask=inside, other=0.0)
    return m0, m1, m2, m3


@triton.jit
def store_matrix(row, h, inside, m0, m1, m2, m3, SIZE: tl.constexpr):
    """Write the coefficients of each unit."""
    tl.store(row + SIZE * h, m0, mask=inside)
    if SIZE == 4:
        tl.store(row + 4 * h + 1, m1, mask=inside)
        tl.store(row + 4 * h + 3, m3, mask=inside)
    if SIZE > 1:
        tl.store(row + SIZE * h + SIZE // 2, m2, mask=inside)


@triton.jit(do_not_specialize=["steps"])
def linear_summary(
    inputs,
    coefficients,
    summands,  # (chunks, columns[, 2]), written as the next
    products,  # (chunks, columns[, 4])
    remaining,
    steps,
    hidden,
    LENGTHS: tl.constexpr,
    PER_STEP: tl.constexpr,
    BACKWARD: tl.constexpr,
    SIZE: tl.constexpr,
):
    """The effect of a chunk on a state, or, from the gradients of outputs, on its gradient."""
    WIDTH: tl.constexpr = 1 if SIZE == 1 else 2
    h, inside, at, chunk_at, columns, _, _, live = program_chunk(remaining, steps, hidden, LENGTHS)
    stride = columns
    if BACKWARD:
        at += tl.cast(live - 1, tl.int64) * columns
        stride = -columns
    row = inputs + WIDTH * at
    factors = coefficients
    if PER_STEP:
        factors += SIZE * at
    x = tl.zeros([BLOCK], inputs.dtype.element_ty)
    y = x
    p0, p1, p2, p3 = x + 1.0, x, x, x + 1.0
    m0, m1, m2, m3 = load_matrix(coefficients, h, inside, SIZE)
    for _ in tl.range(0, live, num_stages=STAGES):
        if PER_STEP:
            m0, m1, m2, m3 = load_matrix(factors, h, inside, SIZE)
            factors += SIZE * stride
        u, v = load_pair(row, h, inside, WIDTH)
        row += WIDTH * stride
        if WIDTH == 1:
            x = m0 * (x + u) if BACKWARD else m0 * x + u
            p0 *= m0
        elif BACKWARD:  # by the transposed matrix, after the sum
            x, y = m0 * (x + u) + m2 * (y + v), m1 * (x + u) + m3 * (y + v)
            p0, p2 = m0 * p0 + m2 * p2, m1 * p0 + m3 * p2
            p1, p3 = m0 * p1 + m2 * p3, m1 * p1 + m3 * p3
        else:
            x, y = m0 * x + (m1 * y + u), m2 * x + (m3 * y + v)
            p0, p2 = m0 * p0 + m1 * p2, m2 * p0 + m3 * p2
            p1, p3 = m0 * p1 + m1 * p3, m2 * p1 + m3 * p3
    store_pair(summands + WIDTH * chunk_at, h, inside, x, y, WIDTH)
    store_matrix(products + WIDTH * WIDTH * chunk_at, h, inside, p0, p1, p2, p3, WIDTH * WIDTH)


@triton.jit(do_not_specialize=["steps"])
def linear_forward(
    inputs,
    coefficients,
    outputs,
    starts,  # (chunks, columns[, 2]), states before each chunk
    remaining,
    steps,
    hidden,
    LENGTHS: tl.constexpr,
    PER_STEP: tl.constexpr,
    SIZE: tl.constexpr,
):
    """h' = a h + u, or (x, y)' = [[m₀, m₁], [m₂, m₃]] (x, y) + (u, v)."""
    WIDTH: tl.constexpr = 1 if SIZE == 1 else 2
    h, inside, at, chunk_at, columns, _, count, live = program_chunk(
        remaining, steps, hidden, LENGTHS
    )
    row = inputs + WIDTH * at
    out = outputs + WIDTH * at
    factors = coefficients
    if PER_STEP:
        factors += SIZE * at
    x, y = load_pair(starts + WIDTH * chunk_at, h, inside, WIDTH)
    m0, m1, m2, m3 = load_matrix(coefficients, h, inside, SIZE)
    for _ in tl.range(0, live, num_stages=STAGES):
        if PER_STEP:
            m0, m1, m2, m3 = load_matrix(factors, h, inside, SIZE)
            factors += SIZE * columns
        u, v = load_pair(row, h, inside, WIDTH)
        row += WIDTH * columns
        if WIDTH == 1:
            x = m0 * x + u
        else:
            x, y = m0 * x + (m1 * y + u), m2 * x + (m3 * y + v)
        store_pair(out, h, inside, x, y, WIDTH)
        out += WIDTH * columns
    if LENGTHS:
        for k in tl.static_range(WIDTH):
            clear_rows(outputs + WIDTH * at + k, WIDTH * h, inside, live, count, WIDTH * columns)
    if tl.program_id(2) == tl.num_programs(2) - 1:
        store_pair(starts + WIDTH * chunk_at, h, inside, x, y, WIDTH)


@triton.jit(do_not_specialize=["steps"])
def linear_backward(
    outputs,
    grad,
    grad_inputs,
    coefficients,
    grad_coefficients,  # like them with PER_STEP, else (chunks, columns[, 4])
    starts,  # (chunks, columns[, 2]), gradients of the states after each chunk
    remaining,
    steps,
    hidden,
    LENGTHS: tl.constexpr,
    PER_STEP: tl.constexpr,
    SIZE: tl.constexpr,
):
    """Gradients from the end to the start, from the states alone; before the first is zero."""
    WIDTH: tl.constexpr = 1 if SIZE == 1 else 2
    h, inside, at, chunk_at, columns, begin, count, live = program_chunk(
        remaining, steps, hidden, LENGTHS
    )
    last = at + tl.cast(live - 1, tl.int64) * columns
    grad_row = grad + WIDTH * last
    before = outputs + WIDTH * (last - columns)
    out = grad_inputs + WIDTH * last
    factors = coefficients
    out_factors = grad_coefficients
    if PER_STEP:
        factors += SIZE * last
        out_factors += SIZE * last
    gx, gy = load_pair(starts + WIDTH * chunk_at, h, inside, WIDTH)
    t0 = tl.zeros_like(gx)
    t1, t2, t3 = t0, t0, t0
    m0, m1, m2, m3 = load_matrix(coefficients, h, inside, SIZE)
    for back in tl.range(0, live, num_stages=STAGES):
        if PER_STEP:
            m0, m1, m2, m3 = load_matrix(factors, h, inside, SIZE)
            factors -= SIZE * columns
        u, v = load_pair(grad_row, h, inside, WIDTH)
        grad_row -= WIDTH * columns
        hx, hy = gx + u, gy + v
        x, y = load_pair(before, h, h < tl.where(begin + live - 1 - back > 0, hidden, 0), WIDTH)
        before -= WIDTH * columns
        store_pair(out, h, inside, hx, hy, WIDTH)
        out -= WIDTH * columns
        if WIDTH == 1:
            gx = m0 * hx
        else:
            gx, gy = m0 * hx + m2 * hy, m1 * hx + m3 * hy
        if not PER_STEP:
            t0 += hx * x
            if WIDTH == 2:
                t1 += hx * y
                t2 += hy * x
                t3 += hy * y
        else:
            if SIZE == 2:
                store_pair(out_factors, h, inside, hx * x + hy * y, hy * x - hx * y, 2)
            else:
                store_matrix(out_factors, h, inside, hx * x, hx * y, hy * x, hy * y, SIZE)
            out_factors -= SIZE * columns
    if LENGTHS:
        for k in tl.static_range(WIDTH):
            row = grad_inputs + WIDTH * at + k
            clear_rows(row, WIDTH * h, inside, live, count, WIDTH * columns)
        if PER_STEP:
            for k in tl.static_range(SIZE):
                row = grad_coefficients + SIZE * at + k
                clear_rows(row, SIZE * h, inside, live, count, SIZE * columns)
    if not PER_STEP:
        sums = grad_coefficients + WIDTH * WIDTH * chunk_at
        store_matrix(sums, h, inside, t0, t1, t2, t3, WIDTH * WIDTH)
    if tl.program_id(2) == 0:
        store_pair(starts + WIDTH * chunk_at, h, inside, gx, gy, WIDTH)


# Forced oscillators: constants are a, k, f and s, and the state is position and velocity. Only
# positions are written; the backward pass recomputes velocities from the states at the start of
# every chunk, damped or not.


@triton.jit(do_not_specialize=["steps"])
def forced_summary(
    inputs,
    constants,
    summands,
    products,
    remaining,
    steps,
    hidden,
    LENGTHS: tl.constexpr,
    BACKWARD: tl.constexpr,
):
    """The effect of a chunk on position and velocity, or on their gradients."""
    h, inside, at, chunk_at, columns, _, _, live = program_chunk(remaining, steps, hidden, LENGTHS)
    stride = columns
    if BACKWARD:
        at += tl.cast(live - 1, tl.int64) * columns
        stride = -columns
    row = inputs + at
    a = load(constants, h, inside)
    k = load(constants + hidden, h, inside)
    f = load(constants + 2 * hidden, h, inside)
    s = load(constants + 3 * hidden, h, inside)
    x, z = tl.zeros_like(a), tl.zeros_like(a)
    p0, p1, p2, p3 = x + 1.0, x, x, x + 1.0
    for _ in tl.range(0, live, num_stages=STAGES):
        u = load(row, h, inside)
        row += stride
        if BACKWARD:
            x += u
            z += s * x
            x -= k * z
            z = a * z
            p2 += s * p0
            p0 -= k * p2
            p2 = a * p2
            p3 += s * p1
            p1 -= k * p3
            p3 = a * p3
        else:
            z = a * z + (f * u - k * x)
            x = x + s * z
            p2 = a * p2 - k * p0
            p0 = p0 + s * p2
            p3 = a * p3 - k * p1
            p1 = p1 + s * p3
    store_pair(summands + 2 * chunk_at, h, inside, x, z, 2)
    store_matrix(products + 4 * chunk_at, h, inside, p0, p1, p2, p3, 4)


@triton.jit(do_not_specialize=["steps"])
def forced_forward(
    inputs,
    constants,
    outputs,
    starts,  # (chunks, columns, 2), position and velocity before each chunk
    remaining,
    steps,
    hidden,
    LENGTHS: tl.constexpr,
    VELOCITIES: tl.constexpr,
):
    """z' = a z − k x + f u, x' = x + s z'; with VELOCITIES those before every step are written."""
    h, inside, at, chunk_at, columns, _, count, live = program_chunk(
        remaining, steps, hidden, LENGTHS
    )
    row = inputs + at
    out = outputs + at
    a = load(constants, h, inside)
    k = load(constants + hidden, h, inside)
    f = load(constants + 2 * hidden, h, inside)
    s = load(constants + 3 * hidden, h, inside)
    x, z = load_pair(starts + 2 * chunk_at, h, inside, 2)
    for _ in tl.range(0, live, num_stages=STAGES):
        u = load(row, h, inside)
        row += columns
        if VELOCITIES:
            tl.store(out + h, z, mask=inside)
        z = a * z + (f * u - k * x)
        x = x + s * z
        if not VELOCITIES:
            tl.store(out + h, x, mask=inside)
        out += columns
    if not VELOCITIES:
        if LENGTHS:
            clear_rows(outputs + at, h, inside, live, count, columns)
        if tl.program_id(2) == tl.num_programs(2) - 1:
            store_pair(starts + 2 * chunk_at, h, inside, x, z, 2)


@triton.jit(do_not_specialize=["steps"])
def forced_backward(
    inputs,
    outputs,
    velocities,  # before every step
    grad,
    grad_inputs,
    constants,  # and, after them, the position before the first step
    chunk_sums,  # (chunks, a and k and f and s, columns)
    starts,  # (chunks, columns, 2), gradients of position and velocity after each chunk
    remaining,
    steps,
    hidden,
    LENGTHS: tl.constexpr,
):
    """Gradients from the end to the start."""
    h, inside, at, chunk_at, columns, begin, count, live = program_chunk(
        remaining, steps, hidden, LENGTHS
    )
    last = at + tl.cast(live - 1, tl.int64) * columns
    row = inputs + last
    before = outputs + last - columns
    velocity = velocities + last
    grad_row = grad + last
    out = grad_inputs + last
    a = load(constants, h, inside)
    k = load(constants + hidden, h, inside)
    f = load(constants + 2 * hidden, h, inside)
    s = load(constants + 3 * hidden, h, inside)
    first = load(constants + 4 * hidden + tl.program_id(0) * hidden, h, inside)
    ga = tl.zeros_like(a)
    gk, gf, gs = ga, ga, ga
    gx, gz = load_pair(starts + 2 * chunk_at, h, inside, 2)
    for back in tl.range(0, live, num_stages=STAGES):
        gx += load(grad_row, h, inside)
        grad_row -= columns
        gz += s * gx
        x = load_before(before, first, h, hidden, begin + live - 1 - back == 0)
        before -= columns
        u = load(row, h, inside)
        row -= columns
        z = load(velocity, h, inside)
        velocity -= columns
        tl.store(out + h, f * gz, mask=inside)
        out -= columns
        ga += gz * z
        gk -= gz * x
        gf += gz * u
        gs += gx * (a * z + (f * u - k * x))
        gx -= k * gz
        gz = a * gz
    if LENGTHS:
        clear_rows(grad_inputs + at, h, inside, live, count, columns)
    total = chunk_sums + 3 * tl.cast(tl.program_id(2), tl.int64) * columns + chunk_at + h
    tl.store(total, ga, mask=inside)
    tl.store(total + columns, gk, mask=inside)
    tl.store(total + 2 * columns, gf, mask=inside)
    tl.store(total + 3 * columns, gs, mask=inside)
    if tl.program_id(2) == 0:
        store_pair(starts + 2 * chunk_at, h, inside, gx, gz, 2)
