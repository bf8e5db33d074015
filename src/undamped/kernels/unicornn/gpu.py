"""UnICORNN's scan over time for GPUs, in Triton; the contract is that of `compiled`. Experimental.

Arguments are those of the compiled kernels and in their order, as tensors of one device: sequences
(steps, columns), states (columns,), a restoring force of one number, and `remaining` (batch,), how
many of these steps each sequence still lives. A program has one sequence, so it makes the steps
that are left and writes zeros for the others.
"""

# pyright: basic, reportMissingImports=false, reportInvalidTypeForm=false
# pyright: reportGeneralTypeIssues=false, reportAssignmentType=false
from __future__ import annotations

from functools import cache
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from undamped.kernels.shared.gpu import Kernel, launch, tanh


@triton.jit(do_not_specialize=["steps"])
def oscillator_forward(
    projected,
    positions,
    weight,
    step,
    bias,
    alpha,
    y,
    z,
    remaining,
    steps,
    hidden,
    columns,
    LENGTHS: tl.constexpr,
    KEEP: tl.constexpr,
    KNOWN: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """The scan; with KEEP tanh is written over `projected`, with KNOWN it is there already."""
    b = tl.program_id(0)
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    here = h < hidden
    at = tl.cast(b, tl.int64) * hidden
    live = steps
    if LENGTHS:
        live = tl.load(remaining + b)
    w = tl.load(weight + h, mask=here, other=0.0)
    s = tl.load(step + h, mask=here, other=0.0)
    bent = tl.load(bias + h, mask=here, other=0.0)
    pull = tl.load(alpha)
    y0 = tl.load(y + at + h, mask=here, other=0.0)
    z0 = tl.load(z + at + h, mask=here, other=0.0)
    row = projected + at
    out = positions + at
    for _ in tl.range(0, live, num_stages=STAGES):
        value = tl.load(row + h, mask=here, other=0.0)
        if not KNOWN:
            value = tanh(w * y0 + (value + bent))
        if KEEP:
            tl.store(row + h, value, mask=here)
        z0 = z0 - s * (value + pull * y0)
        y0 = y0 + s * z0
        tl.store(out + h, y0, mask=here)
        row += columns
        out += columns
    if LENGTHS:
        for _ in tl.range(live, steps):
            tl.store(out + h, tl.zeros_like(y0), mask=here)
            out += columns
    tl.store(y + at + h, y0, mask=here)
    tl.store(z + at + h, z0, mask=here)


@triton.jit(do_not_specialize=["steps"])
def oscillator_inverse(
    projected,
    positions,
    weight,
    step,
    bias,
    alpha,
    y,
    z,
    remaining,
    steps,
    hidden,
    columns,
    LENGTHS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """The scan backwards in time, from the state at the end to the one at the start."""
    b = tl.program_id(0)
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    here = h < hidden
    at = tl.cast(b, tl.int64) * hidden
    live = steps
    if LENGTHS:
        live = tl.load(remaining + b)
    w = tl.load(weight + h, mask=here, other=0.0)
    s = tl.load(step + h, mask=here, other=0.0)
    bent = tl.load(bias + h, mask=here, other=0.0)
    pull = tl.load(alpha)
    y1 = tl.load(y + at + h, mask=here, other=0.0)
    z1 = tl.load(z + at + h, mask=here, other=0.0)
    if LENGTHS:
        spare = positions + at + tl.cast(live, tl.int64) * columns
        for _ in tl.range(live, steps):
            tl.store(spare + h, tl.zeros_like(y1), mask=here)
            spare += columns
    last = tl.cast(live - 1, tl.int64) * columns
    row = projected + at + last
    out = positions + at + last
    for _ in tl.range(0, live, num_stages=STAGES):
        value = tl.load(row + h, mask=here, other=0.0)
        tl.store(out + h, y1, mask=here)
        y1 = y1 - s * z1
        value = tanh(w * y1 + (value + bent))
        tl.store(row + h, value, mask=here)
        z1 = z1 + s * (value + pull * y1)
        row -= columns
        out -= columns
    tl.store(y + at + h, y1, mask=here)
    tl.store(z + at + h, z1, mask=here)


@triton.jit(do_not_specialize=["steps"])
def oscillator_backward(
    positions,
    tanh_values,
    grad,
    grad_projected,
    first,
    weight,
    step,
    alpha,
    z,
    gy,
    gz,
    grad_weight,
    grad_step,
    grad_bias,
    remaining,
    steps,
    hidden,
    columns,
    LENGTHS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Gradients from the end to the start; sums are added to in double precision."""
    b = tl.program_id(0)
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    here = h < hidden
    at = tl.cast(b, tl.int64) * hidden
    live = steps
    if LENGTHS:
        live = tl.load(remaining + b)
    w = tl.load(weight + h, mask=here, other=0.0)
    s = tl.load(step + h, mask=here, other=0.0)
    pull = tl.load(alpha)
    begin = tl.load(first + at + h, mask=here, other=0.0)
    z1 = tl.load(z + at + h, mask=here, other=0.0)
    gy1 = tl.load(gy + at + h, mask=here, other=0.0)
    gz1 = tl.load(gz + at + h, mask=here, other=0.0)
    gw = tl.zeros_like(w)
    gs = tl.zeros_like(w)
    gb = tl.zeros_like(w)
    if LENGTHS:
        spare = grad_projected + at + tl.cast(live, tl.int64) * columns
        for _ in tl.range(live, steps):
            tl.store(spare + h, tl.zeros_like(w), mask=here)
            spare += columns
    last = at + tl.cast(live - 1, tl.int64) * columns
    before = positions + last - columns
    values = tanh_values + last
    given = grad + last
    out = grad_projected + last
    for back in tl.range(0, live, num_stages=STAGES):
        width = tl.where(back < live - 1, hidden, 0)  # before the first step is no row
        y0 = tl.load(before + h, mask=h < width, other=0.0)
        y0 = tl.where(h < width, y0, begin)
        value = tl.load(values + h, mask=here, other=0.0)
        gy1 += tl.load(given + h, mask=here, other=0.0)
        gz1 += s * gy1
        force = value + pull * y0
        inner = -s * gz1
        ga = inner * (1.0 - value * value)
        gs += gy1 * z1 - gz1 * force
        gw += ga * y0
        gb += ga
        gy1 += inner * pull + ga * w
        z1 += s * force
        tl.store(out + h, ga, mask=here)
        before -= columns
        values -= columns
        given -= columns
        out -= columns
    tl.store(gy + at + h, gy1, mask=here)
    tl.store(gz + at + h, gz1, mask=here)
    for_weight = tl.load(grad_weight + at + h, mask=here, other=0.0)
    tl.store(grad_weight + at + h, for_weight + gw, mask=here)
    for_step = tl.load(grad_step + at + h, mask=here, other=0.0)
    tl.store(grad_step + at + h, for_step + gs, mask=here)
    for_bias = tl.load(grad_bias + at + h, mask=here, other=0.0)
    tl.store(grad_bias + at + h, for_bias + gb, mask=here)


def _grid(weight: Tensor, state: Tensor) -> tuple[int, int]:
    hidden = weight.shape[0]
    return state.numel() // hidden, hidden


@cache
def forward(masked: bool) -> Kernel:
    """The scan; positions are written over `projected`."""

    def run(projected: Tensor, weight: Tensor, *rest: Any) -> None:
        forward_to(masked)(projected, projected, weight, *rest)

    return run


@cache
def forward_to(masked: bool) -> Kernel:
    """The scan; positions are written into their own, `projected` stays."""
    return _over_time(oscillator_forward, LENGTHS=masked, KEEP=False, KNOWN=False)


@cache
def forward_keep(masked: bool, known: bool = False) -> Kernel:
    """The scan; the values of tanh are written over `projected`, or, if `known`, read there."""
    return _over_time(oscillator_forward, LENGTHS=masked, KEEP=not known, KNOWN=known)


@cache
def inverse(masked: bool) -> Kernel:
    """The scan backwards in time (eq. 7); it leaves what `forward_keep` leaves."""
    return _over_time(oscillator_inverse, LENGTHS=masked)


def _over_time(kernel: Any, **choices: bool) -> Kernel:
    def run(
        projected: Tensor,
        positions: Tensor,
        weight: Tensor,
        step: Tensor,
        bias: Tensor,
        alpha: Tensor,
        y: Tensor,
        z: Tensor,
        remaining: Tensor,
    ) -> None:
        batch, hidden = _grid(weight, y)
        arguments = (projected, positions, weight, step, bias, alpha, y, z, remaining)
        sizes = (projected.shape[0], hidden, batch * hidden)
        launch(kernel, (batch, hidden), (*arguments, *sizes), **choices)

    return run


@cache
def backward(masked: bool) -> Kernel:
    """Gradients, from the end to the start."""

    def run(positions: Tensor, *rest: Any) -> None:
        batch, hidden = _grid(rest[4], rest[3])
        sizes = (positions.shape[0], hidden, batch * hidden)
        launch(oscillator_backward, (batch, hidden), (positions, *rest, *sizes), LENGTHS=masked)

    return run
