"""Events: the time at which a function of the state crosses zero, and its gradient."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from undamped.errors import ShapeError, explain
from undamped.solvers.field import CountedField
from undamped.solvers.methods.solver import Solver, SolverState
from undamped.solvers.state.time_gradients import drift

EPS = 2.3e-16


class Event:
    """A scalar function g(t, y); the solve ends where its sign changes.

    Args:
        function: g, on the user's form of the state; one number, or whether something holds.
        field: The field, for its packing.
    """

    def __init__(self, function: Callable[[Any, Any], Any], field: CountedField) -> None:
        self.function = function
        self.packing = field.packing

    def __call__(self, t: float | Tensor, y: Tensor) -> Tensor:
        """Return g(t, y) as a single number."""
        if not isinstance(t, Tensor):
            t = torch.full((), t, dtype=y.dtype, device=y.device)
        value = self.function(self.packing.time(t), self.packing.unpack(y))
        if isinstance(value, Real):
            value = torch.as_tensor(value)
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise ShapeError(
                explain(
                    "value of the event",
                    expected="one number",
                    got=tuple(value.shape) if isinstance(value, Tensor) else value,
                    remedy="Reduce it, for example with .min() for the first of a batch.",
                )
            )
        return as_number(value).reshape(())


def as_number(value: Tensor) -> Tensor:
    """Return g with a sign: what holds is 1, what does not is −1."""
    return value.double() * 2 - 1 if value.dtype == torch.bool else value


def crossed(before: Any, after: Any) -> Any:
    """Whether g, which has left zero before, comes to zero or past it; never where it is NaN.

    Args:
        before: A number, or a tensor of them.
        after: Likewise.
    """
    # By signs: the product of two small numbers is zero.
    return ((before > 0) & (after <= 0)) | ((before < 0) & (after >= 0))


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
    is as accurate as any other. Illinois' variant of false position, which halves the interval
    where it is slow, for functions that jump. Where g is NaN there is no sign to change.
    """
    low, high = 0.0, h
    g_low, g_high = float(event(t, state[0])), float(event(t + h, proposed))
    if not crossed(g_low, g_high):
        return None
    rising = g_low < 0
    tolerance = 8 * EPS * max(abs(t), abs(t + h))
    side, before = 0, abs(h)
    # Three rounds halve the interval at least; it has 52 bits.
    for round_ in range(1, 160):
        width = abs(high - low)
        if g_high == 0 or width <= tolerance:
            break
        part = g_low / (g_low - g_high)
        if round_ % 3 == 0:
            part = 0.5 if width > before / 2 else part
            before = width
        margin = min(0.5, tolerance / (2 * width))
        # Not a number where g is infinite.
        part = min(max(part, margin), 1 - margin) if 0 <= part <= 1 else 0.5
        middle = low + (high - low) * part
        g = float(event(t + middle, solver.step(field, t, middle, state)[0][0]))
        if g >= 0 if rising else g <= 0:
            high, g_high = middle, g
            g_low = g_low / 2 if side == 1 else g_low
            side = 1
        else:
            low, g_low = middle, (g_low if g != g else g)
            g_high = g_high / 2 if side == -1 else g_high
            side = -1
    return high


def slopes(
    event: Callable[[Tensor, Tensor], Tensor], field: CountedField, t: Tensor, y: Tensor
) -> tuple[Tensor, Tensor] | None:
    """Return ∂g/∂t and ∂g/∂y · f, number by number, or None where g has no derivative."""
    moment, leaf = t.detach().requires_grad_(), y.detach().requires_grad_()
    value = event(moment, leaf).sum()
    if not value.requires_grad:
        return None
    by_time, by_state = torch.autograd.grad(
        value, (moment, leaf), allow_unused=True, materialize_grads=True
    )
    with torch.no_grad():
        return by_time, by_state * field(t.detach(), y.detach())


def with_event_gradient(
    event: Event, field: CountedField, t: float, y: Tensor, *, exact: bool
) -> tuple[Tensor, Tensor]:
    """Return the event's time and state as functions of everything they depend on.

    A g without a derivative gives a time without one.

    Equation:
        dt = −dg / (∂g/∂t + ∂g/∂y · f), where dg is what y and the parameters of g change in g

    Args:
        event: g.
        field: f.
        t: Time of the event.
        y: State then.
        exact: Whether derivatives of derivatives are wanted: then Newton's method, whose every
            step with a fixed slope makes one more derivative right, goes on for another step.
    """
    time = torch.full((), t, dtype=y.dtype, device=y.device)
    found = slopes(event, field, time, y) if torch.is_grad_enabled() else None
    if found is None:
        return time, y
    rate = found[0].sum() + found[1].sum()
    if not bool(rate != 0):
        return time, y

    def change(at: Tensor, state: Tensor) -> Tensor:
        g = event(at, state)
        return ((g - g.detach()) / rate).to(y.dtype)

    shift = -change(time, y)
    if exact:
        shift = shift - change(time + shift, drift(field, time, y, shift, exact=True))
    return time + shift, drift(field, time, y, shift, exact=exact)
