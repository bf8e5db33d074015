"""The common parts of kernels for GPUs: sizes, tanh, loads, lengths and the launch. Experimental.

They are written in Triton, which only these modules import. A program has one sequence and `BLOCK`
of its units, keeps their state in registers and iterates over time; the units of a sequence are
adjacent in memory, so that a row is one contiguous read. Loads run some steps ahead of the
arithmetic (`STAGES`, by Triton's pipeline). Sizes are fixed and were not tuned on a GPU.

Pointers of a kernel come in the order of `columns.GPUColumns.run`: sequences (steps, columns), the
first row if there is one, sums (sums, columns) in double precision, constants (constants, hidden),
states (states, columns), and `remaining` (batch,), the remaining steps of each sequence. A program
runs these steps and writes zeros for the others.
"""

# pyright: basic, reportMissingImports=false, reportInvalidTypeForm=false
# pyright: reportGeneralTypeIssues=false, reportAssignmentType=false
from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = tl.constexpr(64)  # units of a program: two for each lane of a warp of 32, one of 64
STAGES = tl.constexpr(4)
OPTIONS = {"num_warps": 1, "enable_fp_fusion": True}

# x·P(x²)/Q(x²), fitted to tanh on |x| ≤ LIMIT for the smallest relative error (1.2e-7 before
# rounding). Beyond SATURATED tanh is exactly 1, so that its slope 1 − tanh² vanishes there.
LIMIT, SATURATED = tl.constexpr(7.8), tl.constexpr(8.3)
P0, P1 = tl.constexpr(0.999999882792306), tl.constexpr(0.12943115848576048)
P2, P3 = tl.constexpr(0.0029698889722261936), tl.constexpr(1.1635718739562427e-05)
Q1, Q2 = tl.constexpr(0.46276352812582855), tl.constexpr(0.02389239740809083)
Q3, Q4 = tl.constexpr(0.00024135460264867507), tl.constexpr(2.526236327925058e-07)


@triton.jit
def tanh(x):
    """Return tanh(x): in float32 a quotient of polynomials, in float64 by exp."""
    if x.dtype == tl.float64:
        u = x * x
        small = x * (1.0 + u * (-1 / 3 + u * (2 / 15 + u * (-17 / 315 + u * (62 / 2835)))))
        e = tl.exp(-2.0 * tl.abs(x))
        large = (1.0 - e) / (1.0 + e)
        large = tl.where(x < 0.0, -large, large)
        # For small x, 1 − e⁻²ˣ has lost digits; the series has not.
        return tl.where(u < 0.0009765625, small, large)
    size = tl.abs(x)
    c = tl.where(size > LIMIT, LIMIT, size)  # a comparison that keeps NaN
    u = c * c
    p = P0 + u * (P1 + u * (P2 + u * P3))
    q = 1.0 + u * (Q1 + u * (Q2 + u * (Q3 + u * Q4)))
    value = tl.where(size > SATURATED, 1.0, c * p / q)
    return tl.where(x < 0.0, -value, value)


@triton.jit
def sigmoid(x):
    """Return 1/(1 + e⁻ˣ)."""
    e = tl.exp(-tl.abs(x))
    return tl.where(x < 0.0, e, 1.0) / (1.0 + e)


@triton.jit
def program_columns(remaining, steps, hidden, LENGTHS: tl.constexpr):
    """Return the work of a program.

    These are its units, which of them exist, where its sequence begins in a row, the length of a
    row, and the number of steps that are left.
    """
    b = tl.program_id(0)
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    live = steps
    if LENGTHS:
        live = tl.load(remaining + b)
    return h, h < hidden, tl.cast(b, tl.int64) * hidden, tl.num_programs(0) * hidden, live


@triton.jit
def load(row, h, inside):
    """Return the numbers of a program's units."""
    return tl.load(row + h, mask=inside, other=0.0)


@triton.jit
def load_before(row, first, h, hidden, is_first):
    """Return the numbers of a row, or `first` where there is no row before the first step."""
    width = tl.where(is_first, 0, hidden)
    return tl.where(h < width, tl.load(row + h, mask=h < width, other=0.0), first)


@triton.jit
def add(sums, h, inside, total):
    """Add to sums in double precision."""
    tl.store(sums + h, load(sums, h, inside) + total, mask=inside)


@triton.jit
def clear_rows(row, h, inside, start, stop, columns):
    """Write zeros to the rows from `start` to `stop`, where a sequence has ended."""
    row += tl.cast(start, tl.int64) * columns
    zeros = tl.zeros([BLOCK], row.dtype.element_ty)
    for _ in tl.range(start, stop):
        tl.store(row + h, zeros, mask=inside)
        row += columns


def launch(
    kernel: Any,
    tensors: Sequence[Tensor],
    remaining: Tensor | None,
    sizes: tuple[int, int, int],
    *chunks: int,
    **flags: bool,
) -> None:
    """Start a kernel on the device of its first tensor.

    Args:
        kernel: The Triton function.
        tensors: Its pointers, in order.
        remaining: (batch,) integers, or None if all sequences have all steps.
        sizes: (steps, batch, hidden).
        chunks: A third dimension of the grid.
        flags: Its compile-time constants, besides LENGTHS.
    """
    (steps, batch, hidden), device = sizes, tensors[0].device
    counts = tensors[0]  # an argument that is not read
    if remaining is not None:
        counts = remaining.to(device, torch.int32).contiguous()
    grid = (batch, triton.cdiv(hidden, BLOCK.value), *chunks)
    # Triton uses the current device, not that of the tensors.
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        kernel[grid](
            *tensors, counts, steps, hidden, LENGTHS=remaining is not None, **flags, **OPTIONS
        )
