"""Step sizes of implicit methods: predicted from two errors, and kept where that saves factors.

Equation:
    factor = safety · e_n^{−1/k} · min(1, h_n/h_{n−1} · (e_{n−1}/e_n)^{1/k}),
    safety = s (2m + 1)/(2m + i)

Symbols:
    e errors in units of the tolerance, h step sizes, k order of the estimate plus one, m
    corrections allowed, i corrections needed, s the usual safety.

Reference:
    K. Gustafsson. Control-theoretic techniques for stepsize selection in implicit Runge–Kutta
    methods. ACM Transactions on Mathematical Software 20 (1994); E. Hairer, G. Wanner. Solving
    ordinary differential equations II, section IV.8.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from undamped.solvers.loop.control import ControlMemory, StepControl

if TYPE_CHECKING:
    from undamped.solvers.methods.implicit.method import Attempt
    from undamped.solvers.methods.implicit.stepper import ImplicitStepper

WORTH_IT = 1.2
"""Growth below which new factors cost more than a longer step saves."""
GROW = 10.0


def next_factor(
    control: StepControl,
    order: int,
    error: np.ndarray,
    sizes: np.ndarray,
    before: np.ndarray,
    sizes_before: np.ndarray,
    iterations: np.ndarray,
    most: int,
) -> np.ndarray:
    """Return the factor for the next step sizes, not yet limited.

    Args:
        control: For its safety.
        order: Order of the estimate.
        error: Errors of this step.
        sizes: Its sizes.
        before: Errors of the last accepted step; NaN where there was none.
        sizes_before: Its sizes.
        iterations: Corrections needed.
        most: Corrections allowed.
    """
    k = order + 1
    error = np.maximum(error, 1e-10)
    with np.errstate(all="ignore"):
        trend = np.abs(sizes / sizes_before) * (np.maximum(before, 1e-2) / error) ** (1 / k)
        trend = np.where(np.isfinite(trend), np.minimum(trend, 1.0), 1.0)
        safety = control.safety * (2 * most + 1) / (2 * most + iterations)
        return safety * error ** (-1 / k) * trend


@dataclass
class PredictiveMemory(ControlMemory):
    """The same protocol as `ControlMemory`, for a method whose corrections tell of effort."""

    stepper: ImplicitStepper | None = field(default=None)
    error_before: float = float("nan")
    size_before: float = float("nan")

    def _factor(self, error: float) -> float:
        made = self._made()
        found = next_factor(
            self.control,
            self.order,
            np.array(error),
            np.array(abs(float(made.h))),
            np.array(self.error_before),
            np.array(self.size_before),
            made.used.max(),
            made.iterations,
        )
        return float(found)

    def _made(self) -> Attempt:
        assert self.stepper is not None and self.stepper.made is not None
        return self.stepper.made

    def after_accepting(self, error: float) -> float:
        """Return the factor for the next step; one where a change would not pay."""
        made = self._made()
        factor = min(GROW, max(self.control.shrink, self._factor(error)))
        self.error_before, self.size_before = error, abs(float(made.h))
        if self.refused:
            factor = min(factor, 1.0)
        self.refused = False
        assert self.stepper is not None
        if factor < WORTH_IT and not self.stepper.wants_derivative:
            return 1.0
        return factor

    def after_refusing(self, error: float) -> float:
        """Return the factor for the next attempt; half where the equations were not solved."""
        self.refused = True
        if not np.isfinite(error):
            return 0.5
        return max(self.control.shrink, min(0.9, self._factor(error)))
