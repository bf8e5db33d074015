"""Step control for samples with steps of their own: what `control` does for one, for each."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from undamped.solvers.loop.control import ErrorNorm, StepControl
from undamped.solvers.methods.solver import Field
from undamped.solvers.settings import Settings


def mean_square(ratio: Tensor) -> Tensor:
    """Return the root mean square of every sample's numbers, in double precision."""
    ratio = ratio.reshape(len(ratio), -1).double()
    return torch.linalg.vector_norm(ratio, dim=1) / math.sqrt(max(ratio.shape[1], 1))


def factors(
    control: StepControl,
    ratio: Tensor,
    good: Tensor,
    before: Tensor,
    earlier: Tensor,
    exponent: float,
) -> Tensor:
    """Return what every step size is to be multiplied by, as `ControlMemory` does for one.

    Args:
        control: The rule.
        ratio: Errors of this attempt in units of the tolerance.
        good: Which were accepted.
        before: Errors of the last accepted steps.
        earlier: Those of the steps before.
        exponent: 1/k, k the order of the estimate plus one.
    """
    p, i, d = control.proportional, control.integral, control.derivative
    error = ratio.clamp_min(1e-10)
    onward = (
        control.safety
        * error ** (-(i + p + d) * exponent)
        * before ** ((p + 2 * d) * exponent)
        * earlier ** (-d * exponent)
    ).clamp(control.shrink, control.grow)
    again = (control.safety * error**-exponent).clamp(control.shrink, 0.9)
    again = torch.where(torch.isfinite(ratio), again, torch.full_like(again, control.shrink))
    return torch.where(good, onward, again)


@torch.no_grad()
def first_steps(
    field: Field,
    norm: ErrorNorm,
    settings: Settings,
    t: Tensor,
    y: Tensor,
    slope: Tensor | None,
    direction: Tensor,
    exponent: float,
) -> Tensor:
    """Choose every sample's first step, as `initial_step` does for one.

    Args:
        field: The field.
        norm: The tolerance.
        settings: Limits, and a first step that was asked for.
        t: Start times, (batch,).
        y: Start values, (batch, …).
        slope: f(t, y), where it is known.
        direction: 1 forwards in time, −1 backwards, (batch,).
        exponent: 1/k, k the order of the estimate plus one.
    """
    limit = math.inf if settings.max_step is None else settings.max_step
    if settings.first_step is not None:
        return torch.full_like(t, min(settings.first_step, limit))
    column = (len(y),) + (1,) * (y.dim() - 1)
    time = t.view(column)
    slope = field(time.to(y.dtype), y) if slope is None else slope

    def size(value: Tensor) -> Tensor:
        return mean_square(norm.ratio(value, y, y))

    d0, d1 = size(y), size(slope)
    small = (d0 < 1e-5) | (d1 < 1e-5) | d1.isinf()
    h0 = torch.where(small, torch.full_like(d0, 1e-6), 0.01 * d0 / d1)
    ahead = (h0 * direction).view(column)
    moved = field((time + ahead).to(y.dtype), y + ahead.to(y.dtype) * slope)
    d2 = size(moved - slope) / h0
    largest = torch.maximum(d1, d2)
    h1 = torch.where(largest <= 1e-15, (h0 * 1e-3).clamp_min(1e-6), (0.01 / largest) ** exponent)
    h = torch.where(torch.isfinite(d2), torch.minimum(100 * h0, h1), h0)
    return h.clamp_max(limit)
