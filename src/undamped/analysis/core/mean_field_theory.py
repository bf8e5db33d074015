"""The maps of mean-field theory: variance q and correlation c from one layer to the next.

Integrals with tanh use Gauss-Hermite quadrature; for erf and relu they have a closed form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from undamped._base.errors import OptionError
from undamped._base.options import unknown_name

Array = NDArray[Any]
Activation = Literal["tanh", "erf", "relu"]
Function = Callable[[Array], Array]
POINTS = 160


@cache
def _quadrature() -> tuple[Array, Array]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(POINTS)
    relevant = weights > 1e-300
    return nodes[relevant], weights[relevant] / math.sqrt(2 * math.pi)


def _functions(activation: str) -> tuple[Function, Function, Function]:
    """Return φ, φ' and φ''."""
    if activation == "tanh":
        return (
            np.tanh,
            lambda u: 1 / np.cosh(np.clip(u, -300, 300)) ** 2,
            lambda u: -2 * np.tanh(u) / np.cosh(np.clip(u, -300, 300)) ** 2,
        )
    if activation == "erf":
        from scipy.special import erf

        scale = 2 / math.sqrt(math.pi)
        return erf, lambda u: scale * np.exp(-(u**2)), lambda u: -2 * u * scale * np.exp(-(u**2))
    return lambda u: np.maximum(u, 0), lambda u: (u > 0) * 1.0, np.zeros_like


class Theory:
    """The maps of q and c for one activation and one pair of scales."""

    def __init__(self, activation: str, weight_scale: float, bias_scale: float) -> None:
        if activation not in ("tanh", "erf", "relu"):
            raise unknown_name("activation", activation, ["tanh", "erf", "relu"])
        if not weight_scale > 0 or bias_scale < 0:
            raise OptionError(
                f"weight_scale must be > 0 and bias_scale ≥ 0, got {weight_scale} and {bias_scale}."
            )
        self.activation = activation
        self.weight, self.bias = weight_scale**2, bias_scale**2
        self.value, self.slope, self.bend = _functions(activation)

    def mean(self, function: Function, q: float) -> float:
        """E[g(√q z)] for a standard normal z."""
        nodes, weights = _quadrature()
        return float(weights @ function(math.sqrt(q) * nodes))

    def next_q(self, q: float) -> float:
        """The variance in the next layer."""
        if self.activation == "relu":
            return self.weight * q / 2 + self.bias
        return self.weight * self.mean(lambda u: self.value(u) ** 2, q) + self.bias

    def chi(self, q: float) -> float:
        """χ₁, the slope of the correlation map at c = 1."""
        if self.activation == "relu":
            return self.weight / 2
        return self.weight * self.mean(lambda u: self.slope(u) ** 2, q)

    def slope_q(self, q: float) -> float:
        """The slope of the map of q."""
        # d q'/d q = χ₁ + σ_w² E[φ'' φ]; for relu φ''φ = δ(u) relu(u) = 0.
        if self.activation == "relu":
            return self.weight / 2
        return self.chi(q) + self.weight * self.mean(lambda u: self.bend(u) * self.value(u), q)

    def pair(self, function: Function, q: float, c: float) -> float:
        """E[g(u₁) g(u₂)] for variance q and correlation c."""
        nodes, weights = _quadrature()
        first = math.sqrt(q) * nodes
        second = math.sqrt(q) * (c * nodes[:, None] + math.sqrt(max(0.0, 1 - c * c)) * nodes)
        return float((weights * function(first)) @ (function(second) @ weights))

    def next_c(self, q: float, c: float) -> float:
        """The correlation in the next layer, for both variances at q."""
        c = min(max(float(c), -1.0), 1.0)
        if self.activation == "relu":  # kinks spoil quadrature; the integral is known
            angle = math.acos(c)
            part = (math.sin(angle) + (math.pi - angle) * c) / (2 * math.pi)
            return (self.weight * q * part + self.bias) / q
        if self.activation == "erf":
            part = 2 / math.pi * math.asin(2 * q * c / (1 + 2 * q))
            return (self.weight * part + self.bias) / q
        return (self.weight * self.pair(self.value, q, c) + self.bias) / q

    def slope_c(self, q: float, c: float) -> float:
        """The slope of the correlation map."""
        c = min(max(float(c), -1.0), 1.0)
        if self.activation == "relu":
            return self.weight * (math.pi - math.acos(c)) / (2 * math.pi)
        if self.activation == "erf":
            return self.weight * 4 / (math.pi * math.sqrt((1 + 2 * q) ** 2 - (2 * q * c) ** 2))
        return self.weight * self.pair(self.slope, q, c)

    def fixed_q(self) -> float:
        """q*, infinite where relu grows without bound."""
        if self.activation == "relu":
            rate = self.weight / 2
            if rate >= 1:
                return float("inf") if self.bias or rate > 1 else 1.0
            return self.bias / (1 - rate)
        if self.bias == 0 and self.slope_q(0.0) <= 1:
            return 0.0
        return root(lambda q: self.next_q(q) - q, *self._bracket())

    def _bracket(self) -> tuple[float, float]:
        # φ² ≤ 1 for tanh and erf, so q' never exceeds σ_w² + σ_b².
        high = self.weight + self.bias
        low = max(self.bias, 1e-12)
        while self.next_q(low) <= low and low > 1e-300:
            low *= 1e-3
        return low, high * (1 + 1e-9)

    def fixed_c(self, q: float) -> float:
        """c*, the correlation to which two inputs settle."""
        if not math.isfinite(q) or q == 0 or self.slope_c(q, 1.0) <= 1 + 1e-12:
            return 1.0
        high = 1 - 1e-9
        if self.next_c(q, high) >= high:
            return 1.0
        return root(lambda c: self.next_c(q, c) - c, 0.0, high)


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """Find where a falling function crosses zero; its start if it begins below."""
    above, below = function(low), function(high)
    if above <= 0:
        return low
    side = 0
    for _ in range(200):
        if high - low <= 1e-14 + 1e-13 * abs(high):
            break
        # Regula falsi; an end that stays counts half (Illinois), so that both ends move.
        middle = (low * below - high * above) / (below - above)
        middle = middle if low < middle < high else (low + high) / 2
        value = function(middle)
        if value == 0:
            return middle
        if value > 0:
            low, above = middle, value
            below, side = (below / 2 if side == 1 else below), 1
        else:
            high, below = middle, value
            above, side = (above / 2 if side == -1 else above), -1
    return (low + high) / 2
