"""When to stop simplified Newton iterations: by the tolerance of the step, not by rounding.

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

import numpy as np
import torch
from torch import Tensor

from undamped.ode.loop.norm import ErrorNorm

ONE_LANE, NO_LANE = np.ones(1, dtype=bool), np.zeros(1, dtype=bool)


def allowed(norm: ErrorNorm, like: Tensor) -> float:
    """Return κ for a tolerance."""
    rtol = max(float(torch.as_tensor(norm.rtol).min()), 1e-300)
    eps = torch.finfo(like.dtype).eps
    return max(10 * eps / rtol, min(0.03, math.sqrt(rtol)))


def some(lanes: np.ndarray) -> bool:
    """Whether it holds for any lane; for one, a tenth of what a reduction costs."""
    return bool(lanes[0]) if len(lanes) == 1 else bool(lanes.any())


def every(lanes: np.ndarray) -> bool:
    """Whether it holds for all lanes."""
    return bool(lanes[0]) if len(lanes) == 1 else bool(lanes.all())


class Convergence:
    """The corrections of some lanes, each of which converges or fails by itself.

    Args:
        weights: What a correction is multiplied by to be in units of the tolerance,
            (systems, size).
        kappa: κ.
        iterations: m.
        lanes: One for all systems, or one for each.
        factor: θ/(1−θ) of the last step, so that one correction can be enough.
    """

    def __init__(
        self, weights: Tensor, kappa: float, iterations: int, lanes: int, factor: np.ndarray
    ) -> None:
        self.weights, self.kappa, self.most, self.lanes = weights, kappa, iterations, lanes
        self.converged = np.zeros(lanes, dtype=bool)
        self.failed = np.zeros(lanes, dtype=bool)
        self.iterations = np.zeros(lanes, dtype=np.int64)
        self.rate = np.zeros(lanes)
        self.factor = np.maximum(factor, 2.3e-16) ** 0.8
        self._before = np.full(lanes, np.nan)

        self.under_way = True
        """Whether any lane needs another correction."""

    def look(self, correction: Tensor) -> np.ndarray:
        """Look at a correction, (…, systems, size); return the lanes to which it is to be added."""
        scaled, systems = correction * self.weights, self.weights.shape[0]
        scale = math.sqrt(systems / scaled.numel())
        if systems == 1:
            return self._look_at_one(torch.linalg.vector_norm(scaled).item() * scale)
        dims = (0, 2) if scaled.dim() == 3 else 1
        sizes = torch.linalg.vector_norm(scaled, dim=dims)
        if self.lanes == 1:
            return self._look_at_one(sizes.amax().item() * scale)
        return self._look_at_many(sizes.cpu().double().numpy() * scale)

    def _look_at_one(self, size: float) -> np.ndarray:
        """Do what `_look_at_many` does, in plain numbers: arrays of one cost ten times as much."""
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
            self.failed[0], self.under_way = True, False
            return NO_LANE
        self.iterations[0] = index + 1
        good = negligible or factor * size <= self.kappa
        self.converged[0] = good
        self.failed[0] = not good and index + 1 >= self.most
        self.under_way = not good and index + 1 < self.most
        if index:
            self.rate[0] = rate
            if not negligible:
                self.factor[0] = factor
        self._before[0] = size
        return ONE_LANE

    def _look_at_many(self, sizes: np.ndarray) -> np.ndarray:
        active = ~(self.converged | self.failed)
        with np.errstate(all="ignore"):
            rate = sizes / self._before
            first = self.iterations == 0
            left = self.most - 1 - self.iterations
            factor = np.where(first, self.factor, rate / (1 - rate))
            hopeless = ~first & ~((rate < 1) & (rate**left / (1 - rate) * sizes <= self.kappa))
            # Negligible corrections have no meaningful rate.
            negligible = sizes <= 1e-3 * self.kappa * ~first
            good = negligible | (factor * sizes <= self.kappa)
        broken = active & (~np.isfinite(sizes) | (hopeless & ~negligible))
        self.failed |= broken
        active &= ~broken
        self.iterations += active
        self.converged |= active & good
        self.failed |= active & ~good & (self.iterations >= self.most)
        self.under_way = not (self.converged | self.failed).all()
        self.rate = np.where(active & ~first, rate, self.rate)
        self.factor = np.where(active & ~first & ~negligible, factor, self.factor)
        self._before = np.where(active, sizes, self._before)
        return active
