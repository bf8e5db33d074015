"""What is known of the place where a solve got stuck."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from undamped.ode.field import all_finite
from undamped.ode.methods.solver import Field, Solver
from undamped.ode.record import Status
from undamped.ode.settings import Settings

# Explicit methods of order three to eight are stable up to about |hλ| = 2.5 to 5.
STABILITY_LIMIT = 1.5
# A state so many times as large as it was at the start is on its way to infinity.
GROWN = 1e3


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


@dataclass(frozen=True)
class Evidence:
    """What is known of the place where a solve got stuck.

    Args:
        status: What happened.
        implicit: Whether steps solve equations.
        fixed: Whether steps have a given size.
        t: Time reached.
        h: Size of the last attempt.
        left: Time left.
        pace: Mean size of the last accepted steps.
        refused: Whether the last attempt was refused for what is not finite.
        finite: Whether the field is finite here.
        ahead: Whether it is a step ahead: a field may be finite here and not a hair later.
        rate: Fastest rate of the field here.
        usual: Fastest rate at the start's state: where the state is now, every rate may be huge,
            and the start tells a fast field from one whose state goes to infinity.
        size: Largest number of the state.
        grown: Whether that is on its way to infinity.
        stiff: Whether stability keeps the steps small.
        unresolved: Whether the tolerance is below what the number format can resolve.
        tolerance: The smallest tolerances, relative and absolute.
        dtype: The number format.
    """

    status: Status
    implicit: bool
    fixed: bool
    t: float
    h: float
    left: float
    pace: float
    refused: bool
    finite: bool
    ahead: bool
    rate: float
    usual: float
    size: float
    grown: bool
    stiff: bool
    unresolved: bool
    tolerance: tuple[float, float]
    dtype: torch.dtype

    @classmethod
    def gather(
        cls,
        status: Status,
        field: Field,
        t: float,
        h: float,
        end: float,
        y: Tensor,
        y0: Tensor,
        solver: Solver,
        settings: Settings,
        *,
        pace: float,
        refused: float | None,
    ) -> Evidence:
        """Look at the field where the solve stopped; arguments as for `explain_failure`."""
        fixed = not solver.adaptive or settings.step_size is not None
        time = torch.full((), t, dtype=y.dtype, device=y.device)
        reach = h if refused is None else refused
        with torch.no_grad():
            slope = field(time, y)
            ahead = all_finite(field(time + reach, torch.add(y, slope, alpha=reach)))
        rate = fastest_rate(field, t, y)
        size, start, left = float(y.abs().max()), float(y0.abs().max()), abs(end - t)
        grown = size > GROWN * (1 + start) or (
            math.isfinite(rate) and rate * max(left, abs(h)) > 1e6 and size > 30 * (1 + start)
        )
        # Reversible methods are not stable at any step: theirs is small, and says nothing. A field
        # is stiff, too, whose fastest rate the solution does not show.
        hidden = solver.reversible and rate * max(size, start) > 50 * float(slope.abs().max())
        limited = rate * pace > STABILITY_LIMIT or hidden
        eps, (rtol, atol) = torch.finfo(y.dtype).eps, settings.tightest
        return cls(
            status=status,
            implicit=solver.implicit,
            fixed=fixed,
            t=t,
            h=reach,
            left=left,
            pace=abs(h) if fixed else pace,
            refused=refused is not None,
            finite=all_finite(slope),
            ahead=ahead,
            rate=rate,
            usual=fastest_rate(field, t, y0) if fixed else rate,
            size=size,
            grown=grown,
            stiff=not solver.implicit and rate * left > 50 and limited,
            unresolved=rtol < 10 * eps and atol < 10 * eps * max(size, start),
            tolerance=(rtol, atol),
            dtype=y.dtype,
        )

    @property
    def newton_failed(self) -> bool:
        """Whether the equations of a step had no solution although the field is finite."""
        return self.implicit and self.finite and self.ahead and (self.fixed or self.refused)

    @property
    def met_not_finite(self) -> bool:
        """Whether the field, and not the state by itself, stopped a solve that chose its steps."""
        stopped = self.refused or not self.finite or not self.ahead
        return not self.fixed and stopped and not self.grown and not self.newton_failed
