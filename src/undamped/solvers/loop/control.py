"""Step control: how large an error counts, and how the next step size follows from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from undamped.errors import OptionError, explain
from undamped.solvers.methods.combine import Terms, terms_of

if TYPE_CHECKING:
    from undamped.solvers.methods.solver import Field

ALONE, DIFFERENCE = terms_of((1.0,)), terms_of((1.0, -1.0))


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
    """The errors of the last accepted steps, for one step size."""

    control: StepControl
    order: int
    before: float = 1.0
    earlier: float = 1.0
    refused: bool = field(default=False)

    def after_accepting(self, error: float) -> float:
        """Return the factor for the next step."""
        control, k = self.control, self.order + 1
        error = max(error, 1e-10)
        p, i, d = control.proportional, control.integral, control.derivative
        factor = (
            control.safety
            * error ** (-(i + p + d) / k)
            * self.before ** ((p + 2 * d) / k)
            * self.earlier ** (-d / k)
        )
        self.earlier, self.before = self.before, error
        limit = 1.0 if self.refused else control.grow
        self.refused = False
        return min(limit, max(control.shrink, factor))

    def after_refusing(self, error: float) -> float:
        """Return the factor for the next attempt."""
        self.refused = True
        if not math.isfinite(error):
            return self.control.shrink
        factor = self.control.safety * error ** (-1 / (self.order + 1))
        return max(self.control.shrink, min(0.9, factor))


class ErrorNorm:
    """The error of an attempt in units of the tolerance.

    Equation:
        ‖e / (atol + rtol max(|y|, |y'|))‖, root mean square

    Args:
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        size: How many leading numbers of the state count; all by default.
    """

    def __init__(self, rtol: float, atol: float, size: int | None) -> None:
        if rtol == 0 and atol == 0:
            raise OptionError(
                explain(
                    "rtol and atol",
                    expected="at least one above 0",
                    got="0 for both",
                    remedy="No step is without error: allow some, such as rtol=1e-10.",
                )
            )
        self.rtol, self.atol, self.size = rtol, atol, size

    @torch.no_grad()
    def ratio(self, error: Tensor, y: Tensor, y1: Tensor) -> Tensor:
        """Return the error of every number of a step from y to y1."""
        scale = torch.maximum(y.abs(), y1.abs()).mul_(self.rtol).add_(self.atol)
        # Without an atol, what stays zero has no scale: its error is zero, not 0/0.
        scale.clamp_min_(torch.finfo(scale.dtype).tiny)
        # The last term is zero, or NaN where the step ended in infinity: no error is small in
        # units of that.
        return error.div(scale).add_(y1 - y1)

    def __call__(self, error: Tensor, y: Tensor, y1: Tensor) -> float:
        """Return the norm for a step from y to y1; none of the three may carry a graph."""
        ratio = self.ratio(error, y, y1)
        if self.size is not None:
            ratio = ratio.reshape(-1)[: self.size]
        return torch.linalg.vector_norm(ratio).item() / math.sqrt(max(ratio.numel(), 1))


def initial_step(
    function: Field,
    t: float,
    y: Tensor,
    slope: Tensor,
    *,
    direction: float,
    order: int,
    measure: Callable[[Terms, Sequence[Tensor]], float],
) -> float:
    """Choose the first step size from two evaluations (Hairer, Nørsett, Wanner, II.4).

    Args:
        function: The field.
        t: Start time.
        y: Start value.
        slope: f(t, y).
        direction: 1 forwards in time, −1 backwards.
        order: Order of the error estimate.
        measure: Returns the size of Σ a_j part_j in units of the tolerance at y.
    """
    d0, d1 = measure(ALONE, [y]), measure(ALONE, [slope])
    h0 = 1e-6 if d0 < 1e-5 or not 1e-5 <= d1 < math.inf else 0.01 * d0 / d1
    time = torch.full((), t + direction * h0, dtype=y.dtype, device=y.device)
    moved = function(time, torch.add(y, slope, alpha=direction * h0))
    d2 = measure(DIFFERENCE, [moved, slope]) / h0
    if not math.isfinite(d2):
        return h0
    largest = max(d1, d2)
    h1 = max(1e-6, h0 * 1e-3) if largest <= 1e-15 else (0.01 / largest) ** (1 / (order + 1))
    return min(100 * h0, h1)
