"""The bounds of the UnICORNN paper, compared with measurements.

Each function returns the printed bound, a corrected one that holds without conditions where the
printed one does not, and the measurement. `docs/unicornn-bounds.md` derives the latter.
Notation: s = Δt σ̂(c) is a neuron's effective step, n counts steps, T = N Δt.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from undamped._base.errors import OptionError
from undamped.analysis.core import Record
from undamped.nn.unicornn import OscillatorNetwork, UnICORNNCell

# (1 + x/n)^n ≤ 1 + 2x, which the paper's proofs use "for small Δt", holds up to the positive
# root of e^x = 1 + 2x.
LARGEST_EXPONENT = 1.2564


@dataclass(frozen=True)
class Bound(Record):
    """A measurement, the bound that the paper prints and the corrected one.

    `condition` states when the printed bound holds, and `condition_holds` whether it is met.
    """

    derived = ("printed_holds", "corrected_holds")
    rounding: ClassVar[float] = 0.0
    printed: Any
    corrected: Any
    measured: Any
    condition: str
    condition_holds: bool

    @property
    def printed_holds(self) -> bool:
        """Whether the measurement stays below the paper's bound."""
        return bool(np.all(np.less_equal(self.measured, self.printed)))

    @property
    def corrected_holds(self) -> bool:
        """Whether the measurement stays below the corrected bound."""
        limit = np.multiply(self.corrected, 1 + self.rounding)
        return bool(np.all(np.less_equal(self.measured, limit)))


@dataclass(frozen=True)
class StateBound(Bound):
    """Largest |position| and |velocity| over all layers and steps, and their bounds (C.1)."""

    rounding = 1e-6  # a constant force attains the corrected bound
    printed: tuple[float, float]
    corrected: tuple[float, float]
    measured: tuple[float, float]


def state_bound(network: OscillatorNetwork, x: Tensor) -> StateBound:
    """Compare states that start at zero with proposition C.1.

    Args:
        network: A UnICORNN network with one direction.
        x: (time, batch, input).
    """
    cells = _cells(network)
    steps, printed, corrected = x.shape[0], (0.0, 0.0), (0.0, 0.0)
    for cell in cells:
        printed = _larger(printed, _printed_state(cell, steps))
        corrected = _larger(corrected, cell.state_bound(steps))
    measured = (0.0, 0.0)
    with torch.no_grad():
        for position, velocity in _trajectories(network, x):
            measured = _larger(measured, (float(position.abs().max()), float(velocity.abs().max())))
    exponent = max(_beta(cell.alpha) * steps * cell.dt for cell in cells)
    return StateBound(
        printed,
        corrected,
        measured,
        f"β T ≤ {LARGEST_EXPONENT} (here {exponent:.3g}) and α > 0",
        exponent <= LARGEST_EXPONENT and all(cell.alpha > 0 for cell in cells),
    )


@dataclass(frozen=True)
class GradientBound(Bound):
    """Largest |∂E/∂θ| over all parameters, and its bounds (eq. 12)."""

    printed: float
    corrected: float
    measured: float
    printed_appendix: float


def gradient_bound(network: OscillatorNetwork, x: Tensor, target: Tensor) -> GradientBound:
    """Compare the gradient of E = 1/N Σ ½‖y_n − ȳ_n‖² with proposition 3.1.

    Args:
        network: A UnICORNN network with one direction and without skipped layers.
        x: (time, 1, input), one sequence.
        target: (time, 1, hidden), ȳ.
    """
    cells = _cells(network)
    steps = x.shape[0]
    parameters = [p for p in network.parameters() if p.requires_grad]
    output, _ = network(x)
    loss = 0.5 * ((output - target) ** 2).sum() / steps
    gradients = torch.autograd.grad(loss, parameters)
    measured = max(float(gradient.abs().max()) for gradient in gradients)
    dt, alpha = max(cell.dt for cell in cells), cells[-1].alpha
    time = steps * dt
    stiffness = max(2.0, float(cells[-1].weight.detach().abs().max()) + alpha)
    gamma = stiffness + stiffness**2 / 2
    largest = float(target.abs().max())
    energy = 1 + 2 * _beta(alpha) * time
    states = math.sqrt(2 / alpha * energy) if alpha else math.inf
    matrices = math.prod(max(1.0, _row_sum(cell)) for cell in cells)
    depth = sum(dt**i for i in range(len(cells)))
    common = depth * time * (1 + 2 * gamma * time) * matrices * (largest + states)
    printed, appendix = (
        common * (2 + root + (2 + alpha) * states)
        for root in (math.sqrt(2 * energy), math.sqrt(energy))
    )
    exponent = max(gamma, _beta(alpha)) * time
    return GradientBound(
        printed,
        _corrected_gradient(cells, steps, float(x.abs().max()), largest),
        measured,
        f"max(γ, β) T ≤ {LARGEST_EXPONENT} (here {exponent:.3g}), α > 0 and one layer",
        exponent <= LARGEST_EXPONENT and alpha > 0 and len(cells) == 1,
        appendix,
    )


