"""From the place where a solve got stuck to a sentence a person can act on."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from undamped.errors import explain
from undamped.solvers.solver import Field
from undamped.solvers.trace import Failure, Status

# Explicit methods of order three to eight are stable up to about |hλ| = 2.5 to 5.
STABILITY_LIMIT = 1.5


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
    method: str,
    implicit: bool,
    rtol: float,
    steps: int,
    row: int | None = None,
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
        method: Name of the method.
        implicit: Whether it is implicit.
        rtol: Relative tolerance.
        steps: Steps taken.
        row: The row of `y` that failed, where samples have their own steps.
    """
    where = f"solve with '{method}'" + ("" if sample is None else f", sample {sample}")
    looked = y if row is None else y[row : row + 1]
    began = y0 if row is None else y0[row : row + 1]
    time = torch.full((), t, dtype=y.dtype, device=y.device)
    with torch.no_grad():
        slope = field(time, y)
        slope = slope if row is None else slope[row : row + 1]
        # A step ahead: a field may be finite here and not a hair later.
        ahead = field(time + h, torch.add(y, field(time, y), alpha=h))
        ahead = ahead if row is None else ahead[row : row + 1]
    rate = fastest_rate(field, t, y)
    size, start = float(looked.abs().max()), float(began.abs().max())
    got = f"a stop at t = {t:.6g} after {steps} steps with step size {abs(h):.3g}"
    finite = bool(torch.isfinite(slope).all())
    grown = size > 1e3 * (1 + start) or (
        math.isfinite(rate) and rate * max(abs(end - t), abs(h)) > 1e6 and size > 30 * (1 + start)
    )
    eps = torch.finfo(y.dtype).eps
    if (
        status is Status.NON_FINITE
        or not finite
        or (not bool(torch.isfinite(ahead).all()) and not grown)
    ):
        if grown:
            remedy = _blow_up(t, size)
        else:
            remedy = (
                "The field returns NaN or infinity there: look at logarithms, roots and divisions "
                "in it, and at the state it was given."
            )
        status = Status.NON_FINITE
    elif grown:
        remedy = _blow_up(t, size)
    elif not implicit and rate * abs(h) > STABILITY_LIMIT and rate * abs(end - t) > 50:
        remedy = (
            f"The problem is stiff: the fastest rate is about {rate:.3g} per unit of time and "
            f"stability, not accuracy, keeps the step at h·rate = {rate * abs(h):.2g}. Use "
            "method='radau5' or method='sdirk4'."
        )
    elif rtol < 10 * eps:
        remedy = (
            f"rtol = {rtol:g} is below what {str(y.dtype).removeprefix('torch.')} can resolve: "
            f"use float64, or an rtol above {100 * eps:.0e}."
        )
    elif status is Status.MAX_STEPS:
        remedy = (
            f"The field is not stiff here (h·rate = {rate * abs(h):.2g}): raise max_steps, or "
            "loosen rtol and atol."
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
