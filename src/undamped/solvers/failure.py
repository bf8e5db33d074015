"""From the place where a solve got stuck to a sentence a person can act on."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from undamped.errors import explain
from undamped.solvers.field import all_finite
from undamped.solvers.methods.solver import Field, Solver
from undamped.solvers.record import Failure, Status
from undamped.solvers.settings import Settings

# Explicit methods of order three to eight are stable up to about |hλ| = 2.5 to 5.
STABILITY_LIMIT = 1.5
# A state so many times as large as it was at the start is on its way to infinity.
GROWN = 1e3
# So many more steps are worth the waiting; more are a sign that something is wrong.
WORTH_WAITING = 1e5


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
    where = f"solve with '{solver.name}'" + ("" if sample is None else f", sample {sample}")
    got = f"a stop at t = {t:.6g} after {steps} steps with step size {abs(h):.3g}"
    time = torch.full((), t, dtype=y.dtype, device=y.device)
    reach = h if refused is None else refused
    with torch.no_grad():
        slope = field(time, y)
        # A step ahead: a field may be finite here and not a hair later.
        ahead = all_finite(field(time + reach, torch.add(y, slope, alpha=reach)))
    finite = all_finite(slope)
    rate = fastest_rate(field, t, y)
    size, start, left = float(y.abs().max()), float(y0.abs().max()), abs(end - t)
    grown = size > GROWN * (1 + start) or (
        math.isfinite(rate) and rate * max(left, abs(h)) > 1e6 and size > 30 * (1 + start)
    )
    # Reversible methods are not stable at any step: theirs is small, and says nothing. A field is
    # stiff, too, whose fastest rate the solution does not show.
    hidden = solver.reversible and rate * max(size, start) > 50 * float(slope.abs().max())
    stiff = not solver.implicit and rate * left > 50 and (rate * pace > STABILITY_LIMIT or hidden)
    eps, (rtol, atol) = torch.finfo(y.dtype).eps, settings.tightest
    if not solver.adaptive or settings.step_size is not None:
        pace = abs(h)
        # Where the state is now, every rate may be huge: the start tells a fast field from one
        # whose state goes to infinity.
        usual = fastest_rate(field, t, y0)
        if status is Status.MAX_STEPS:
            remedy = "Raise max_steps, or take a larger step_size."
        elif solver.implicit and finite and ahead:
            remedy = _newton(pace)
        elif not solver.implicit and usual * pace > STABILITY_LIMIT and (grown or ahead):
            remedy = (
                f"The step is too large for the field, whose fastest rate is about {usual:.3g} "
                f"per unit of time: h·rate = {usual * pace:.3g}. Take a smaller step_size, or an "
                "implicit method such as 'radau5' or 'implicit-midpoint'."
            )
        else:
            remedy = _blow_up(t, size) + " Or take smaller steps." if grown else _not_finite(t, h)
    elif grown:
        remedy = _blow_up(t, size)
    elif solver.implicit and refused is not None and finite and ahead:
        remedy = _newton(abs(reach))
    elif refused is not None or not finite or not ahead:
        status, remedy = Status.NON_FINITE, _not_finite(t)
    elif stiff:
        remedy = (
            f"The problem is stiff: the fastest rate is about {rate:.3g} per unit of time and "
            f"stability, not accuracy, keeps the step at h·rate = {rate * pace:.2g}. Use "
            "method='radau5' or method='sdirk4'."
        )
    elif status is Status.MAX_STEPS and not WORTH_WAITING * pace < left < math.inf:
        remedy = (
            f"The field is not stiff here (h·rate = {rate * pace:.2g}): raise max_steps, or "
            "loosen rtol and atol."
        )
    elif rtol < 10 * eps and atol < 10 * eps * max(size, start):
        remedy = (
            f"rtol = {rtol:g} and atol = {atol:g} are below what "
            f"{str(y.dtype).removeprefix('torch.')} can resolve: use float64, or an rtol above "
            f"{100 * eps:.0e}."
        )
    elif status is Status.MAX_STEPS:
        remedy = (
            f"At steps of {pace:.3g} it would take {left / pace:.1g} more: loosen rtol and atol, "
            "or look for what makes the field change so fast."
        )
    else:
        remedy = (
            "The field seems to jump there: split the solve at the jump, smooth the field, or "
            "use a fixed step_size."
        )
    message = explain(where, expected=f"to reach t = {end:.6g}", got=got, remedy=remedy)
    return Failure(status, message, t, sample)


def _blow_up(t: float, size: float) -> str:
    return (
        f"The state has grown to {size:.3g} and seems to go to infinity near t = {t:.6g}: end the "
        "solve before that, bound the field (tanh, weight decay), or stop at an event."
    )


def _not_finite(t: float, h: float = 0.0) -> str:
    where = f"in the step to t = {t + h:.6g}" if h else f"not finite beyond t = {t:.6g}"
    return (
        f"The field, or the state, is NaN or infinity there, {where}: look at "
        "logarithms, roots and divisions in the field, and at the state it was given."
    )


def _newton(h: float) -> str:
    return (
        f"Newton's method did not converge in a step of {h:.3g}: the equations of a step so large "
        "may have no solution. Take smaller steps, or end the solve earlier."
    )
