"""Step by step: a solve as an iterator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import OptionError, SolveError
from undamped.ode.field import CountedField
from undamped.ode.loop.batch import Integration
from undamped.ode.methods.solver import Solver
from undamped.ode.record import Status
from undamped.ode.settings import choose_solver, read_settings
from undamped.ode.solve import NonFiniteSolveError, Tolerance
from undamped.ode.state.packing import Packing


@dataclass(frozen=True)
class Reached:
    """Where an iterated solve has got to.

    Args:
        t: Time.
        y: State, in the form the start had.
        step: Size of the last step.
        evaluations: Evaluations of the field so far.
        rejected: Refused steps so far.
    """

    t: float
    y: Any
    step: float
    evaluations: int
    rejected: int


def iterate(
    field: Callable[[Any, Any], Any],
    y0: Any,
    start: float | Tensor,
    end: float | Tensor,
    *,
    method: str | Solver = "dopri5",
    rtol: Tolerance = None,
    atol: Tolerance = None,
    options: dict[str, Any] | None = None,
) -> Iterator[Reached]:
    """Yield after every accepted step; leave the loop whenever enough has been seen.

    Args:
        field: f(t, y) → dy/dt.
        y0: A tensor of any shape, or a tuple of tensors.
        start: Time of y0.
        end: Time at which to stop at the latest; infinity leaves that to the caller.
        method: A registry name or a solver.
        rtol: Relative tolerance, 1e-7 if not given.
        atol: Absolute tolerance, 1e-9 if not given.
        options: Further settings by name, as in `undamped.ode.solve`.

    Example:
        >>> for reached in iterate(lambda t, y: -y, torch.ones(3), 0.0, 10.0):
        ...     if reached.y.norm() < 0.1:
        ...         break
    """
    solver = choose_solver(method)
    packing = Packing.of(y0)
    y = packing.pack(y0, "the start")
    settings = read_settings(solver, rtol, atol, options or {}, packing, y)
    start, end = float(start), float(end)
    fixed = not solver.adaptive and settings.step_size is None
    if not math.isfinite(start) or math.isnan(end) or (fixed and math.isinf(end)):
        raise OptionError(
            f"start and end must be two times, got {start:g} and {end:g}. The end may be infinite "
            "for methods with step control, or with options={'step_size': …}."
        )
    counted = CountedField(field, packing)
    with counted.within(settings.jumps.window(start, 1.0 if end >= start else -1.0)):
        first = counted.first(torch.full((), start, dtype=y.dtype, device=y.device), y)
    run = Integration(
        counted,
        solver,
        y,
        (start, end),
        settings,
        first=first,
        differentiated=first.requires_grad or y.requires_grad,
    )
    for step in run.advance():
        yield Reached(run.t, packing.unpack(run.y), step, counted.count, run.statistics.rejected)
    if run.failure is not None:
        not_finite = run.failure.status is Status.NON_FINITE
        raise (NonFiniteSolveError if not_finite else SolveError)(run.failure.message)
