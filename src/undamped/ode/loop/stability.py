"""Explicit steps of a differentiated solve keep a distance from the limit of stability.

At the limit the fastest parts of the state neither grow nor die away. They are as small as the
tolerance, but their derivative grows with every step. One evaluation now and then, along the
estimated error of a step or along what the last one found, says how fast the fastest part is.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from undamped.ode.field import CountedField
from undamped.ode.loop.jumps import Jumps
from undamped.ode.methods.explicit.runge_kutta import RungeKuttaStepper
from undamped.ode.methods.solver import Stepper

FIRST, OFTEN, SELDOM = 2, 1, 64
"""Accepted steps before the first look, between two near the limit, and between two at most."""
NEAR = 0.5
"""Part of the limit from which on to look often."""
DISTANCE = 0.85
"""Part of the limit that steps may take."""


class StabilityControl:
    """Bounds the steps of an explicit method by the fastest rate of its field.

    Args:
        field: The field.
    """

    def __init__(self, field: CountedField) -> None:
        self.field = field
        self._every = self._wait = FIRST
        self._direction: Tensor | None = None
        self._largest = math.inf

    def largest_step(self, stepper: Stepper, t: float, h: float, jumps: Jumps) -> float:
        """Return how large the next step may be, before the last attempt is accepted.

        Args:
            stepper: The method.
            t: Where the attempt began.
            h: Its size, with the sign of its direction.
            jumps: Times at which the field jumps.
        """
        self._wait -= 1
        if self._wait > 0:
            return self._largest
        explicit = stepper.active
        if not isinstance(explicit, RungeKuttaStepper):
            self._wait, self._largest = OFTEN, math.inf
            return self._largest
        with self.field.within(jumps.window(t, h)):
            rate = self._rate(explicit, t)
        limit = explicit.solver.tableau.stability_limit
        if rate * abs(h) < NEAR * limit:
            self._every, self._direction = min(2 * self._every, SELDOM), None
        else:
            self._every = OFTEN
        self._wait = self._every
        self._largest = DISTANCE * limit / rate if rate > 0 else math.inf
        stepper.note_rate(rate)
        return self._largest

    @torch.no_grad()
    def _rate(self, stepper: RungeKuttaStepper, t: float) -> float:
        """Return how fast the field changes along the direction, and turn that to the fastest."""
        y, slope = stepper.state[0].detach(), stepper.first_slope.detach()
        along = stepper.error() if self._direction is None else self._direction
        length = torch.linalg.vector_norm(along).item()
        if not 0 < length < math.inf:
            return 0.0
        eps = torch.finfo(y.dtype).eps
        distance = eps**0.4 * max(torch.linalg.vector_norm(y).item(), eps**0.2)
        moved = torch.add(y, along, alpha=distance / length)
        time = torch.full((), t, dtype=y.dtype, device=y.device)
        self._direction = self.field(time, moved) - slope
        rate = torch.linalg.vector_norm(self._direction).item() / distance
        return rate if math.isfinite(rate) else 0.0


class SampleStabilityControl:
    """The same for samples with a step size each, at every so many attempts.

    Args:
        field: The field.
        limit: Largest stable step times rate of decay.
        y: Start values.
    """

    EVERY = 8

    def __init__(self, field: CountedField, limit: float, y: Tensor) -> None:
        self.field, self.limit = field, limit
        self.largest = torch.full((len(y),), math.inf, dtype=torch.float64, device=y.device)
        """How large the next step of each may be."""
        self._direction = torch.zeros_like(y.detach())

    @torch.no_grad()
    def look(
        self, rows: Tensor, step: tuple[Tensor, Tensor], y: Tensor, slope: Tensor, error: Tensor
    ) -> None:
        """Measure the fastest rates of some samples.

        Args:
            rows: The samples.
            step: Times and sizes of their attempts, as columns.
            y: Where these began.
            slope: f there.
            error: Their estimated errors.
        """
        y, slope, column = y.detach(), slope.detach(), step[0].shape
        known = self._direction[rows]
        along = torch.where(_lengths(known).view(column) > 0, known, error)
        eps = torch.finfo(y.dtype).eps
        length = _lengths(along)
        distance = eps**0.4 * _lengths(y).clamp_min(eps**0.2)
        share = torch.where(length > 0, distance / length, 0.0).view(column)
        change = self.field(step[0].to(y.dtype), y + share * along) - slope
        rate = (_lengths(change) / distance).double().nan_to_num(0.0, 0.0)
        near = rate * step[1].abs().reshape(-1) >= NEAR * self.limit
        kept = torch.where(near.view(column), change, 0.0)
        self._direction = self._direction.index_copy(0, rows, kept)
        self.largest = self.largest.index_copy(0, rows, DISTANCE * self.limit / rate)


def _lengths(value: Tensor) -> Tensor:
    return torch.linalg.vector_norm(value.reshape(len(value), -1), dim=1)
