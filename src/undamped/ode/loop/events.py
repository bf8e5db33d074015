"""Events: the times at which a function of the state crosses zero, and their gradients.

All functions serve both kinds of solves: an event of the batch has one time, an event of every
sample as many as there are samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real
from typing import Any, Literal

import torch
from torch import Tensor

from undamped._base.errors import OptionError, ShapeError, shortened
from undamped._base.options import convert
from undamped.ode.field import CountedField
from undamped.ode.state.packing import Packing
from undamped.ode.state.times import drift

EPS = 2.3e-16
FRACTIONS = (0.25, 0.5, 0.75)
"""Fractions of a step at which an event is evaluated, besides its ends."""
Direction = Literal["any", "rising", "falling"]


@dataclass(frozen=True)
class Event:
    """A function g(t, y) whose change of sign is an event.

    g is evaluated at the quarters of a step: two changes of sign within one of them are missed.
    Where g is faster than the state, `options={"max_step": …}` bounds the steps.

    Args:
        function: g, on the user's form of the state; it returns numbers, or truth values.
        direction: Which changes of sign count: any, from below zero, or from above.
        terminal: Whether the solve ends there; otherwise it continues, and all are returned.

    Example:
        >>> landing = Event(lambda t, y: y[0], direction="falling")
    """

    function: Callable[[Any, Any], Any]
    direction: Direction = "any"
    terminal: bool = True

    def __post_init__(self) -> None:
        convert(Direction, self.direction, "Event.direction")
        if not callable(self.function):
            raise OptionError(
                "Event.function must be a function of (t, y), got a "
                f"{type(self.function).__name__}."
            )


class EventFunction:
    """An event as the loops need it: on packed states, one number or one for every sample.

    Args:
        event: The event of the user.
        packing: Of the state.
        each: Whether every sample has its own event.
    """

    def __init__(self, event: Event, packing: Packing, *, each: bool) -> None:
        self.event, self.packing, self.each = event, packing, each
        self.terminal = event.terminal

    def __call__(self, t: float | Tensor, y: Tensor) -> Tensor:
        """Return g in double precision, without dimensions or (batch,)."""
        if not isinstance(t, Tensor):
            t = torch.full((), t, dtype=y.dtype, device=y.device)
        packing = self.packing
        value = self.event.function(packing.time(t.to(y.dtype)), packing.unpack(y))
        if isinstance(value, Real):
            value = torch.as_tensor(value)
        count = y.shape[0] if self.each else 1
        if not isinstance(value, Tensor) or value.numel() != count:
            got = tuple(value.shape) if isinstance(value, Tensor) else shortened(value)
            if self.each:
                raise ShapeError(
                    "With a step size per sample the event must return one number for each of the "
                    f"{count} samples, got {got}. Use steps='batch' for an event of the "
                    "batch."
                )
            raise ShapeError(
                f"The event must return one number, got {got}. Reduce it, for example with .min() "
                "for the first of a batch."
            )
        # True counts as 1, false as −1.
        number = value.double() * 2 - 1 if value.dtype == torch.bool else value.double()
        return number.reshape(-1) if self.each else number.reshape(())

    def crossed(self, before: Any, after: Any) -> Any:
        """Whether g, which is not zero before, reaches zero or passes it; never where it is NaN."""
        # By signs: the product of two small numbers is zero.
        falling = (before > 0) & (after <= 0)
        rising = (before < 0) & (after >= 0)
        direction = self.event.direction
        return (
            falling | rising if direction == "any" else rising if direction == "rising" else falling
        )


@torch.no_grad()
def first_event(
    event: EventFunction,
    values: Sequence[Tensor],
    t: Tensor,
    h: Tensor,
    at: Callable[[Tensor], Tensor],
    after: float = 0.0,
    accepted: Tensor | None = None,
) -> tuple[Tensor, Tensor] | None:
    """Return which steps meet an event, and step sizes that end there; None if none does.

    Args:
        event: g.
        values: g at the start of each step, at the `FRACTIONS` of it and at its end, (steps,) each.
        t: Times at which the steps begin, (steps,).
        h: Step sizes, (steps,).
        at: From step sizes to g at their ends, by true steps of the method.
        after: Fraction of the steps at which the first value is.
        accepted: Steps that count; all by default.
    """
    crossings = torch.stack([event.crossed(*pair) for pair in pairwise(values)])
    if accepted is not None:
        crossings = crossings & accepted
    happening = crossings.any(0)
    if not bool(happening.any()):
        return None
    low, high, g_low, g_high = after * h, h, values[0], values[-1]
    several = happening & ((crossings.sum(0) > 1) | ~event.crossed(g_low, g_high))
    if bool(several.any()):
        # The first of them, between two fractions at which the event was evaluated.
        first = crossings.long().argmax(0)
        fractions = torch.tensor((after, *FRACTIONS, 1.0), dtype=h.dtype, device=h.device)
        low = torch.where(several, fractions[first] * h, low)
        high = torch.where(several, fractions[first + 1] * h, high)
        # Values at the ends of the step are available.
        moved = several & (first > 0)
        g_low = torch.where(moved, at(low), g_low) if bool(moved.any()) else g_low
        moved = several & (first < len(FRACTIONS))
        g_high = torch.where(moved, at(high), g_high) if bool(moved.any()) else g_high
        happening = happening & event.crossed(g_low, g_high)
        if not bool(happening.any()):
            return None
    width = torch.where(happening, high - low, torch.zeros_like(h))
    tolerance = 8 * EPS * torch.maximum(t.abs(), (t + h).abs())
    size = low + locate(lambda part: at(low + part), width, g_low, g_high, tolerance)
    return happening, torch.where(happening, size, h)


def locate(
    at: Callable[[Tensor], Tensor],
    size: Tensor,
    low_value: Tensor,
    high_value: Tensor,
    tolerance: Tensor,
) -> Tensor:
    """Return how far into its step each has its event.

    The event is located with true steps of the method, not with a polynomial, so that its state is
    as accurate as any other. The algorithm is the Illinois variant of false position, which halves
    the interval where it is slow, for functions that jump. Where g is NaN there is no sign to
    change. A zero is the event only if g is not zero just before it: functions may rest there.

    Args:
        at: From step sizes to g at their ends, by true steps of the method.
        size: The step sizes within which g changes sign, (events,); 0 where it does not.
        low_value: g at the start of the step.
        high_value: g at its end.
        tolerance: Accuracy of the time, at which two times differ.
    """
    low, high = torch.zeros_like(size), size.clone()
    g_low, g_high = low_value.to(size.dtype), high_value.to(size.dtype)
    rising = g_low < 0
    side, before = torch.zeros_like(size), size.abs()
    half = torch.full_like(size, 0.5)
    rests = torch.zeros_like(size, dtype=torch.bool)
    # Three rounds halve the interval at least; it has 52 bits.
    for round_ in range(1, 160):
        width = (high - low).abs()
        located = width <= tolerance
        if bool(located.all()):
            break
        part = g_low / (g_low - g_high)
        if round_ % 3 == 0:
            part = torch.where(width > before / 2, half, part)
            before = width
        part = torch.where(rests & (g_high == 0), half, part)
        margin = torch.where(located, half, tolerance / (2 * width)).clamp_max(0.5)
        # Not a number where g is infinite.
        part = torch.where((part >= 0) & (part <= 1), part, half)
        part = torch.minimum(torch.maximum(part, margin), 1 - margin)
        # A step whose event is located does not change.
        middle = torch.where(located, high, low + (high - low) * part)
        g = at(middle).to(size.dtype)
        beyond = ~located & torch.where(rising, g >= 0, g <= 0)
        short = ~located & ~beyond
        rests = rests | (beyond & (g == 0) & (g_high == 0))
        g_low = torch.where(beyond & (side == 1), g_low / 2, g_low)
        g_high = torch.where(short & (side == -1), g_high / 2, g_high)
        high, g_high = torch.where(beyond, middle, high), torch.where(beyond, g, g_high)
        low = torch.where(short, middle, low)
        g_low = torch.where(short & ~g.isnan(), g, g_low)
        side = torch.where(beyond, 1.0, -1.0).to(size.dtype)
    return high


def _slopes(
    event: EventFunction, field: CountedField, t: Tensor, y: Tensor
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
    event: EventFunction,
    field: CountedField,
    times: Tensor,
    y: Tensor,
    start: tuple[Tensor, Tensor],
    *,
    exact: bool,
) -> tuple[Tensor, Tensor]:
    """Return event times and states as functions of everything they depend on.

    A g without a derivative gives a time without one.

    Equation:
        dt = −dg / (∂g/∂t + ∂g/∂y · f), where dg is what y and the parameters of g change in g

    Args:
        event: g.
        field: f.
        times: Event times, without dimensions or (batch,); NaN for samples without an event.
        y: States there, NaN likewise.
        start: Time and state at the start, where f is finite: f and g are evaluated there for
            samples without an event, so that no NaN comes back from them.
        exact: Whether derivatives of derivatives are needed. Newton's method, whose every step
            with a fixed slope makes one more derivative right, then takes another step.
    """
    moments = times.to(y.dtype)
    if not torch.is_grad_enabled():
        return moments, y
    column = (len(times),) + (1,) * (y.dim() - 1) if event.each else ()
    happened = ~times.isnan()
    mask = happened.view(column)
    safe = torch.where(mask, y, start[1].detach())
    time = torch.where(happened, moments, start[0].to(y)).view(column)
    slopes = _slopes(event, field, time, safe)
    if slopes is None:
        return moments, y
    by_state = slopes[1].unsqueeze(1).flatten(1).sum(1) if event.each else slopes[1].sum()
    rate = slopes[0].reshape(times.shape) + by_state
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
    return moments + shift.reshape(times.shape), torch.where(mask, state, torch.nan)
