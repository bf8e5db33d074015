"""Events: the time at which a function of the state crosses zero, and its gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from undamped.errors import ShapeError, explain
from undamped.solvers.evaluation import CountedField
from undamped.solvers.solver import Solver, SolverState


class Event:
    """A scalar function g(t, y); the solve ends where its sign changes.

    Args:
        function: g, on the user's form of the state; one number.
        field: The field, for its packing.
    """

    def __init__(self, function: Callable[[Any, Any], Tensor], field: CountedField) -> None:
        self.function = function
        self.packing = field.packing

    def __call__(self, t: float | Tensor, y: Tensor) -> Tensor:
        """Return g(t, y) as a single number."""
        if not isinstance(t, Tensor):
            t = torch.full((), t, dtype=y.dtype, device=y.device)
        value = self.function(t, self.packing.unpack(y))
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise ShapeError(
                explain(
                    "value of the event",
                    expected="one number",
                    got=tuple(value.shape) if isinstance(value, Tensor) else value,
                    remedy="Reduce it, for example with .min() for the first of a batch.",
                )
            )
        return value.reshape(())


@torch.no_grad()
def locate(
    event: Event,
    solver: Solver,
    field: CountedField,
    t: float,
    h: float,
    state: SolverState,
    proposed: Tensor,
) -> float | None:
    """Return how far into the step from t to t + h the event lies, or None.

    The event is found with true steps of the method, not with a polynomial, so that its state
    is as accurate as any other (Illinois' variant of false position).
    """

    def at(size: float) -> float:
        return float(event(t + size, solver.step(field, t, size, state)[0][0]))

    low, high = 0.0, h
    g_low, g_high = float(event(t, state[0])), float(event(t + h, proposed))
    if g_low == 0 or g_low * g_high > 0:
        return None
    side = 0
    for _ in range(60):
        middle = (low * g_high - high * g_low) / (g_high - g_low)
        g = at(middle)
        if g == 0 or abs(high - low) < 1e-14 * max(1.0, abs(t)):
            return middle
        if g * g_high > 0:
            high, g_high = middle, g
            g_low = g_low / 2 if side == 1 else g_low
            side = 1
        else:
            low, g_low = middle, g
            g_high = g_high / 2 if side == -1 else g_high
            side = -1
    return high


def with_event_gradient(
    event: Event, field: CountedField, t: float, y: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the event's time and state as functions of everything the solution depends on.

    Equation:
        dt = −(∂g/∂y · dy) / (∂g/∂t + ∂g/∂y · f)
    """
    with torch.enable_grad():
        time = torch.full((), t, dtype=y.dtype, device=y.device, requires_grad=True)
        leaf = y.detach().requires_grad_()
        parts = torch.autograd.grad(event(time, leaf), (time, leaf), allow_unused=True)
    g_time, g_state = (
        torch.zeros_like(x) if part is None else part
        for part, x in zip(parts, (time, leaf), strict=True)
    )
    with torch.no_grad():
        slope = field(time.detach(), y.detach())
        rate = g_time + (g_state * slope).sum()
    shift = -(g_state * (y - y.detach())).sum() / rate
    moved = time.detach() + shift
    return moved, y + shift * slope
