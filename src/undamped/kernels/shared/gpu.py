"""What the kernels for GPUs share: sizes, tanh, lengths and the launch. Experimental.

They are written in Triton, which is imported with this module and not before. A program takes one
sequence and `BLOCK` of its units, keeps their state in registers and goes through time; units lie
side by side in memory, so a row is read in one piece. Loads run some steps ahead of the arithmetic
(`STAGES`, by Triton's pipeline). Sizes are fixed: there was no GPU to choose them by.
"""

# pyright: basic, reportMissingImports=false, reportInvalidTypeForm=false
# pyright: reportGeneralTypeIssues=false, reportAssignmentType=false
from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 64  # units of a program: two for each lane of a warp of 32, one where it has 64
WARPS = 1
STAGES = 4
OPTIONS = {"num_warps": WARPS, "enable_fp_fusion": True}

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
        # One minus something near one has lost its digits; the series has them.
        return tl.where(u < 0.0009765625, small, large)
    size = tl.abs(x)
    c = tl.where(size > LIMIT, LIMIT, size)  # written so that a NaN passes
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


def launch(kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], **choices: Any) -> None:
    """Start a kernel on the device of its first tensor.

    Args:
        kernel: The Triton function.
        grid: (sequences, units[, chunks]); the units are divided into blocks here.
        arguments: What it takes, in order.
        choices: What it is compiled for.
    """
    batch, hidden, *chunks = grid
    blocks = (batch, triton.cdiv(hidden, BLOCK), *chunks)
    with _current(arguments[0]):
        kernel[blocks](*arguments, **choices, BLOCK=BLOCK, STAGES=STAGES, **OPTIONS)


def _current(tensor: Tensor) -> AbstractContextManager[Any]:
    # Triton takes the current device, whatever its tensors are on.
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def lengths_or(lengths: Tensor | None, unused: Tensor) -> tuple[bool, Tensor]:
    """Say whether there are lengths, and return them as the kernels read them.

    Args:
        lengths: (batch,) where sequences are over, or None.
        unused: Any tensor; it stands for lengths that nobody reads.
    """
    if lengths is None or not len(lengths):
        return False, unused
    return True, lengths.to(unused.device, torch.int32).contiguous()


def left(lengths: Tensor | None, start: int, stop: int) -> Tensor | None:
    """Return how many of the steps from `start` to `stop` each sequence lives."""
    return None if lengths is None else (lengths - start).clamp(0, stop - start)


def number(value: float, like: Tensor) -> Tensor:
    """Return a number as a tensor: a kernel would take a Python float in single precision."""
    return like.new_full((1,), value)


Kernel = Callable[..., None]