@dataclass(frozen=True)
class LongTermGradient(Record):
    """Contribution of step k to ∂E_n/∂w of one neuron (eq. 14), for every k from 1 to n."""

    derived = ("relative_error",)
    printed: tuple[float, ...]
    corrected: tuple[float, ...]
    measured: tuple[float, ...]
    condition: str
    condition_holds: bool

    def error_of(self, formula: tuple[float, ...]) -> float:
        """Return the largest distance of a formula, relative to the largest measurement."""
        scale = max(map(abs, self.measured)) or 1.0
        return max(abs(a - b) for a, b in zip(formula, self.measured, strict=True)) / scale

    @property
    def relative_error(self) -> dict[str, float]:
        """The error of both formulas; see `error_of`."""
        return {name: self.error_of(getattr(self, name)) for name in ("printed", "corrected")}


def long_term_gradient(
    network: OscillatorNetwork, x: Tensor, target: Tensor, neuron: int = 0
) -> LongTermGradient:
    """Measure how much each step contributes to the gradient at the last one (prop. 3.2).

    Args:
        network: A UnICORNN network with one layer.
        x: (time, 1, input), one sequence of n steps.
        target: (hidden,), ȳ_n.
        neuron: Index p of the neuron.
    """
    cell, *others = _cells(network)
    if others:
        raise OptionError(
            f"The long-term gradient formula holds for one layer, got {1 + len(others)}. "
            "Build the network with num_layers=1."
        )
    with torch.no_grad():
        ((position, _),) = list(_trajectories(network, x))
        y = torch.cat([position.new_zeros(1), position[:, 0, neuron]]).double()
        projected = cell.project(x)[:, 0, neuron].double()
        w = cell.weight.detach()[neuron].double()
        s = cell.effective_step().detach()[neuron].double()
        steps, alpha = x.shape[0], cell.alpha
        slope = 1 - torch.tanh(w * y[:-1] + projected) ** 2  # σ'(A_{k−1}), k = 1 … n
        error = y[-1] - target[neuron].double()
        common = -(s**2) * slope * y[:-1] * error
        back = torch.arange(steps, 0, -1, dtype=torch.float64)  # n − k + 1
        corrected = common * _oscillation(s**2 * (alpha + w * slope.mean()), back)
        measured = torch.empty(steps, dtype=torch.float64)
        gy, gz = error.clone(), torch.zeros((), dtype=torch.float64)
        for k in range(steps, 0, -1):  # the recursion (3)-(5) of appendix B
            gz = gz + s * gy
            measured[k - 1] = -s * gz * slope[k - 1] * y[k - 1]
            gy = gy - s * gz * (w * slope[k - 1] + alpha)
    reach = float(torch.sqrt(s**2 * (alpha + w.abs()))) * steps
    return LongTermGradient(
        tuple((common * steps).tolist()),
        tuple(corrected.tolist()),
        tuple(measured.tolist()),
        f"k ≪ n and √(α + |w|) t_n ≪ 1 (here {reach:.3g})",
        reach < 0.1,
    )


