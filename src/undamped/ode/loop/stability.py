"""Explicit steps of a differentiated solve stay away from the limit of stability.

At the limit the fastest components of the state neither grow nor decay. They are as small as the
tolerance, but their derivative grows with every step. Power iteration with differences of the
field, from the estimated error of a step, measures the fastest rate: one evaluation at some steps.

The error estimates of methods of order two hardly see the fastest components, so that steps grow
past the limit between two measurements. With these methods the iteration starts with several
rounds and continues at every step.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from undamped.ode.field import CountedField
from undamped.ode.loop.clocks import Attempt
from undamped.ode.loop.route import Jumps
from undamped.ode.methods.explicit.runge_kutta import RungeKutta, RungeKuttaStepper
from undamped.ode.methods.solver import Stepper

FIRST, OFTEN, SELDOM = 2, 1, 64
"""Accepted steps before the first measurement, between two near the limit, and at most."""
SAMPLES_SELDOM = 8
"""Attempts between two measurements where every sample has a step size, far from the limit."""
NEAR = 0.5
"""Fraction of the limit above which the rate is measured often."""
DISTANCE = 0.85
"""Fraction of the limit that steps may use."""
LOW_ORDER = 2
"""Order up to which the rate is measured at every step."""
ROUNDS = 12
"""Rounds of the first measurement with such a method."""


class StabilityControl:
    """Bounds the steps of an explicit method by the fastest rate of its field.

    Args:
        field: The field.
        jumps: Times at which the field jumps.
    """

    def __init__(self, field: CountedField, jumps: Jumps) -> None:
        self.field, self.jumps = field, jumps
        self._every = self._wait = FIRST
        self._direction: Tensor | None = None
        self._largest = math.inf

    def largest_step(self, stepper: Stepper, t: float, h: float) -> float:
        """Return how large the next step may be, before the last attempt is accepted.

        Args:
            stepper: The method.
            t: Time at which the attempt began.
            h: Its size, with the sign of its direction.
        """
        self._wait -= 1
        if self._wait > 0:
            return self._largest
        explicit = stepper.active
        if not isinstance(explicit, RungeKuttaStepper):
            self._wait, self._largest = OFTEN, math.inf
            return self._largest
        low_order, rate = explicit.solver.order <= LOW_ORDER, 0.0
        with self.field.within(self.jumps.window(t, h)):
            for _ in range(ROUNDS if low_order and self._direction is None else 1):
                rate = self._rate(explicit, t)
        limit = explicit.solver.tableau.stability_limit
        if rate * abs(h) < NEAR * limit and not low_order:
            self._every, self._direction = min(2 * self._every, SELDOM), None
        else:
            self._every = OFTEN
        self._wait = self._every
        self._largest = DISTANCE * limit / rate if rate > 0 else math.inf
        stepper.note_rate(rate)
        return self._largest

    @torch.no_grad()
    def _rate(self, stepper: RungeKuttaStepper, t: float) -> float:
        """Return how fast the field changes along the direction, after one round of iteration."""
        y, slope = stepper.state[0].detach(), stepper.first_slope.detach()
        along = stepper.error() if self._direction is None else self._direction
        length = torch.linalg.vector_norm(along).item()
        if not 0 < length < math.inf:
            self._direction = None
            return 0.0
        eps = torch.finfo(y.dtype).eps
        distance = eps**0.4 * max(torch.linalg.vector_norm(y).item(), eps**0.2)
        moved = torch.add(y, along, alpha=distance / length)
        time = torch.full((), t, dtype=y.dtype, device=y.device)
        self._direction = self.field(time, moved) - slope
        rate = torch.linalg.vector_norm(self._direction).item() / distance
        return rate if math.isfinite(rate) else 0.0


class SampleStabilityControl:
    """Bounds the steps of samples that have a step size each.

    Args:
        field: The field.
        solver: The method.
        y: Start values.
    """

    def __init__(self, field: CountedField, solver: RungeKutta, y: Tensor) -> None:
        self.field, self.limit = field, solver.tableau.stability_limit
        self._low_order = solver.order <= LOW_ORDER
        self.every = OFTEN if self._low_order else SAMPLES_SELDOM
        """Number of attempts from one measurement to the next."""
        self.largest = torch.full((len(y),), math.inf, dtype=torch.float64, device=y.device)
        """Upper bound of the next step of each sample."""
        self._direction = torch.zeros_like(y.detach())
        self._rounds = ROUNDS if self._low_order else 1

    @torch.no_grad()
    def measure(self, attempt: Attempt, error: Tensor) -> None:
        """Measure the fastest rates of some samples from an attempt and its estimated error."""
        rows, y, slope = attempt.rows, attempt.y.detach(), attempt.stages[0].detach()
        t, h = attempt.step
        column = t.shape
        direction = self._direction[rows]
        direction = torch.where(_lengths(direction).view(column) > 0, direction, error)
        eps = torch.finfo(y.dtype).eps
        distance = eps**0.4 * _lengths(y).clamp_min(eps**0.2)
        for _ in range(self._rounds):
            length = _lengths(direction)
            scale = torch.where(length > 0, distance / length, 0.0).view(column)
            direction = self.field(t.to(y.dtype), y + scale * direction) - slope
        self._rounds = 1
        rate = (_lengths(direction) / distance).double().nan_to_num(0.0, 0.0)
        if not self._low_order:
            near = rate * h.abs().reshape(-1) >= NEAR * self.limit
            direction = torch.where(near.view(column), direction, 0.0)
            # Between two measurements steps would grow past the limit.
            self.every = OFTEN if bool(near.any()) else SAMPLES_SELDOM
        self._direction = self._direction.index_copy(0, rows, direction)
        self.largest = self.largest.index_copy(0, rows, DISTANCE * self.limit / rate)


def _lengths(value: Tensor) -> Tensor:
    return torch.linalg.vector_norm(value.reshape(len(value), -1), dim=1)
