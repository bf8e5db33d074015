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

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from undamped.ode.loop.control import SMALLEST_ERROR, ControlMemory
from undamped.ode.loop.numbers import choose, clip, finite

if TYPE_CHECKING:
    from undamped.ode.methods.implicit.stepper import ImplicitStepper

WORTH_IT = 1.2
"""Growth below which new factors cost more than a longer step saves."""
GROW = 10.0


@dataclass
class PredictiveMemory(ControlMemory):
    """What predicts the step sizes of an implicit method, for one lane or for several."""

    stepper: ImplicitStepper | None = field(default=None)
    size_before: Any = math.nan

    def next_factor(self, error: Any, accepted: Any) -> Any:
        """Return what step sizes are to be multiplied by: one where a change would not pay."""
        stepper = self.stepper
        assert stepper is not None and stepper.made is not None
        made, control, k = stepper.made, self.control, self.order + 1
        parts = stepper.sizes, made.used, made.ok, stepper.wanted
        if isinstance(error, Tensor):
            size, used, solved, wanted = (torch.from_numpy(x).to(error.device) for x in parts)
        else:
            size, used, solved, wanted = (x.item(0) for x in parts)
        size = abs(size)
        counted = choose(error > SMALLEST_ERROR, error, SMALLEST_ERROR)
        trend = size / self.size_before * (self.before / counted) ** (1 / k)
        trend = choose(trend < 1, trend, 1.0)
        safety = control.safety * (2 * made.iterations + 1) / (2 * made.iterations + used)
        factor = safety * counted ** (-1 / k) * trend
        onward = clip(factor, control.shrink, choose(self.rejected, 1.0, GROW))
        onward = choose(wanted, onward, choose(onward < WORTH_IT, 1.0, onward))
        again = clip(factor, control.shrink, 0.9)
        again = choose(solved, choose(finite(error), again, 0.5), 0.5)
        self.before = choose(accepted, choose(counted > 1e-2, counted, 1e-2), self.before)
        self.size_before = choose(accepted, size, self.size_before)
        self.rejected = ~accepted if isinstance(accepted, Tensor) else not accepted
        return choose(accepted, onward, again)
