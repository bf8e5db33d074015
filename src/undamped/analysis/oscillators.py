"""The physics of UnICORNN: effective time steps, energy, phase volume and inversion.

The instruments apply to networks of oscillator cells, which have a position, a velocity,
`effective_step` and `inverse` (Rusch and Mishra, 2021).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from undamped._base.errors import OptionError
from undamped._base.registry import instruments
from undamped.analysis.core import InapplicableError, Layout, Probe, Result, Style, Trace
from undamped.analysis.core.unrolled import evaluating, network_inside
from undamped.nn.recurrent import Recurrent
from undamped.nn.unicornn import UnICORNNCell

Array = NDArray[Any]


@instruments.register("effective_steps")
@dataclass(frozen=True)
class EffectiveSteps(Result):
    """Δt σ̂(c) of every neuron, (layers, units), and the Δt of each layer."""

    question = "On which time scales do the oscillators of a network move?"
    page_order = 80
    figure_layout = Layout(
        "Effective time steps",
        "neuron, sorted by its time step",
        "Δt σ̂(c) [time]",
        "Each neuron has its own time scale; training spreads them.",
        log_y=True,
    )

    steps: Array
    largest: Array

    @property
    def spread(self) -> float:
        """The largest ratio of Δt to an effective step."""
        return float((self.largest / self.steps.min(1)).max())

    @classmethod
    def measure(cls, probe: Probe) -> EffectiveSteps:
        _require_oscillators(probe)
        return effective_steps(probe.model)

    @property
    def sentence(self) -> str:
        return (
            f"The effective step of the slowest neuron is {self.spread:.3g} times smaller than Δt."
        )

    def traces(self, style: Style) -> list[Trace]:
        return [
            style.points(range(len(values)), np.sort(values), f"layer {layer + 1}", layer)
            for layer, values in enumerate(self.steps)
        ]


@instruments.register("energy_drift")
@dataclass(frozen=True)
class Energy(Result):
    """The Hamiltonian H(t) with a constant input, one column per layer, mean over the batch.

    `drift` is max |H(t) − H(0)| / max |H| of each layer over the whole time.
    """

    question = "Does the energy of the oscillators stay bounded, or drift away?"
    page_order = 82
    on_request = True
    figure_layout = Layout(
        "Hamiltonian",
        "step t [steps]",
        "energy H",
        "With a constant input the energy oscillates around a value; a drift would mean that "
        "memory is gained or lost.",
    )

    energy: Array
    drift: Array

    @classmethod
    def measure(cls, probe: Probe) -> Energy:
        """Keep the first input constant for the length of the inputs."""
        _require_oscillators(probe)
        return energy_drift(probe.model, _time_first(probe), steps=min(1000, probe.length))

    @property
    def sentence(self) -> str:
        return (
            f"With a constant input the energy changes by at most {100 * self.drift.max():.3g} %."
        )

    def traces(self, style: Style) -> list[Trace]:
        steps = range(len(self.energy))
        return [
            style.line(steps, self.energy[:, layer], f"layer {layer + 1}", layer)
            for layer in range(self.energy.shape[1])
        ]


@instruments.register("inversion_error")
@dataclass(frozen=True)
class InversionError(Result):
    """`errors[i]` is the largest error after `lengths[i]` steps forward and back."""

    question = "How accurately do inverse steps recover the initial state?"
    page_order = 84
    on_request = True
    figure_layout = Layout(
        "Inversion error",
        "length [steps]",
        "largest error of the recovered state",
        "Inverse steps recover the initial state up to rounding errors, which accumulate.",
        log_x=True,
        log_y=True,
    )

    lengths: NDArray[np.int64]
    errors: Array

    @classmethod
    def measure(cls, probe: Probe) -> InversionError:
        """Measure a tenth, a third and all of the inputs' length."""
        _require_oscillators(probe)
        lengths = sorted({max(1, probe.length // part) for part in (10, 3, 1)})
        return inversion_error(probe.model, _time_first(probe), lengths=tuple(lengths))

    @property
    def sentence(self) -> str:
        return (
            f"After {self.lengths[-1]} steps forward and back the initial state has an error of "
            f"{self.errors[-1]:.2g}."
        )

    def traces(self, style: Style) -> list[Trace]:
        errors = np.maximum(self.errors, np.finfo(np.float64).tiny)
        return [style.line(self.lengths, errors, "error", mode="lines+markers")]


@instruments.register("phase_volume")
@dataclass(frozen=True)
class PhaseVolume(Result):
    """log₁₀|det ∂state_T/∂state_0| after 1, 2, … steps, the mean over the units of the layer."""

    question = "Does the phase volume of the states contract or expand?"
    page_order = 83
    on_request = True
    figure_layout = Layout(
        "Phase volume", "steps", "log₁₀ of the volume", "At zero the phase volume is preserved."
    )

    log_volume: Array

    @classmethod
    def measure(cls, probe: Probe) -> PhaseVolume:
        """Measure at most 100 steps of the first sequence."""
        _require_oscillators(probe)
        return phase_volume(probe.model, _time_first(probe))

    @property
    def sentence(self) -> str:
        return (
            f"After {len(self.log_volume)} steps the phase volume has changed by a factor of "
            f"10^{self.log_volume[-1]:.2g}."
        )

    def traces(self, style: Style) -> list[Trace]:
        return [style.line(range(1, len(self.log_volume) + 1), self.log_volume, "volume")]


def _require_oscillators(probe: Probe) -> None:
    try:
        oscillator_cells(probe.model)
    except OptionError:
        raise InapplicableError("its cells are not oscillators") from None


def _time_first(probe: Probe) -> Tensor:
    swapped = probe.batch_first and probe.inputs.dim() == 3
    return probe.inputs.transpose(0, 1) if swapped else probe.inputs


def oscillator_cells(module: nn.Module) -> list[UnICORNNCell]:
    """Return the oscillator cells of a network or model, one per layer."""
    network = module.network if hasattr(module, "network") else module
    cells = []
    if isinstance(network, Recurrent):
        cells = [network.cell(layer) for layer in range(network.num_layers)]
    oscillators = [cell for cell in cells if isinstance(cell, UnICORNNCell)]
    if not oscillators:
        raise OptionError(
            f"{type(module).__name__} is not a network of oscillators such as unicornn. "
            "gradient_flow, jacobian and recall apply to any network."
        )
    return oscillators


def effective_steps(module: nn.Module) -> EffectiveSteps:
    """Return the effective time step of every neuron (UNI fig. 5).

    Args:
        module: A UnICORNN, or a model that contains one.
    """
    cells = oscillator_cells(module)
    steps = np.stack([c.effective_step().detach().double().cpu().numpy() for c in cells])
    return EffectiveSteps(steps, np.array([c.dt for c in cells]))


def hamiltonian(
    cell: UnICORNNCell, projected: Tensor, position: Tensor, velocity: Tensor
) -> Tensor:
    """Return each neuron's energy (UNI eq. 4), in units where its effective step is time.

    H = α y²/2 + z²/2 + log cosh(w y + V u + b)/w; for w → 0 the last term becomes
    y tanh(V u + b) up to a constant.

    Args:
        cell: The cell whose weights count.
        projected: V u + b.
        position: y.
        velocity: z.
    """
    weight = cell.weight
    small = weight.abs() < 1e-6
    safe = torch.where(small, torch.ones_like(weight), weight)
    resting = _log_cosh(projected)
    potential = (_log_cosh(safe * position + projected) - resting) / safe
    potential = torch.where(small, position * torch.tanh(projected), potential)
    return cell.alpha * position**2 / 2 + velocity**2 / 2 + potential


def _log_cosh(x: Tensor) -> Tensor:
    return x.abs() + torch.log1p(torch.exp(-2 * x.abs())) - np.log(2)


def energy_drift(module: nn.Module, inputs: Tensor, *, steps: int = 1000) -> Energy:
    """Measure the Hamiltonian of every layer over time, with a constant input.

    The energy is conserved only while the input is constant: the first step of `inputs` is the
    input of the first layer at all times, the input of the other layers is zero.

    Args:
        module: A UnICORNN, or a model that contains one.
        inputs: (time, batch, features); only the first step counts.
        steps: Number of steps.
    """
    cells = oscillator_cells(module)
    _, x = network_inside(module, inputs)
    energy = np.empty((steps + 1, len(cells)))
    with evaluating(module), torch.no_grad():
        for layer, cell in enumerate(cells):
            u = x[0] if layer == 0 else x.new_zeros(x.shape[1], cell.input_size)
            projected, constants = cell.project(u), cell.constants()
            state = _random_state(cell, projected, seed=layer)
            for t in range(steps + 1):
                energy[t, layer] = float(hamiltonian(cell, projected, *state).sum(1).mean())
                state = cell.advance(projected, state, constants)
    size = np.abs(energy).max(0)
    return Energy(energy, np.abs(energy - energy[0]).max(0) / np.where(size > 0, size, 1))


def _random_state(cell: UnICORNNCell, projected: Tensor, seed: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    shape = (projected.shape[-2], cell.hidden_size)
    return tuple(torch.randn(shape, generator=generator).to(projected) for _ in range(2))


def inversion_error(
    module: nn.Module, inputs: Tensor, *, lengths: tuple[int, ...] = (10, 100, 1000)
) -> InversionError:
    """Step forward and back, and compare with the initial state.

    Args:
        module: A UnICORNN, or a model that contains one; its first layer is unrolled.
        inputs: (time, batch, features), at least as long as the longest length.
        lengths: Numbers of steps.
    """
    cell = oscillator_cells(module)[0]
    _, x = network_inside(module, inputs)
    if max(lengths) > len(x):
        raise OptionError(
            f"lengths must be at most the length of the inputs, {len(x)}, got {max(lengths)}."
        )
    errors = []
    with evaluating(module), torch.no_grad():
        projected, constants = cell.project(x), cell.constants()
        start = _random_state(cell, projected, seed=0)
        for length in lengths:
            state = start
            for t in range(length):
                state = cell.advance(projected[t], state, constants)
            for t in reversed(range(length)):
                state = cell.inverse(projected[t], state, constants)
            differences = [float((a - b).abs().max()) for a, b in zip(state, start, strict=True)]
            errors.append(max(differences))
    return InversionError(np.array(lengths), np.array(errors))


def phase_volume(module: nn.Module, inputs: Tensor, *, steps: int = 100) -> PhaseVolume:
    """Measure the phase volume of the first layer over time.

    Neurons are independent, so the Jacobian of one neuron's (y, z) is 2 × 2 and its determinant
    is found exactly.

    Args:
        module: A UnICORNN, or a model that contains one.
        inputs: (time, batch, features); the first sequence is used.
        steps: Number of steps, at most the length of the inputs.
    """
    cell = oscillator_cells(module)[0]
    _, x = network_inside(module, inputs)
    logs = []
    total = np.zeros(cell.hidden_size)
    with evaluating(module):
        projected, constants = cell.project(x[:, :1]), cell.constants()
        state = cell.initial_state(1, projected)
        for t in range(min(steps, len(x))):
            y, z = (part.detach().requires_grad_() for part in state)
            with torch.enable_grad():
                advanced = cell.advance(projected[t], (y, z), constants)
                (yy, yz), (zy, zz) = (
                    torch.autograd.grad(part.sum(), (y, z), retain_graph=True) for part in advanced
                )
            determinant = (yy * zz - yz * zy)[0].double().cpu().numpy()
            total += np.log10(np.abs(determinant))
            logs.append(total.mean())
            state = tuple(part.detach() for part in advanced)
    return PhaseVolume(np.array(logs))
