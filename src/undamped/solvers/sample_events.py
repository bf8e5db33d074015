"""Events of single samples: each has its own time, found with steps of its own size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from undamped.errors import ShapeError, explain
from undamped.solvers.evaluation import CountedField


class SampleEvent:
    """A function g(t, y) with one number a sample; a sample ends where its own changes sign.

    Args:
        function: g, on the user's form of the state; (batch,).
        field: The field, for its packing.
    """

    def __init__(self, function: Callable[[Any, Any], Tensor], field: CountedField) -> None:
        self.function = function
        self.packing = field.packing

    def __call__(self, t: Tensor, y: Tensor) -> Tensor:
        """Return g for times (batch, 1, …) and states (batch, …)."""
        value = self.function(t.to(y.dtype), self.packing.unpack(y))
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
        return value.reshape(-1)


@torch.no_grad()
def locate_each(
    at: Callable[[Tensor], Tensor], size: Tensor, low_value: Tensor, high_value: Tensor
) -> Tensor:
    """Return how far into its step each sample has its event (Illinois' false position).

    Args:
        at: From step sizes (batch,) to g at their ends, by true steps of the method.
        size: The step sizes within which g changes sign, (batch,); 0 where it does not.
        low_value: g at the start of the step.
        high_value: g at its end.
    """
    low, high = torch.zeros_like(size), size.clone()
    g_low, g_high = low_value.to(size.dtype), high_value.to(size.dtype)
    side = torch.zeros_like(size)
    best = high.clone()
    for _ in range(60):
        slope = g_high - g_low
        middle = torch.where(slope == 0, high, (low * g_high - high * g_low) / slope)
        middle = torch.where(size == 0, size, middle)
        g = at(middle).to(size.dtype)
        best = middle
        done = (size == 0) | (g == 0) | ((high - low).abs() < 1e-14 * (1 + size.abs()))
        if bool(done.all()):
            return best
        above = g * g_high > 0
        g_low = torch.where(above & (side == 1), g_low / 2, g_low)
        g_high = torch.where(~above & (side == -1), g_high / 2, g_high)
        high, g_high = torch.where(above, middle, high), torch.where(above, g, g_high)
        low, g_low = torch.where(above, low, middle), torch.where(above, g_low, g)
        # A sample that is done keeps its place: both ends move onto it.
        high, low = torch.where(done, middle, high), torch.where(done, middle, low)
        side = torch.where(above, 1.0, -1.0).to(size.dtype)
    return best


def with_event_gradients(
    event: SampleEvent, field: CountedField, times: Tensor, y: Tensor
) -> tuple[Tensor, Tensor]:
    """Return event times (batch,) and states as functions of all the solution depends on.

    Equation:
        dt = −(∂g/∂y · dy) / (∂g/∂t + ∂g/∂y · f), for every sample

    Args:
        event: g.
        field: f.
        times: Event times, NaN for samples without an event.
        y: States there, NaN likewise.
    """
    happened = ~torch.isnan(times)
    column = (len(times),) + (1,) * (y.dim() - 1)
    keep = happened.view(column)
    safe = torch.where(keep, y, torch.ones_like(y))
    time = torch.where(happened, times, torch.zeros_like(times)).to(y.dtype).view(column)
    with torch.enable_grad():
        moment = time.detach().requires_grad_()
        leaf = safe.detach().requires_grad_()
        value = event(moment, leaf).sum()
        parts = torch.autograd.grad(value, (moment, leaf), allow_unused=True)
    g_time, g_state = (
        torch.zeros_like(x) if part is None else part
        for part, x in zip(parts, (moment, leaf), strict=True)
    )
    with torch.no_grad():
        slope = field(time, safe.detach())
        rate = g_time.reshape(-1) + (g_state * slope).flatten(1).sum(1)
        rate = torch.where(happened, rate, torch.ones_like(rate))
    change = (g_state * (safe - safe.detach())).flatten(1).sum(1)
    shift = torch.where(happened, -change / rate, torch.zeros_like(rate))
    moved = torch.where(happened, times.to(y.dtype), torch.full_like(rate, float("nan"))) + shift
    return moved, torch.where(
        keep, safe + shift.view(column) * slope, torch.full_like(y, torch.nan)
    )
