"""Mean-field theory of wide random networks (Poole et al., 2016; Schoenholz et al., 2017; DYN).

With weights N(0, σ_w²/N) and biases N(0, σ_b²) the variance q of a pre-activation and the
correlation c of two inputs follow, from layer to layer,

    q' = σ_w² E[φ(√q z)²] + σ_b²
    c' = (σ_w² E[φ(u₁) φ(u₂)] + σ_b²)/q*,   u₁, u₂ normal with variance q* and correlation c.

The slope of the second map at c = 1 is χ₁ = σ_w² E[φ'(√q* z)²]: below one all inputs become
equal and gradients vanish (ordered), above one they diverge and gradients explode (chaotic). Near
the fixed points both maps converge like e^(−l/ξ), with 1/ξ_q = −log(χ₁ + σ_w² E[φ''φ]) and
1/ξ_c = −log(σ_w² E[φ'(u₁)φ'(u₂)]) at c*.

Integrals with tanh use Gauss-Hermite quadrature; for erf and relu they have a closed form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from undamped._base.errors import OptionError
from undamped._base.options import unknown_name
from undamped.analysis.core import Layout, Result, Style, Trace
from undamped.analysis.core.figures import reference, rounded

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


Array = NDArray[Any]


@dataclass(frozen=True)
class MeanField(Result):
    """The fixed points and what follows from them; depths are in layers."""

    activation: str
    weight_scale: float
    bias_scale: float
    q: float
    c: float
    chi: float
    phase: Literal["ordered", "critical", "chaotic"]
    depth_q: float
    depth_c: float

    @property
    def sentence(self) -> str:
        return (
            f"The phase is {self.phase}: χ₁ = {self.chi:.4g}, c* = {self.c:.4g}, "
            f"signals propagate about {self.depth_c:.3g} layers."
        )

    @property
    def layout(self) -> Layout:
        """The correlation map, whose crossing with the diagonal is c*."""
        return Layout(
            f"Correlation map: {self.activation}, σ_w = {self.weight_scale:g}, "
            f"σ_b = {self.bias_scale:g}",
            "correlation c in one layer",
            "correlation in the next",
            self.sentence,
            background=(reference([0, 1], [0, 1], "no change"),),
        )

    def traces(self, style: Style) -> list[Trace]:
        """The map, where it exists."""
        if not (math.isfinite(self.q) and self.q > 0):
            return []
        grid = np.linspace(0, 1, 101)
        theory = Theory(self.activation, self.weight_scale, self.bias_scale)
        return [style.line(grid, [theory.next_c(self.q, c) for c in grid], "map")]


@dataclass(frozen=True)
class PhaseDiagram(Result):
    """χ₁ over a grid: `chi[i, j]` at bias scale i and weight scale j."""

    activation: str
    weight_scales: Array
    bias_scales: Array
    chi: Array

    @property
    def layout(self) -> Layout:
        """The plane of weight and bias scales, without a legend because of the colour bar."""
        return Layout(
            f"Phase diagram: {self.activation}",
            "weight scale σ_w",
            "bias scale σ_b",
            "Left of the line χ₁ = 1 gradients vanish, right of it they explode.",
            legend=False,
        )

    def traces(self, style: Style) -> list[Trace]:
        """χ₁ in colours, with the critical line χ₁ = 1."""
        x, y = rounded(self.weight_scales), rounded(self.bias_scales)
        heatmap = style.heatmap(self.chi, "χ₁", x=x, y=y)
        return [
            heatmap,
            {
                "type": "contour",
                **{key: heatmap[key] for key in ("x", "y", "z", "meta")},
                "contours": {"start": 1, "end": 1, "size": 1, "coloring": "none"},
                "line": {"color": "#D55E00", "width": 3},
                "name": "χ₁ = 1",
                "showscale": False,
            },
        ]


@dataclass(frozen=True)
class DepthSimulation(Result):
    """q and c by layer in random networks of finite width, with their theoretical values."""

    q: Array
    c: Array
    q_theory: Array
    c_theory: Array
    width: int

    @property
    def layout(self) -> Layout:
        return Layout(
            f"Correlation of two inputs by depth (width {self.width})",
            "layer",
            "correlation c",
            "Dots are random networks, the line is the theory of infinite width.",
        )

    def traces(self, style: Style) -> list[Trace]:
        return [
            style.line(range(len(self.c_theory)), self.c_theory, "theory"),
            style.points(range(len(self.c)), self.c, "simulation", 1),
        ]


def _depth(slope: float) -> float:
    if slope <= 0:
        return 0.0
    return float("inf") if slope >= 1 else -1 / math.log(slope)


def mean_field(
    activation: Activation = "tanh", *, weight_scale: float, bias_scale: float = 0.0
) -> MeanField:
    """Return q*, c*, χ₁, the phase and the depth scales of a wide random network.

    Args:
        activation: The function φ.
        weight_scale: σ_w; weights have variance σ_w²/N.
        bias_scale: σ_b.
    """
    theory = Theory(activation, weight_scale, bias_scale)
    q = theory.fixed_q()
    finite = math.isfinite(q)
    chi = theory.chi(q if finite else 1.0)
    c = theory.fixed_c(q)
    phase: Literal["ordered", "critical", "chaotic"] = "ordered" if chi < 1 else "chaotic"
    if abs(chi - 1) < 1e-9:
        phase = "critical"
    # Both maps converge at a rate equal to their slope at the fixed point. Where q* = 0 the
    # slope of the correlation map is the limit for q → 0, which is χ₁ itself.
    slope_c = theory.slope_c(q, c) if finite and q > 0 else chi
    return MeanField(
        activation,
        weight_scale,
        bias_scale,
        q,
        c,
        chi,
        phase,
        _depth(theory.slope_q(q) if finite else float("inf")),
        _depth(slope_c),
    )


def critical_weight_scale(activation: Activation = "tanh", *, bias_scale: float = 0.0) -> float:
    """Return the σ_w on the critical line χ₁ = 1 for a given σ_b.

    Args:
        activation: The function φ.
        bias_scale: σ_b.
    """
    if activation == "relu":
        return math.sqrt(2.0)

    def excess(weight_scale: float) -> float:
        theory = Theory(activation, weight_scale, bias_scale)
        return theory.chi(theory.fixed_q()) - 1

    # χ₁ = 1 exactly where a zero-bias network leaves q* = 0; with a bias it lies higher.
    low = 1 / Theory(activation, 1.0, 0.0).slope(np.zeros(1)).item()
    if bias_scale == 0:
        return low
    high = low
    while excess(high) < 0:
        high *= 1.5
    return root(lambda scale: -excess(scale), low, high)


def phase_diagram(
    activation: Activation = "tanh",
    *,
    weight_scales: ArrayLike | None = None,
    bias_scales: ArrayLike | None = None,
) -> PhaseDiagram:
    """Return χ₁ over a grid of σ_w and σ_b.

    Args:
        activation: The function φ.
        weight_scales: Values of σ_w; 0.5 to 4 by default.
        bias_scales: Values of σ_b; 0 to 4 by default.
    """
    columns = np.asarray(np.linspace(0.5, 4, 36) if weight_scales is None else weight_scales)
    rows = np.asarray(np.linspace(0, 4, 36) if bias_scales is None else bias_scales)
    chi = np.empty((len(rows), len(columns)))
    for i, bias_scale in enumerate(rows):
        for j, weight_scale in enumerate(columns):
            theory = Theory(activation, float(weight_scale), float(bias_scale))
            q = theory.fixed_q()
            chi[i, j] = theory.chi(q if math.isfinite(q) else 1.0)
    return PhaseDiagram(activation, columns, rows, chi)


def simulate_depth(
    activation: Activation = "tanh",
    *,
    weight_scale: float,
    bias_scale: float = 0.0,
    width: int = 1000,
    depth: int = 20,
    start_q: float = 1.0,
    start_c: float = 0.5,
    seed: int = 0,
) -> DepthSimulation:
    """Propagate two inputs through a random network of finite width, and compare with theory.

    Args:
        activation: The function φ.
        weight_scale: σ_w.
        bias_scale: σ_b.
        width: Units per layer.
        depth: Number of layers.
        start_q: Variance of the first pre-activations.
        start_c: Correlation of the two inputs.
        seed: Seed of the weights.
    """
    theory = Theory(activation, weight_scale, bias_scale)
    draw = np.random.default_rng(seed)
    h = draw.standard_normal((2, width))
    h -= h.mean(1, keepdims=True)
    basis = np.linalg.qr(h.T)[0].T * math.sqrt(width)
    second = start_c * basis[0] + math.sqrt(1 - start_c**2) * basis[1]
    h = math.sqrt(start_q) * np.stack([basis[0], second])
    q, c = [], []
    q_theory, c_theory = [start_q], [start_c]
    for layer in range(depth + 1):
        product = h @ h.T / width
        q.append(float((product[0, 0] + product[1, 1]) / 2))
        c.append(float(product[0, 1] / math.sqrt(product[0, 0] * product[1, 1])))
        if layer == depth:
            break
        weights = draw.standard_normal((width, width)) * (weight_scale / math.sqrt(width))
        bias = draw.standard_normal(width) * bias_scale
        h = theory.value(h) @ weights.T + bias
        # Both inputs have the same variance, so the covariance is q' c' with q the old variance.
        before = q_theory[-1]
        q_theory.append(theory.next_q(before))
        c_theory.append(theory.next_c(before, c_theory[-1]) * before / q_theory[-1])
    return DepthSimulation(np.array(q), np.array(c), np.array(q_theory), np.array(c_theory), width)
