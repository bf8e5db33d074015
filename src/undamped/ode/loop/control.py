"""Step control: how the next step size follows from the error of an attempt.

Every formula is written once, for one step size or for one per sample; `choose`, `clip`, `larger`
and `finite` cover what floats and tensors do not share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from undamped.ode.methods.solver import Number
from undamped.ode.methods.stages import Terms, terms_of

SINGLE, DIFFERENCE = terms_of((1.0,)), terms_of((1.0, -1.0))
SMALLEST_ERROR = 1e-10
"""No error counts as smaller than this, in units of the tolerance."""


@dataclass(frozen=True)
class StepControl:
    """PID control of the step size (Söderlind); the derivative part is off by default.

    Equation:
        factor = safety · e_n^{−(I+P+D)/k} · e_{n−1}^{(P+2D)/k} · e_{n−2}^{−D/k}

    Symbols:
        e_n error of step n in units of the tolerance, k order of the estimate plus one.

    Args:
        integral: I.
        proportional: P.
        derivative: D.
        safety: Aim below the tolerance by this factor.
        shrink: A step shrinks at most to this fraction.
        grow: A step grows at most by this factor.
    """

    integral: float = 0.9
    proportional: float = 0.1
    derivative: float = 0.0
    safety: float = 0.9
    shrink: float = 0.2
    grow: float = 8.0


@dataclass
class ControlMemory:
    """What the next factor depends on: one number, or one for every sample.

    Args:
        control: The rule.
        order: Order of the error estimate.
        before: Error of the last accepted step.
        earlier: Error of the one before.
        rejected: Whether the last attempt was rejected: the next step must not grow then.
    """

    control: StepControl
    order: int
    before: Any = 1.0
    earlier: Any = 1.0
    rejected: Any = False

    def next_factor(self, error: Any, accepted: Any) -> Any:
        """Return the factor for the step size, and remember the attempt.

        Args:
            error: Of the attempt, in units of the tolerance; may be infinite or NaN.
            accepted: Whether it was accepted.
        """
        control, k = self.control, self.order + 1
        p, i, d = control.proportional, control.integral, control.derivative
        lanes = isinstance(error, Tensor)
        counted = (
            choose(error > SMALLEST_ERROR, error, SMALLEST_ERROR)
            if lanes
            else max(SMALLEST_ERROR, error)
        )
        onward = (
            control.safety
            * counted ** (-(i + p + d) / k)
            * self.before ** ((p + 2 * d) / k)
            * self.earlier ** (-d / k)
        )
        retry = control.safety * counted ** (-1 / k)
        if not lanes:
            self.rejected, rejected = not accepted, self.rejected
            if not accepted:
                return min(max(control.shrink, retry), 0.9) if finite(error) else control.shrink
            self.earlier, self.before = self.before, counted
            return min(max(control.shrink, onward), 1.0 if rejected else control.grow)
        onward = clip(onward, control.shrink, choose(self.rejected, 1.0, control.grow))
        retry = choose(finite(error), clip(retry, control.shrink, 0.9), control.shrink)
        self.earlier = choose(accepted, self.before, self.earlier)
        self.before = choose(accepted, counted, self.before)
        self.rejected = ~accepted
        return choose(accepted, onward, retry)

    def next_factors(self, rows: Tensor, errors: Tensor, accepted: Tensor) -> Tensor:
        """Return the factors of some samples, and remember their attempts."""
        names = ("before", "earlier", "rejected")
        part = ControlMemory(self.control, self.order, *(getattr(self, n)[rows] for n in names))
        factors = part.next_factor(errors, accepted)
        for name in names:
            setattr(self, name, getattr(self, name).index_copy(0, rows, getattr(part, name)))
        return factors


@torch.no_grad()
def first_step(
    y: Tensor,
    slope: Tensor,
    *,
    order: int,
    measure: Callable[[Terms, Sequence[Tensor]], Any],
    slope_after: Callable[[Any], Tensor],
) -> Number:
    """Choose the first step size from two evaluations (Hairer, Nørsett, Wanner, II.4).

    Args:
        y: Start value.
        slope: f at the start.
        order: Order of the error estimate.
        measure: Returns the size of Σ a_j part_j in units of the tolerance at y.
        slope_after: Returns f after an Euler step of a size.
    """
    d0, d1 = measure(SINGLE, [y]), measure(SINGLE, [slope])
    regular = (d0 >= 1e-5) & (d1 >= 1e-5) & (d1 < math.inf)
    h0 = choose(regular, 0.01 * d0 / choose(regular, d1, 1.0), 1e-6)
    d2 = measure(DIFFERENCE, [slope_after(h0), slope]) / h0
    largest = larger(d1, d2)
    resting = largest <= 1e-15
    h1 = choose(
        resting,
        larger(h0 * 1e-3, 1e-6),
        (0.01 / choose(resting, 1.0, largest)) ** (1 / (order + 1)),
    )
    return choose(finite(d2), choose(h1 < 100 * h0, h1, 100 * h0), h0)


def choose(condition: Any, yes: Any, no: Any) -> Any:
    """Return `yes` where the condition holds, else `no`."""
    if not isinstance(condition, Tensor):
        return yes if condition else no
    like = next((x for x in (yes, no) if isinstance(x, Tensor)), None)
    if like is None:
        yes = torch.full(condition.shape, yes, dtype=torch.float64, device=condition.device)
    elif not isinstance(yes, Tensor):
        yes = torch.full_like(like, yes)
    return torch.where(condition, yes, no)


def clip(value: Any, low: float, high: Any) -> Any:
    """Return the value within limits, the lower one for NaN."""
    if not isinstance(value, Tensor):
        return high if value > high else (value if value > low else low)
    return choose(value > high, high, choose(value > low, value, low))


def larger(a: Any, b: Any) -> Any:
    """Return the larger of two numbers, NaN if one is."""
    return choose(a >= b, a, choose(a < b, b, math.nan))


def finite(value: Any) -> Any:
    """Whether a number is finite."""
    return torch.isfinite(value) if isinstance(value, Tensor) else math.isfinite(value)
