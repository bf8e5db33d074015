"""Why a solve stopped early: evidence about the stop, and a message with a remedy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from undamped.ode.field import all_finite
from undamped.ode.methods.solver import Field, Solver
from undamped.ode.record import Failure, Status
from undamped.ode.settings import Settings

# Explicit methods of order three to eight are stable up to about |hλ| = 2.5 to 5.
STABILITY_LIMIT = 1.5
# A state that is so many times larger than at the start is on its way to infinity.
DIVERGED = 1e3
# More steps than this are a sign that something is wrong.
MANY_STEPS = 1e5


@dataclass(frozen=True)
class Stop:
    """Where and how a solve, or one sample of it, stopped.

    Args:
        status: What happened.
        t: Time reached.
        h: Step size in the end.
        end: Time that was to be reached.
        y: State reached.
        y0: State at the start.
        steps: Number of steps taken.
        pace: Mean size of the last accepted steps.
        sample: Index of the worst sample.
        rejected: Size of the last attempt, where it was rejected for a value that is not finite.
    """

    status: Status
    t: float
    h: float
    end: float
    y: Tensor
    y0: Tensor
    steps: int
    pace: float
    sample: int | None = None
    rejected: float | None = None


def fastest_rate(field: Field, t: float, y: Tensor, rounds: int = 12) -> float:
    """Estimate the largest |eigenvalue| of ∂f/∂y by power iteration with differences of f."""
    with torch.no_grad():
        time = torch.full((), t, dtype=y.dtype, device=y.device)
        base = field(time, y)
        if not bool(torch.isfinite(base).all()):
            return math.nan
        eps = torch.finfo(y.dtype).eps ** 0.5 * (1 + float(y.abs().max()))
        direction = torch.cos(torch.arange(y.numel(), dtype=y.dtype, device=y.device) + 1.0)
        direction = direction.view(y.shape)
        rate = 0.0
        for _ in range(rounds):
            length = float(torch.linalg.vector_norm(direction))
            if length == 0 or not math.isfinite(length):
                break
            direction = direction * (eps / length)
            change = field(time, y + direction) - base
            rate = float(torch.linalg.vector_norm(change)) / eps
            direction = change
        return rate


class Evidence:
    """Evidence about a solve that stopped, from its field and its settings.

    Args:
        stop: Where and how it stopped.
        field: The field, which is evaluated there.
        solver: The method.
        settings: Tolerances and limits.
    """

    def __init__(self, stop: Stop, field: Field, solver: Solver, settings: Settings) -> None:
        t, h, y, y0 = stop.t, stop.h, stop.y, stop.y0
        self.status, self.t, self.implicit, self.dtype = stop.status, t, solver.implicit, y.dtype
        self.fixed = not solver.adaptive or settings.step_size is not None
        self.h = h if stop.rejected is None else stop.rejected
        """Size of the last attempt."""
        self.pace = abs(h) if self.fixed else stop.pace
        """Mean size of the last accepted steps."""
        self.rejected = stop.rejected is not None
        """Whether the last attempt was rejected for a value that is not finite."""
        time = torch.full((), t, dtype=y.dtype, device=y.device)
        with torch.no_grad():
            slope = field(time, y)
            after = field(time + self.h, torch.add(y, slope, alpha=self.h))
        self.finite, self.finite_after = all_finite(slope), all_finite(after)
        """Whether the field is finite at the stop, and a step later."""
        self.rate = fastest_rate(field, t, y)
        """Fastest rate of the field."""
        self.start_rate = fastest_rate(field, t, y0) if self.fixed else self.rate
        """Fastest rate at the start: at the state reached every rate may be huge, and the start
        distinguishes a fast field from a state that goes to infinity."""
        self.size, start = float(y.abs().max()), float(y0.abs().max())
        self.remaining = abs(stop.end - t)
        """Time that remains."""
        growing = self.rate * max(self.remaining, abs(h)) > 1e6 and self.size > 30 * (1 + start)
        growing = math.isfinite(self.rate) and growing
        self.diverging = self.size > DIVERGED * (1 + start) or growing
        """Whether the state goes to infinity."""
        # Reversible methods are not stable at any step size, so that a small one means nothing: a
        # field is stiff, too, if the solution does not show its fastest rate.
        largest = max(self.size, start)
        hidden = solver.reversible and self.rate * largest > 50 * float(slope.abs().max())
        limited = self.rate * stop.pace > STABILITY_LIMIT or hidden
        self.stiff = not solver.implicit and self.rate * self.remaining > 50 and limited
        """Whether stability limits the steps."""
        self.tolerance = rtol, atol = settings.tightest
        eps = torch.finfo(y.dtype).eps
        self.unresolved = rtol < 10 * eps and atol < 10 * eps * largest
        """Whether the tolerance is below what the number format can resolve."""

    @property
    def newton_failed(self) -> bool:
        """Whether the equations of a step had no solution although the field is finite."""
        finite = self.finite and self.finite_after
        return self.implicit and finite and (self.fixed or self.rejected)

    @property
    def met_not_finite(self) -> bool:
        """Whether the field, and not a growing state, stopped a solve that chose its steps."""
        stopped = self.rejected or not self.finite or not self.finite_after
        return not self.fixed and stopped and not self.diverging and not self.newton_failed


def worst_sample(ratio: Tensor | None, batched: bool) -> int | None:
    """Return the sample with the largest values or a NaN, or None where there are no samples."""
    if ratio is None or not batched or ratio.dim() == 0:
        return None
    size = torch.nan_to_num(ratio.abs(), nan=math.inf)
    return int((size.flatten(1).amax(1) if ratio.dim() > 1 else size).argmax())


def of_one_sample(field: Field, y: Tensor, row: int) -> Field:
    """Return the field of one sample, from a field that expects a batch and their times."""
    column = (y.shape[0],) + (1,) * (y.dim() - 1)

    def sample_field(t: Tensor, part: Tensor) -> Tensor:
        state = y.clone()
        state[row : row + 1] = part
        return field(t.expand(column), state)[row : row + 1]

    return sample_field


def explain_failure(stop: Stop, field: Field, solver: Solver, settings: Settings) -> Failure:
    """Return the failure of a solve, with its likely cause and a remedy in the message.

    Args:
        stop: Where and how it stopped.
        field: The field.
        solver: The method.
        settings: Tolerances and limits.
    """
    evidence = Evidence(stop, field, solver, settings)
    rows = FIXED_STEPS if evidence.fixed else CHOSEN_STEPS
    remedy = next(remedy for holds, remedy in rows if holds(evidence))
    sample = "" if stop.sample is None else f", sample {stop.sample}"
    message = (
        f"solve with '{solver.name}'{sample}: expected to reach t = {stop.end:.6g}, got a stop at "
        f"t = {stop.t:.6g} after {stop.steps} steps with step size {abs(stop.h):.3g}. "
        f"{remedy(evidence)}"
    )
    status = Status.NON_FINITE if evidence.met_not_finite else stop.status
    return Failure(status, message, stop.t, stop.sample)


def _blow_up(e: Evidence) -> str:
    return (
        f"The state has grown to {e.size:.3g} and seems to go to infinity near t = {e.t:.6g}: end "
        "the solve before that, bound the field (tanh, weight decay), or stop at an event."
        + (" Or take smaller steps." if e.fixed else "")
    )


def _not_finite(e: Evidence) -> str:
    at = f"in the step to t = {e.t + e.h:.6g}" if e.fixed else f"not finite beyond t = {e.t:.6g}"
    return (
        f"The field, or the state, is NaN or infinity there, {at}: check logarithms, roots and "
        "divisions in the field, and the state."
    )


def _newton(e: Evidence) -> str:
    return (
        f"Newton's method did not converge in a step of {abs(e.h):.3g}: the equations of a step so "
        "large may have no solution. Take smaller steps, or end the solve earlier."
    )


def _step_too_large(e: Evidence) -> str:
    return (
        "The step is too large for the field, whose fastest rate is about "
        f"{e.start_rate:.3g} per unit of time: h·rate = {e.start_rate * e.pace:.3g}. Take a "
        "smaller step_size, or an implicit method such as 'radau5' or 'implicit-midpoint'."
    )


def _stiff(e: Evidence) -> str:
    return (
        f"The problem is stiff: the fastest rate is about {e.rate:.3g} per unit of time and "
        f"stability, not accuracy, keeps the step at h·rate = {e.rate * e.pace:.2g}. Use "
        "method='radau5' or method='sdirk4'."
    )


def _give_more_steps(e: Evidence) -> str:
    more = "Raise max_steps, or loosen rtol and atol."
    if e.rate * e.pace < STABILITY_LIMIT:
        return f"The field is not stiff here (h·rate = {e.rate * e.pace:.2g}). {more}"
    return more


def _unresolved(e: Evidence) -> str:
    rtol, atol = e.tolerance
    return (
        f"rtol = {rtol:g} and atol = {atol:g} are below what "
        f"{str(e.dtype).removeprefix('torch.')} can resolve: use float64, or an rtol above "
        f"{100 * torch.finfo(e.dtype).eps:.0e}."
    )


def _too_many_steps(e: Evidence) -> str:
    return (
        f"At steps of {e.pace:.3g} it would take {e.remaining / e.pace:.1g} more: loosen rtol and "
        "atol, or look for what makes the field change so fast."
    )


def _no_event(e: Evidence) -> str:
    return (
        f"There was no event until t = {e.t:.6g}, and there is no other end: check the sign of its "
        "function, set a last time, or raise max_steps."
    )


def _gave_up(e: Evidence) -> bool:
    return e.status is Status.MAX_STEPS


def _endless(e: Evidence) -> bool:
    return _gave_up(e) and math.isinf(e.remaining)


Rows = Sequence[tuple[Callable[[Evidence], bool], Callable[[Evidence], str]]]
FIXED_STEPS: Rows = (
    (_endless, _no_event),
    (_gave_up, lambda e: "Raise max_steps, or take a larger step_size."),
    (lambda e: e.newton_failed, _newton),
    (
        lambda e: (
            not e.implicit
            and e.start_rate * e.pace > STABILITY_LIMIT
            and (e.diverging or e.finite_after)
        ),
        _step_too_large,
    ),
    (lambda e: e.diverging, _blow_up),
    (lambda e: True, _not_finite),
)
"""Causes of a failure with a fixed step size; the first that holds is reported."""
CHOSEN_STEPS: Rows = (
    (lambda e: e.diverging, _blow_up),
    (lambda e: e.newton_failed, _newton),
    (lambda e: e.met_not_finite, _not_finite),
    (_endless, _no_event),
    (lambda e: e.stiff, _stiff),
    (lambda e: _gave_up(e) and not MANY_STEPS * e.pace < e.remaining < math.inf, _give_more_steps),
    (lambda e: e.unresolved, _unresolved),
    (_gave_up, _too_many_steps),
    (
        lambda e: True,
        lambda e: (
            "The field seems to jump there: split the solve at the jump (options jump_t), smooth "
            "the field, or use a fixed step_size."
        ),
    ),
)
"""The same where the method chose its steps."""
