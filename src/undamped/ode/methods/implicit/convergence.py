"""When to stop simplified Newton iterations: by the tolerance of the step, not by rounding.

Equation:
    θ = ‖Δ_k‖ / ‖Δ_{k−1}‖,  stop when θ/(1−θ) ‖Δ_k‖ ≤ κ,
    give up when θ ≥ 1 or θ^{m−k}/(1−θ) ‖Δ_k‖ > κ

Symbols:
    Δ_k correction, in units of the tolerance; m iterations allowed; κ part of the tolerance that
    the equations may leave.

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


class Convergence:
    """The corrections of some lanes, each of which converges or fails by itself.

    Args:
        weights: What a correction is multiplied by to be in units of the tolerance,
            (systems, size).
        kappa: κ.
        iterations: m.
        lanes: One for all systems, or one for each.
        known: θ/(1−θ) of the last step, so that one correction can be enough.
    """

    def __init__(
        self, weights: Tensor, kappa: float, iterations: int, lanes: int, known: np.ndarray
    ) -> None:
        self.weights, self.kappa, self.most, self.lanes = weights, kappa, iterations, lanes
        self.done = np.zeros(lanes, dtype=bool)
        self.failed = np.zeros(lanes, dtype=bool)
        self.iterations = np.zeros(lanes, dtype=np.int64)
        self.rate = np.zeros(lanes)
        self.factor = np.maximum(known, 2.3e-16) ** 0.8
        self._before = np.full(lanes, np.nan)

        self.under_way = True
        """Whether any lane needs another correction."""

    def look(self, correction: Tensor) -> np.ndarray:
        """Take in a correction, (…, systems, size); return which lanes are to have it added."""
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
        before, number = float(self._before[0]), int(self.iterations[0])
        known, rate, hopeless = float(self.factor[0]), float(self.rate[0]), False
        if number:
            rate = size / before if before else 0.0
            if rate < 1:
                known = rate / (1 - rate)
                hopeless = rate ** (self.most - 1 - number) / (1 - rate) * size > self.kappa
            else:
                hopeless = True
        none = size <= 1e-3 * self.kappa if number else size == 0
        if not math.isfinite(size) or (hopeless and not none):
            self.failed[0], self.under_way = True, False
            return NO_LANE
        self.iterations[0] = number + 1
        good = none or known * size <= self.kappa
        self.done[0] = good
        self.failed[0] = not good and number + 1 >= self.most
        self.under_way = not good and number + 1 < self.most
        if number:
            self.rate[0] = rate
            if not none:
                self.factor[0] = known
        self._before[0] = size
        return ONE_LANE

    def _look_at_many(self, found: np.ndarray) -> np.ndarray:
        active = ~(self.done | self.failed)
        with np.errstate(all="ignore"):
            rate = found / self._before
            first = self.iterations == 0
            left = self.most - 1 - self.iterations
            known = np.where(first, self.factor, rate / (1 - rate))
            hopeless = ~first & ~((rate < 1) & (rate**left / (1 - rate) * found <= self.kappa))
            # What is next to nothing has no meaningful rate.
            none = found <= 1e-3 * self.kappa * ~first
            good = none | (known * found <= self.kappa)
        broken = active & (~np.isfinite(found) | (hopeless & ~none))
        self.failed |= broken
        active &= ~broken
        self.iterations += active
        self.done |= active & good
        self.failed |= active & ~good & (self.iterations >= self.most)
        self.under_way = not (self.done | self.failed).all()
        self.rate = np.where(active & ~first, rate, self.rate)
        self.factor = np.where(active & ~first & ~none, known, self.factor)
        self._before = np.where(active, found, self._before)
        return active
