"""Driven linear oscillators for GPUs, in Triton, in chunks of time as in `gpu`. Experimental.

What a chunk does to position and velocity is a 2×2 matrix and a pair, so `gpu_scan` goes from
chunk to chunk. Only positions are written; the backward pass finds velocities again from those at
the start of every chunk, damped or not, and keeps them while it lasts.
"""

# pyright: basic, reportMissingImports=false, reportInvalidTypeForm=false
# pyright: reportGeneralTypeIssues=false, reportAssignmentType=false
from __future__ import annotations

import triton
import triton.language as tl

from undamped.kernels.linear.gpu import chunk_of, store_summary


@triton.jit(do_not_specialize=["steps"])
def forced_forward(
    inputs,  # (steps, columns)
    coefficients,  # (a, k, f, s; hidden)
    outputs,  # (steps, columns)
    starts,  # (chunks, columns, 2), position and velocity before each chunk
    final,  # (columns, 2)
    ends,  # (chunks, columns, 2), written with SUMMARY, as the next
    products,  # (chunks, columns, 4)
    lengths,
    steps,
    chunk,
    hidden,
    columns,
    SUMMARY: tl.constexpr,
    VELOCITIES: tl.constexpr,
    LENGTHS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """z' = a z − k x + f u, x' = x + s z'; with VELOCITIES those before every step are written."""
    b = tl.program_id(0)
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = h < hidden
    at = tl.cast(b, tl.int64) * hidden
    begin, count, live = chunk_of(lengths, b, steps, chunk, LENGTHS)
    summary_at = tl.cast(tl.program_id(2), tl.int64) * columns + at
    row = inputs + begin * columns + at
    out = outputs + begin * columns + at
    a = tl.load(coefficients + h, mask=inside, other=0.0)
    k = tl.load(coefficients + hidden + h, mask=inside, other=0.0)
    f = tl.load(coefficients + 2 * hidden + h, mask=inside, other=0.0)
    s = tl.load(coefficients + 3 * hidden + h, mask=inside, other=0.0)
    x, z = tl.zeros_like(a), tl.zeros_like(a)
    p0, p1, p2, p3 = x + 1.0, x, x, x + 1.0
    if not SUMMARY:
        x = tl.load(starts + 2 * (summary_at + h), mask=inside, other=0.0)
        z = tl.load(starts + 2 * (summary_at + h) + 1, mask=inside, other=0.0)
    for _ in tl.range(0, live, num_stages=STAGES):
        u = tl.load(row + h, mask=inside, other=0.0)
        row += columns
        if VELOCITIES:
            tl.store(out + h, z, mask=inside)
        z = a * z + (f * u - k * x)
        x = x + s * z
        if SUMMARY:
            p2 = a * p2 - k * p0
            p0 = p0 + s * p2
            p3 = a * p3 - k * p1
            p1 = p1 + s * p3
        else:
            if not VELOCITIES:
                tl.store(out + h, x, mask=inside)
            out += columns
    if SUMMARY:
        store_summary(ends, products, summary_at, h, inside, x, z, p0, p1, p2, p3)
    else:
        if not VELOCITIES:
            if LENGTHS:
                for _ in tl.range(live, count):
                    tl.store(out + h, tl.zeros_like(x), mask=inside)
                    out += columns
            if tl.program_id(2) == tl.num_programs(2) - 1:
                tl.store(final + 2 * (at + h), x, mask=inside)
                tl.store(final + 2 * (at + h) + 1, z, mask=inside)


@triton.jit(do_not_specialize=["steps"])
def forced_backward(
    inputs,
    outputs,
    velocities,  # (steps, columns), before every step
    grad,
    grad_inputs,
    first,  # (columns,) the position before the first step
    coefficients,
    starts,  # (chunks, columns, 2), gradients of position and velocity after each chunk
    final,  # (columns, 2)
    sums,  # (chunks, a and k and f and s, columns)
    ends,
    products,
    lengths,
    steps,
    chunk,
    hidden,
    columns,
    SUMMARY: tl.constexpr,
    LENGTHS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Gradients from the end to the start."""
    b = tl.program_id(0)
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = h < hidden
    at = tl.cast(b, tl.int64) * hidden
    begin, count, live = chunk_of(lengths, b, steps, chunk, LENGTHS)
    number = tl.cast(tl.program_id(2), tl.int64)
    summary_at = number * columns + at
    last = (begin + live - 1) * columns + at
    row = inputs + last
    before = outputs + last - columns
    velocity = velocities + last
    grad_row = grad + last
    out = grad_inputs + last
    a = tl.load(coefficients + h, mask=inside, other=0.0)
    k = tl.load(coefficients + hidden + h, mask=inside, other=0.0)
    f = tl.load(coefficients + 2 * hidden + h, mask=inside, other=0.0)
    s = tl.load(coefficients + 3 * hidden + h, mask=inside, other=0.0)
    zeros = tl.zeros_like(a)
    gx, gz = zeros, zeros
    p0, p1, p2, p3 = zeros + 1.0, zeros, zeros, zeros + 1.0
    ga, gk, gf, gs = zeros, zeros, zeros, zeros
    if not SUMMARY:
        gx = tl.load(starts + 2 * (summary_at + h), mask=inside, other=0.0)
        gz = tl.load(starts + 2 * (summary_at + h) + 1, mask=inside, other=0.0)
        if LENGTHS:
            spare = grad_inputs + (begin + live) * columns + at
            for _ in tl.range(live, count):
                tl.store(spare + h, zeros, mask=inside)
                spare += columns
    begin_position = tl.load(first + at + h, mask=inside, other=0.0)
    for back in tl.range(0, live, num_stages=STAGES):
        gx += tl.load(grad_row + h, mask=inside, other=0.0)
        grad_row -= columns
        gz += s * gx
        if SUMMARY:
            p2 += s * p0
            p0 -= k * p2
            p2 = a * p2
            p3 += s * p1
            p1 -= k * p3
            p3 = a * p3
        else:
            width = tl.where(begin + live - 1 - back > 0, hidden, 0)
            x0 = tl.load(before + h, mask=h < width, other=0.0)
            x0 = tl.where(h < width, x0, begin_position)
            before -= columns
            u = tl.load(row + h, mask=inside, other=0.0)
            row -= columns
            z0 = tl.load(velocity + h, mask=inside, other=0.0)
            velocity -= columns
            tl.store(out + h, f * gz, mask=inside)
            out -= columns
            ga += gz * z0
            gk -= gz * x0
            gf += gz * u
            gs += gx * (a * z0 + (f * u - k * x0))
        gx -= k * gz
        gz = a * gz
    if SUMMARY:
        store_summary(ends, products, summary_at, h, inside, gx, gz, p0, p1, p2, p3)
    else:
        total = sums + number * 4 * columns + at + h
        tl.store(total, ga, mask=inside)
        tl.store(total + columns, gk, mask=inside)
        tl.store(total + 2 * columns, gf, mask=inside)
        tl.store(total + 3 * columns, gs, mask=inside)
        if tl.program_id(2) == 0:
            tl.store(final + 2 * (at + h), gx, mask=inside)
            tl.store(final + 2 * (at + h) + 1, gz, mask=inside)