def _cells(network: OscillatorNetwork) -> list[UnICORNNCell]:
    cells = [network.cell(layer) for layer in range(network.num_layers)]
    plain = all(isinstance(cell, UnICORNNCell) and not hasattr(cell, "skip") for cell in cells)
    if network.bidirectional or not plain:
        raise OptionError(
            "The bounds of UnICORNN hold for a unidirectional 'unicornn' network, got "
            f"{type(network).__name__}."
        )
    return [cell for cell in cells if isinstance(cell, UnICORNNCell)]


def _trajectories(network: OscillatorNetwork, x: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Positions and velocities (time, batch, hidden) of every layer, from zero."""
    trajectories = []
    for cell in _cells(network):
        start = cell.initial_state(x.shape[1], x)
        position, _ = cell.scan(x, start)
        before = pad(position, (0, 0, 0, 0, 1, 0))[:-1]
        kicks = cell.effective_step() * cell.force(cell.project(x), before)
        trajectories.append((position, -kicks.cumsum(0)))
        x = position
    return trajectories


def _oscillation(squared_frequency: Tensor, steps: Tensor) -> Tensor:
    """sin(m θ)/sin θ with 2 sin(θ/2) = ω s: the response to a kick after m steps."""
    size = squared_frequency.abs().clamp(1e-24, 4 - 1e-12).sqrt() / 2
    if squared_frequency < 0:  # the potential is a hill instead of a valley
        angle = 2 * torch.arcsinh(size)
        return torch.sinh(steps * angle) / torch.sinh(angle)
    angle = 2 * torch.arcsin(size)
    return torch.sin(steps * angle) / torch.sin(angle)


def _larger(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    return max(a[0], b[0]), max(a[1], b[1])


def _row_sum(cell: UnICORNNCell) -> float:
    return float(cell.input_weight.detach().abs().sum(1).max())


def _beta(alpha: float) -> float:
    return max(1 + 2 * alpha, 4 * alpha**2)


def _printed_state(cell: UnICORNNCell, steps: int) -> tuple[float, float]:
    energy = 2 * (1 + 2 * _beta(cell.alpha) * steps * cell.dt)
    position = math.sqrt(energy / cell.alpha) if cell.alpha else math.inf
    return position, math.sqrt(energy)


def _corrected_gradient(
    cells: list[UnICORNNCell], steps: int, largest_input: float, largest_target: float
) -> float:
    """Propagate bounds of |∂y_n/∂θ| and |∂z_n/∂θ| through all steps and layers (see the docs)."""
    worst = 0.0
    hidden = cells[0].hidden_size
    for owner in range(len(cells)):
        below: list[float] = [0.0] * steps
        for at in range(owner, len(cells)):
            below = _sensitivity(cells, at, at == owner, below, largest_input)
        spread = 1 if len(cells) == 1 else hidden
        total = 0.0
        for n, sensitivity in enumerate(below, start=1):
            reach = cells[-1].state_bound(n)[0] + largest_target
            total += spread * reach * sensitivity
        worst = max(worst, total / steps)
    return worst


def _sensitivity(
    cells: list[UnICORNNCell], at: int, owner: bool, below: list[float], largest_input: float
) -> list[float]:
    cell = cells[at]
    s, alpha = float(cell.effective_step().detach().max()), cell.alpha
    stiffness = max(float(cell.weight.detach().abs().max()) + alpha, 1e-12)
    scale = math.sqrt(stiffness)  # positions are measured in units of 1/√K
    growth = 1 + s * scale + s**2 * stiffness
    size, bounds = 0.0, []
    for n in range(1, len(below) + 1):
        y, z = cell.state_bound(n)
        source = largest_input if at == 0 else cells[at - 1].state_bound(n)[0]
        kick = s * _row_sum(cell) * below[n - 1]
        slide = 0.0
        if owner:
            # ∂s/∂c ≤ s, since σ̂' = σ̂ (1 − σ̂).
            kick += max(s * max(1.0, y, source), s * (1 + alpha * y))
            slide = s * z
        size = growth * size + max(kick, scale * (s * kick + slide))
        if not math.isfinite(size) or size > 1e300:
            return [*bounds, *[math.inf] * (len(below) - len(bounds))]
        bounds.append(size / scale)
    return bounds
