"""States as functions of the times they belong to, so that gradients reach those times."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from undamped.ode.field import CountedField


def drift(field: CountedField, t: Tensor, y: Tensor, by: Tensor, *, exact: bool) -> Tensor:
    """Return the state a time `by` later, which is zero but has derivatives.

    Args:
        field: f.
        t: Time of y, without dimensions or (batch, 1, …).
        y: The state.
        by: The time, in the shape of t.
        exact: Whether derivatives of derivatives are wanted: a step of the classical Runge-Kutta
            method, right up to the fourth. Otherwise y + by · f without a graph on f.
    """
    if not exact:
        with torch.no_grad():
            slope = field(t, y.detach())
        return y + by * slope
    half = by / 2
    first = field(t, y)
    second = field(t + half, y + half * first)
    third = field(t + half, y + half * second)
    fourth = field(t + by, y + by * third)
    return y + by / 6 * (first + 2 * second + 2 * third + fourth)


def shift_start(t: Any, field: CountedField, y: Tensor, *, each: bool, exact: bool) -> Tensor:
    """Return the start value as a function of the start time: dy/dt₀ = −f(t₀, y₀).

    Args:
        t: The output times as they were given.
        field: f.
        y: The start value.
        each: Whether samples have times of their own.
        exact: As for `drift`.
    """
    if not _moves(t):
        return y
    time = _for_field(t[0], y, each)
    return drift(field, time, y, time.detach() - time, exact=exact)


def shift_outputs(
    t: Any, field: CountedField, values: Tensor, *, each: bool, exact: bool
) -> Tensor:
    """Return the outputs as functions of their times: dy(t)/dt = f(t, y(t)).

    Args:
        t: The output times as they were given.
        field: f.
        values: The outputs that were reached, (outputs, …), the start first.
        each: Whether samples have times of their own; NaN for those that did not get there.
        exact: As for `drift`.
    """
    if not _moves(t):
        return values
    shifted = []
    begin, start = _for_field(t[0], values[0], each).detach(), values[0].detach()
    for time, value in zip(t, values, strict=False):
        moving = _for_field(time, value, each)
        here = moving.detach()
        by = moving - here
        if each:
            # NaN times zero is NaN, backward too: what is lost must not be computed with.
            lost = value.detach().isnan().unsqueeze(1).flatten(1).any(1).view(here.shape)
            here, by = torch.where(lost, begin, here), torch.where(lost, 0.0, by)
            safe = torch.where(lost, start, value)
            shifted.append(torch.where(lost, value, drift(field, here, safe, by, exact=exact)))
        else:
            shifted.append(drift(field, here, value, by, exact=exact))
    return torch.stack(shifted)


def _moves(t: Any) -> bool:
    return isinstance(t, Tensor) and t.requires_grad and torch.is_grad_enabled()


def _for_field(time: Tensor, y: Tensor, each: bool) -> Tensor:
    """Return a time, or one for every sample, in the shape the field is promised."""
    time = time.to(y)
    return time.expand(len(y)).reshape(-1, *(1,) * (y.dim() - 1)) if each else time
