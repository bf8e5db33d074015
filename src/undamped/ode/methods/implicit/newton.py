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
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from undamped.ode.loop.norm import ErrorNorm
from undamped.ode.methods.implicit.linearization import Linearization
from undamped.ode.methods.solver import Number
from undamped.ode.methods.stages import stage_times

ONE_LANE, NO_LANE = np.ones(1, dtype=bool), np.zeros(1, dtype=bool)


def allowed_residual(norm: ErrorNorm, like: Tensor) -> float:
    """Return κ for a tolerance."""
    rtol = max(float(torch.as_tensor(norm.rtol).min()), 1e-300)
    eps = torch.finfo(like.dtype).eps
    return max(10 * eps / rtol, min(0.03, math.sqrt(rtol)))


@dataclass
class Attempt:
    """A step being solved, every system a row.

    Args:
        t: Time at its start.
        h: Step size: a number, or a column like the state's.
        y: State at its start.
        line: The linearized field: its derivative and factors.
        weights: What a correction is multiplied by to be in units of the tolerance,
            (systems, size).
        kappa: Fraction of the tolerance that the equations may leave.
        iterations: Number of corrections allowed.
        factor: How fast corrections shrank before, for each lane.
        initial: f at the start, once it was evaluated.
        last: Stages of the step before, (stages, systems, size).
        ratio: Size of this step over that of the one before, for each lane.
    """

    t: Number
    h: Number
    y: Tensor
    line: Linearization
    weights: Tensor
    kappa: float
    iterations: int
    factor: np.ndarray
    initial: Tensor | None
    last: Tensor | None = None
    ratio: np.ndarray | None = None

    def __post_init__(self) -> None:
        lanes = self.line.lanes
        self.used = np.zeros(lanes, dtype=np.int64)
        self.rate = np.zeros(lanes)
        self.ok = np.ones(lanes, dtype=bool)
        self.rows = self.line.systems.rows(self.y)
        """The state, (systems, size)."""
        h = self.h
        self.row_h = h.reshape(-1, 1).to(self.y.dtype) if isinstance(h, Tensor) else h
        """The step size for rows, (systems, 1) where it is not one number."""

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
