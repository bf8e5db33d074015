"""From the place where a solve got stuck to a sentence a person can act on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from undamped._base.errors import explain
from undamped.ode.evidence import STABILITY_LIMIT, Evidence
from undamped.ode.methods.solver import Field, Solver
from undamped.ode.record import Failure, Status
from undamped.ode.settings import Settings

# So many more steps are worth the waiting; more are a sign that something is wrong.
WORTH_WAITING = 1e5


def worst_sample(ratio: Tensor | None, batched: bool) -> int | None:
    """Return the sample whose numbers are the worst, or None where there are no samples."""
    if ratio is None or not batched or ratio.dim() == 0:
        return None
    size = torch.nan_to_num(ratio.abs(), nan=math.inf)
    return int((size.flatten(1).amax(1) if ratio.dim() > 1 else size).argmax())


def of_one_sample(field: Field, y: Tensor, row: int) -> Field:
    """Return the field of one sample, for a field that wants its whole batch and their times."""
    column = (y.shape[0],) + (1,) * (y.dim() - 1)

    def alone(t: Tensor, part: Tensor) -> Tensor:
        state = y.clone()
        state[row : row + 1] = part
        return field(t.expand(column), state)[row : row + 1]

    return alone


def explain_failure(
    status: Status,
    *,
    field: Field,
    t: float,
    h: float,
    end: float,
    y: Tensor,
    y0: Tensor,
    sample: int | None,
    solver: Solver,
    settings: Settings,
    steps: int,
    pace: float,
    refused: float | None = None,
) -> Failure:
    """Find the likely cause of a failed solve and say it.

    Args:
        status: What happened.
        field: The field.
        t: Time reached.
        h: Step size in the end.
        end: Time that was to be reached.
        y: State reached.
        y0: State at the start.
        sample: Number of the worst sample.
        solver: The method.
        settings: Tolerances and limits.
        steps: Steps taken.
        pace: Mean size of the last accepted steps.
        refused: Size of the last attempt, where it was refused for what is not finite.
    """
    found = Evidence.gather(
        status, field, t, h, end, y, y0, solver, settings, pace=pace, refused=refused
    )
    rows = FIXED_STEPS if found.fixed else CHOSEN_STEPS
    remedy = next(remedy for holds, remedy in rows if holds(found))
    where = f"solve with '{solver.name}'" + ("" if sample is None else f", sample {sample}")
    message = explain(
        where,
        expected=f"to reach t = {end:.6g}",
        got=f"a stop at t = {t:.6g} after {steps} steps with step size {abs(h):.3g}",
        remedy=remedy(found),
    )
    return Failure(Status.NON_FINITE if found.met_not_finite else status, message, t, sample)


def _blow_up(e: Evidence) -> str:
    return (
        f"The state has grown to {e.size:.3g} and seems to go to infinity near t = {e.t:.6g}: end "
        "the solve before that, bound the field (tanh, weight decay), or stop at an event."
        + (" Or take smaller steps." if e.fixed else "")
    )


def _not_finite(e: Evidence) -> str:
    at = f"in the step to t = {e.t + e.h:.6g}" if e.fixed else f"not finite beyond t = {e.t:.6g}"
    return (
        f"The field, or the state, is NaN or infinity there, {at}: look at "
        "logarithms, roots and divisions in the field, and at the state it was given."
    )


def _newton(e: Evidence) -> str:
    return (
        f"Newton's method did not converge in a step of {abs(e.h):.3g}: the equations of a step so "
        "large may have no solution. Take smaller steps, or end the solve earlier."
    )


def _step_too_large(e: Evidence) -> str:
    return (
        f"The step is too large for the field, whose fastest rate is about {e.usual:.3g} per unit "
        f"of time: h·rate = {e.usual * e.pace:.3g}. Take a smaller step_size, or an implicit "
        "method such as 'radau5' or 'implicit-midpoint'."
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
        f"At steps of {e.pace:.3g} it would take {e.left / e.pace:.1g} more: loosen rtol and atol, "
        "or look for what makes the field change so fast."
    )


def _no_event(e: Evidence) -> str:
    return (
        f"No event has happened until t = {e.t:.6g}, and there is no other end: look at the sign "
        "of its function, set a last time at which to look, or raise max_steps."
    )


def _gave_up(e: Evidence) -> bool:
    return e.status is Status.MAX_STEPS


def _endless(e: Evidence) -> bool:
    return _gave_up(e) and math.isinf(e.left)


Rows = Sequence[tuple[Callable[[Evidence], bool], Callable[[Evidence], str]]]
FIXED_STEPS: Rows = (
    (_endless, _no_event),
    (_gave_up, lambda e: "Raise max_steps, or take a larger step_size."),
    (lambda e: e.newton_failed, _newton),
    (
        lambda e: not e.implicit and e.usual * e.pace > STABILITY_LIMIT and (e.grown or e.ahead),
        _step_too_large,
    ),
    (lambda e: e.grown, _blow_up),
    (lambda e: True, _not_finite),
)
"""Causes of a failure with steps of a given size; the first that holds is told."""
CHOSEN_STEPS: Rows = (
    (lambda e: e.grown, _blow_up),
    (lambda e: e.newton_failed, _newton),
    (lambda e: e.met_not_finite, _not_finite),
    (_endless, _no_event),
    (lambda e: e.stiff, _stiff),
    (lambda e: _gave_up(e) and not WORTH_WAITING * e.pace < e.left < math.inf, _give_more_steps),
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
