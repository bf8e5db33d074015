"""Simplified Newton iterations for the stages of a step.

They stop by the tolerance of the step, not by rounding.

Equation:
    θ = ‖Δ_k‖ / ‖Δ_{k−1}‖,  stop when θ/(1−θ) ‖Δ_k‖ ≤ κ,
    give up when θ ≥ 1 or θ^{m−k}/(1−θ) ‖Δ_k‖ > κ

Symbols:
    Δ_k correction, in units of the tolerance; m iterations allowed; κ fraction of the tolerance
    that the equations may leave.

Reference:
    E. Hairer, G. Wanner. Solving ordinary differential equations II, section IV.8.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from undamped.ode.methods.implicit.linearization import Linearization
from undamped.ode.methods.solver import Number
from undamped.ode.methods.stages import stage_times

if TYPE_CHECKING:
    from undamped.ode.methods.implicit.stepper import ImplicitStepper

PATIENCE = 40
"""Corrections allowed between two derivatives in a step that is solved to rounding."""
ONE_LANE, NO_LANE = np.ones(1, dtype=bool), np.zeros(1, dtype=bool)


class Attempt:
    """A step being solved, every system a row.

    Args:
        stepper: The method during the solve.
        t: Time at the start of the step.
        h: Step size: a number, or a column like the state's.
        y: State at the start.
        line: The linearized field: its derivative and factors.
    """

    def __init__(
        self, stepper: ImplicitStepper, t: Number, h: Number, y: Tensor, line: Linearization
    ) -> None:
        self.t, self.h, self.y, self.line = t, h, y, line
        self.rows = rows = line.systems.rows(y)
        """The state, (systems, size)."""
        self.row_h = h.reshape(-1, 1).to(y.dtype) if isinstance(h, Tensor) else h
        """The step size for rows, (systems, 1) where it is not one number."""
        if stepper.norm is None:
            # Simplified corrections shrink by a factor each: they cannot be expected to reach
            # rounding.
            weights, kappa, most = 1 / (1 + rows.abs()), torch.finfo(y.dtype).eps ** 0.75, PATIENCE
        else:
            weights = line.systems.rows(stepper.norm.weights(y))
            kappa, most = stepper.kappa, stepper.solver.newton_iterations
        self.weights, self.kappa, self.iterations = weights, kappa, most
        """What makes units of the tolerance of a correction, (systems, size); κ and m."""
        self.factor, self.initial = stepper.factor, stepper.slope
        """How fast corrections shrank before, for each lane; f at the start once evaluated."""
        self.last: Tensor | None = None
        """Stages of the step before, (stages, systems, size)."""
        self.ratio = np.zeros_like(stepper.sizes)
        """Size of this step over that of the one before, for each lane."""
        if stepper.last is not None:
            self.last = stepper.last.reshape(len(stepper.last), *rows.shape)
            moved = stepper.sizes_before != 0
            np.divide(stepper.sizes, stepper.sizes_before, out=self.ratio, where=moved)
        self.used = np.zeros(line.lanes, dtype=np.int64)
        self.rate = np.zeros(line.lanes)
        self.ok = np.ones(line.lanes, dtype=bool)

    def times(self, nodes: tuple[float, ...]) -> Sequence[Tensor]:
        """Return the times at fractions of the step."""
        return stage_times(self.t, self.h, nodes, self.y)

    def first_slope(self) -> Tensor:
        """Return f at the start of the step, as rows."""
        if self.initial is None:
            self.initial = self.line.field(self.times((0.0,))[0], self.y)
        return self.line.systems.rows(self.initial)

    def slope(self, time: Tensor, change: Tensor) -> Tensor:
        """Return f at the start of the step plus a change, as rows."""
        systems = self.line.systems
        return systems.rows(self.line.field(time, systems.state(self.rows + change)))

    def correct(
        self,
        stages: Tensor,
        residual: Callable[[Tensor], Tensor],
        solve: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """Return stages with corrections added until they converge or fail.

        Args:
            stages: Where to begin, (…, systems, size).
            residual: What the equations leave at some stages, of the same shape.
            solve: Solves the linearized equations for a residual.
        """
        convergence = Convergence(self)
        while convergence.active:
            correction = solve(residual(stages))
            lanes = convergence.update(correction)
            if lanes is ONE_LANE or lanes.all():
                stages = stages + correction
            else:
                mask = torch.from_numpy(lanes).to(stages.device).unsqueeze(1)
                stages = torch.where(mask, stages + correction, stages)
        self._finish(convergence)
        return stages

    def _finish(self, convergence: Convergence) -> None:
        """Record how equations were solved; a lane that failed here failed altogether."""
        converged = convergence.converged
        if self.line.lanes == 1:
            self.factor = convergence.factor if converged[0] else self.factor
            self.used[0] = max(self.used[0], convergence.iterations[0])
            self.rate[0] = max(self.rate[0], convergence.rate[0])
            self.ok[0] = self.ok[0] and converged[0]
            return
        self.factor = np.where(converged, convergence.factor, self.factor)
        self.used = np.maximum(self.used, convergence.iterations)
        self.rate = np.maximum(self.rate, convergence.rate)
        self.ok &= converged


class Convergence:
    """The corrections of some lanes, each of which converges or fails by itself.

    Args:
        attempt: The step; its factor, θ/(1−θ) of the last step, can make one correction suffice.
    """

    def __init__(self, attempt: Attempt) -> None:
        lanes = attempt.line.lanes
        self.weights, self.kappa, self.lanes = attempt.weights, attempt.kappa, lanes
        self.most = attempt.iterations
        self.converged = np.zeros(lanes, dtype=bool)
        self.failed = np.zeros(lanes, dtype=bool)
        self.iterations = np.zeros(lanes, dtype=np.int64)
        self.rate = np.zeros(lanes)
        self.factor = np.maximum(attempt.factor, 2.3e-16) ** 0.8
        self._before = np.full(lanes, np.nan)
        self.active = True
        """Whether any lane needs another correction."""

    def update(self, correction: Tensor) -> np.ndarray:
        """Judge a correction, (…, systems, size); return the lanes to which it is to be added."""
        scaled, systems = correction * self.weights, self.weights.shape[0]
        scale = math.sqrt(systems / scaled.numel())
        if systems == 1:
            return self._update_one(torch.linalg.vector_norm(scaled).item() * scale)
        dims = (0, 2) if scaled.dim() == 3 else 1
        sizes = torch.linalg.vector_norm(scaled, dim=dims)
        if self.lanes == 1:
            return self._update_one(sizes.amax().item() * scale)
        return self._update_many(sizes.cpu().double().numpy() * scale)

    def _update_one(self, size: float) -> np.ndarray:
        """Do what `_update_many` does, in plain numbers: arrays of one cost ten times as much."""
        before, index = float(self._before[0]), int(self.iterations[0])
        factor, rate, hopeless = float(self.factor[0]), float(self.rate[0]), False
        if index:
            rate = size / before if before else 0.0
            if rate < 1:
                factor = rate / (1 - rate)
                hopeless = rate ** (self.most - 1 - index) / (1 - rate) * size > self.kappa
            else:
                hopeless = True
        negligible = size <= 1e-3 * self.kappa if index else size == 0
        if not math.isfinite(size) or (hopeless and not negligible):
            self.failed[0], self.active = True, False
            return NO_LANE
        self.iterations[0] = index + 1
        good = negligible or factor * size <= self.kappa
        self.converged[0] = good
        self.failed[0] = not good and index + 1 >= self.most
        self.active = not good and index + 1 < self.most
        if index:
            self.rate[0] = rate
            if not negligible:
                self.factor[0] = factor
        self._before[0] = size
        return ONE_LANE

    def _update_many(self, sizes: np.ndarray) -> np.ndarray:
        active = ~(self.converged | self.failed)
        with np.errstate(all="ignore"):
            rate = sizes / self._before
            first = self.iterations == 0
            remaining = self.most - 1 - self.iterations
            factor = np.where(first, self.factor, rate / (1 - rate))
            hopeless = ~first & ~((rate < 1) & (rate**remaining / (1 - rate) * sizes <= self.kappa))
            # Negligible corrections have no meaningful rate.
            negligible = sizes <= 1e-3 * self.kappa * ~first
            good = negligible | (factor * sizes <= self.kappa)
        broken = active & (~np.isfinite(sizes) | (hopeless & ~negligible))
        self.failed |= broken
        active &= ~broken
        self.iterations += active
        self.converged |= active & good
        self.failed |= active & ~good & (self.iterations >= self.most)
        self.active = not (self.converged | self.failed).all()
        self.rate = np.where(active & ~first, rate, self.rate)
        self.factor = np.where(active & ~first & ~negligible, factor, self.factor)
        self._before = np.where(active, sizes, self._before)
        return active
