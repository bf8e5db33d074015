"""Output times: read and checked, and states as functions of them, so that gradients reach them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import OptionError, ShapeError
from undamped.kernels.dispatch import inside_transform

if TYPE_CHECKING:
    from undamped.ode.field import CountedField

Times = Tensor | Sequence[float]


def read_times(t: Times, y: Tensor, *, open_end: bool = False) -> Tensor:
    """Return output times as a float64 tensor, (outputs,) or (outputs, batch), checked.

    Args:
        t: One list of times for all, or a column for each sample.
        y: The packed start value.
        open_end: Whether the last time may be infinite, for a solve that ends at an event.
    """
    try:
        times = t if isinstance(t, Tensor) else torch.as_tensor(t, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise _not_times(f"a {type(t).__name__}") from None
    if times.is_complex():
        raise _not_times("complex numbers")
    times = times.detach().to(device=y.device, dtype=torch.float64)
    if times.dim() not in (1, 2) or times.shape[0] < 2:
        raise ShapeError(
            "times must be at least two, in one list or one column per sample, got shape "
            f"{tuple(times.shape)}. The first is the start."
        )
    if times.dim() == 2 and (y.dim() < 1 or times.shape[1] != y.shape[0]):
        raise ShapeError(
            f"times must have shape (outputs,) or (outputs, {y.shape[0] if y.dim() else 0}), one "
            f"column per sample, got {tuple(times.shape)}."
        )
    # In NumPy: a few numbers, for which operations of torch cost three times as much. Inside
    # transforms of `torch.func` tensors have no memory to share.
    numbers = np.array(times.tolist()) if inside_transform() else times.cpu().numpy()
    if not np.isfinite(numbers[:-1] if open_end else numbers).all() or np.isnan(numbers).any():
        raise OptionError("times contain NaN or infinity.")
    before, after = numbers[:-1], numbers[1:]
    strict = times.dim() == 1
    rising = (after > before) if strict else (after >= before)
    falling = (after < before) if strict else (after <= before)
    if not (rising.all(0) | falling.all(0)).all():
        raise OptionError(_not_monotone(times))
    return times


def _not_times(got: str) -> OptionError:
    return OptionError(f"times must be real numbers, such as [0.0, 1.0] or a tensor, got {got}.")


def _not_monotone(times: Tensor) -> str:
    column = times if times.dim() == 1 else times[:, 0]
    values = ", ".join(f"{value:.6g}" for value in column[:6].tolist())
    return (
        "times must be strictly increasing or strictly decreasing, got "
        f"[{values}{', …' if len(column) > 6 else ''}]. Sort them and drop repetitions."
    )


def coincide(first: Any, second: Any, scale: Any) -> Any:
    """Whether two times, numbers or tensors, are the same but for rounding; NaN never is.

    Args:
        first: A time, or several.
        second: Another, or one for every sample.
        scale: The largest time of the solve, without sign, which sets the scale of rounding.
    """
    return abs(first - second) <= 1e-14 * scale


def drift(field: CountedField, t: Tensor, y: Tensor, by: Tensor, *, exact: bool) -> Tensor:
    """Return the state a time `by` later, which is zero but has derivatives.

    Args:
        field: f.
        t: Time of y, without dimensions or (batch, 1, …).
        y: The state.
        by: The time, in the shape of t.
        exact: Whether derivatives of derivatives are needed: a step of the classical Runge–Kutta
            method, exact up to the fourth. Otherwise y + by · f without a graph on f.
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
        t: The output times of the user.
        field: f.
        y: The start value.
        each: Whether every sample has its own times.
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
        t: The output times of the user.
        field: f.
        values: The outputs that were reached, (outputs, …), the start first.
        each: Whether every sample has its own times; NaN for those not reached.
        exact: As for `drift`.
    """
    if not _moves(t):
        return values
    shifted = []
    begin, start = _for_field(t[0], values[0], each).detach(), values[0].detach()
    for time, value in zip(t, values, strict=False):
        moving = _for_field(time, value, each)
        moment = moving.detach()
        by = moving - moment
        if each:
            # NaN times zero is NaN, also backward: missing values must not enter the computation.
            missing = value.detach().isnan().unsqueeze(1).flatten(1).any(1).view(moment.shape)
            moment, by = torch.where(missing, begin, moment), torch.where(missing, 0.0, by)
            safe = torch.where(missing, start, value)
            shifted.append(torch.where(missing, value, drift(field, moment, safe, by, exact=exact)))
        else:
            shifted.append(drift(field, moment, value, by, exact=exact))
    return torch.stack(shifted)


def _moves(t: Any) -> bool:
    return isinstance(t, Tensor) and t.requires_grad and torch.is_grad_enabled()


def _for_field(time: Tensor, y: Tensor, each: bool) -> Tensor:
    """Return a time, or one for every sample, in the shape that the field expects."""
    time = time.to(y)
    return time.expand(len(y)).reshape(-1, *(1,) * (y.dim() - 1)) if each else time
