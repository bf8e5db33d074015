"""Events of single samples: each has its own time, found with steps of its own size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from undamped.errors import ShapeError, explain
from undamped.solvers.field import CountedField
from undamped.solvers.loop.events import EPS, as_number, slopes
from undamped.solvers.state.time_gradients import drift


class SampleEvent:
    """A function g(t, y) with one number a sample; a sample ends where its own changes sign.

    Args:
        function: g, on the user's form of the state; (batch,), of numbers or of truths.
        field: The field, for its packing.
    """

    def __init__(self, function: Callable[[Any, Any], Tensor], field: CountedField) -> None:
        self.function = function
        self.packing = field.packing

    def __call__(self, t: Tensor, y: Tensor) -> Tensor:
        """Return g for times (batch, 1, …) and states (batch, …), in double precision."""
        value = self.function(self.packing.time(t.to(y.dtype)), self.packing.unpack(y))
        if not isinstance(value, Tensor) or value.numel() != y.shape[0]:
            raise ShapeError(
                explain(
                    "value of the event",
                    expected=f"one number for each of the {y.shape[0]} samples",
                    got=tuple(value.shape) if isinstance(value, Tensor) else value,
                    remedy="With a step size for every sample an event belongs to samples too; "
                    "use steps='batch' for an event of the whole batch.",
                )
            )
        return as_number(value).double().reshape(-1)


@torch.no_grad()
def locate_each(
    at: Callable[[Tensor], Tensor], size: Tensor, low_value: Tensor, high_value: Tensor
) -> Tensor:
    """Return how far into its step each sample has its event, as `locate` does for one.

    Args:
        at: From step sizes (batch,) to g at their ends, by true steps of the method.
        size: The step sizes within which g changes sign, (batch,); 0 where it does not.
        low_value: g at the start of the step.
        high_value: g at its end.
    """
    low, high = torch.zeros_like(size), size.clone()
    g_low, g_high = low_value.to(size.dtype), high_value.to(size.dtype)
    rising = g_low < 0
    tolerance = 8 * EPS * size.abs()
    side, before = torch.zeros_like(size), size.abs()
    half = torch.full_like(size, 0.5)
    for round_ in range(1, 160):
        width = (high - low).abs()
        done = (g_high == 0) | (width <= tolerance)
        if bool(done.all()):
            break
        part = g_low / (g_low - g_high)
        if round_ % 3 == 0:
            part = torch.where(width > before / 2, half, part)
            before = width
        margin = torch.where(done, half, tolerance / (2 * width)).clamp_max(0.5)
        part = torch.where((part >= 0) & (part <= 1), part, half)
        part = torch.minimum(torch.maximum(part, margin), 1 - margin)
        # A sample that is done keeps its place.
        middle = torch.where(done, high, low + (high - low) * part)
        g = at(middle).to(size.dtype)
        beyond = ~done & torch.where(rising, g >= 0, g <= 0)
        short = ~done & ~beyond
        g_low = torch.where(beyond & (side == 1), g_low / 2, g_low)
        g_high = torch.where(short & (side == -1), g_high / 2, g_high)
        high, g_high = torch.where(beyond, middle, high), torch.where(beyond, g, g_high)
        low = torch.where(short, middle, low)
        g_low = torch.where(short & ~g.isnan(), g, g_low)
        side = torch.where(beyond, 1.0, -1.0).to(size.dtype)
    return high


def with_event_gradients(
    event: SampleEvent,
    field: CountedField,
    times: Tensor,
    y: Tensor,
    start: tuple[Tensor, Tensor],
    *,
    exact: bool,
) -> tuple[Tensor, Tensor]:
    """Return event times (batch,) and states as functions of everything they depend on.

    Equation:
        dt = −dg / (∂g/∂t + ∂g/∂y · f), for every sample, as in `with_event_gradient`

    Args:
        event: g.
        field: f.
        times: Event times, NaN for samples without an event.
        y: States there, NaN likewise.
        start: Time, one or (batch,), and state at the start, where f is known to be finite: f
            and g look at these samples there, so that no NaN comes back from them.
        exact: As for `with_event_gradient`.
    """
    moments = times.to(y.dtype)
    if not torch.is_grad_enabled():
        return moments, y
    happened = ~times.isnan()
    column = (len(times),) + (1,) * (y.dim() - 1)
    keep = happened.view(column)
    safe = torch.where(keep, y, start[1].detach())
    time = torch.where(happened, moments, start[0].to(y.dtype)).view(column)
    found = slopes(event, field, time, safe)
    if found is None:
        return moments, y
    rate = found[0].reshape(-1) + found[1].unsqueeze(1).flatten(1).sum(1)
    moving = happened & (rate != 0)
    rate = torch.where(moving, rate, torch.ones_like(rate))

    def change(at: Tensor, state: Tensor) -> Tensor:
        g = event(at, state)
        part = torch.where(moving, (g - g.detach()) / rate, torch.zeros_like(g))
        return part.to(y.dtype).view(column)

    shift = -change(time, safe)
    if exact:
        shift = shift - change(time + shift, drift(field, time, safe, shift, exact=True))
    state = drift(field, time, safe, shift, exact=exact)
    return moments + shift.reshape(-1), torch.where(keep, state, torch.full_like(y, torch.nan))
