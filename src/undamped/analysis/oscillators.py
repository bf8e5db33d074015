"""UnICORNN looked at as physics: effective time steps, energy, phase volume, the way back.

The instruments read any network of ours whose cells step oscillators: cells with a position, a
velocity, `effective_step` and `inverse` (Rusch and Mishra, 2021).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from undamped._base.errors import OptionError, explain
from undamped._base.registry import instruments
from undamped.analysis.core.layout import Layout
from undamped.analysis.core.probe import InapplicableError, Probe
from undamped.analysis.core.result import Result
from undamped.analysis.core.style import Style, Trace
from undamped.analysis.core.unrolled import evaluating, network_inside
from undamped.nn.recurrent import Recurrent
from undamped.nn.unicornn import UnICORNNCell

Array = NDArray[Any]


@instruments.register("effective_steps")
@dataclass(frozen=True)
class EffectiveSteps(Result):
    """Δt σ̂(c) of every neuron, (layers, units), and the Δt of each layer."""

    question = "On which time scales do the oscillators of a network work?"
    place = 80

    steps: Array
    largest: Array

    @property
    def spread(self) -> float:
        """How many times smaller than the allowed Δt the smallest effective step is."""
        return float((self.largest / self.steps.min(1)).max())

    @classmethod
    def measure(cls, probe: Probe) -> EffectiveSteps:
        """Read the cells."""
        _require_oscillators(probe)
        return effective_steps(probe.model)

    @property
    def sentence(self) -> str:
        """How far the time scales spread."""
        return (
            f"Neurons work on different time scales: the slowest steps {self.spread:.3g} times "
            "less than it may."
        )

    @property
    def layout(self) -> Layout:
        """Every neuron, sorted within its layer (UNI fig. 5)."""
        return Layout(
            "Effective time steps",
            "neuron, in order of its step",
            "Δt σ̂(c) [time]",
            "Each neuron has a time scale of its own; training spreads them.",
            log_y=True,
        )

    def traces(self, style: Style) -> list[Trace]:
        """A set of points for each layer."""
        return [
            style.points(range(len(values)), np.sort(values), f"layer {layer + 1}", layer)
            for layer, values in enumerate(self.steps)
        ]


@instruments.register("energy_drift")
@dataclass(frozen=True)
class Energy(Result):
    """The Hamiltonian H(t), one column per layer, mean over the batch, with the input held.

    `drift` is max |H(t) − H(0)| / max |H| of each layer over the whole time.
    """

    question = "Does the energy of the oscillators swing, or drift away?"
    place = 82
    on_request = True

    energy: Array
    drift: Array

    @classmethod
    def measure(cls, probe: Probe) -> Energy:
        """Hold the first input for as many steps as the inputs have."""
        _require_oscillators(probe)
        return energy_drift(probe.model, _time_first(probe), steps=min(1000, probe.length))

    @property
    def sentence(self) -> str:
        """The largest drift."""
        return (
            f"The energy swings but does not drift away: by at most {100 * self.drift.max():.3g} %."
        )

    @property
    def layout(self) -> Layout:
        """Energy against time."""
        return Layout(
            "Hamiltonian",
            "step t [steps]",
            "energy H",
            "With the input held still the energy swings around a value; a line that leaves it "
            "would gain or lose memory.",
        )

    def traces(self, style: Style) -> list[Trace]:
        """A line for each layer."""
        steps = range(len(self.energy))
        return [
            style.line(steps, self.energy[:, layer], f"layer {layer + 1}", layer)
            for layer in range(self.energy.shape[1])
        ]


@instruments.register("inversion_error")
@dataclass(frozen=True)
class InversionError(Result):
    """`errors[i]` is the largest |state − state after going forth and back| over `lengths[i]`."""

    question = "How exactly does stepping back in time recover where the state came from?"
    place = 84
    on_request = True

    lengths: NDArray[np.int64]
    errors: Array

    @classmethod
    def measure(cls, probe: Probe) -> InversionError:
        """Go a tenth, a third and all of the inputs' length."""
        _require_oscillators(probe)
        lengths = sorted({max(1, probe.length // part) for part in (10, 3, 1)})
        return inversion_error(probe.model, _time_first(probe), lengths=tuple(lengths))

    @property
    def sentence(self) -> str:
        """The largest error."""
        return (
            f"After {self.lengths[-1]} steps forth and back the start is recovered up to "
            f"{self.errors[-1]:.2g}."
        )

    @property
    def layout(self) -> Layout:
        """Error against length, both in decades."""
        return Layout(
            "Inversion error",
            "length [steps]",
            "largest error of the recovered state",
            "Stepping back recovers the start up to rounding, which adds up along the way.",
            log_x=True,
            log_y=True,
        )

    def traces(self, style: Style) -> list[Trace]:
        """One line."""
        errors = np.maximum(self.errors, np.finfo(np.float64).tiny)
        return [style.line(self.lengths, errors, "error", mode="lines+markers")]


@instruments.register("phase_volume")
@dataclass(frozen=True)
class PhaseVolume(Result):
    """log₁₀|det ∂state_T/∂state_0| after 1, 2, … steps, the mean over the units of the layer."""

    question = "Is a small cloud of states squeezed together or pulled apart?"
    place = 83
    on_request = True

    log_volume: Array

    @classmethod
    def measure(cls, probe: Probe) -> PhaseVolume:
        """Follow the first sequence for at most 100 steps."""
        _require_oscillators(probe)
        return phase_volume(probe.model, _time_first(probe))

    @property
    def sentence(self) -> str:
        """The volume at the end."""
        return (
            f"After {len(self.log_volume)} steps a small cloud of states has "
            f"10^{self.log_volume[-1]:.2g} times its volume."
        )

    @property
    def layout(self) -> Layout:
        """Decades of volume against the step."""
        return Layout(
            "Phase volume",
            "steps",
            "log₁₀ of the volume",
            "Zero means that nothing is squeezed together or pulled apart for good.",
        )

    def traces(self, style: Style) -> list[Trace]:
        """One line."""
        return [style.line(range(1, len(self.log_volume) + 1), self.log_volume, "volume")]


def _require_oscillators(probe: Probe) -> None:
    try:
        oscillator_cells(probe.model)
    except OptionError:
        raise InapplicableError("its cells are no oscillators") from None


def _time_first(probe: Probe) -> Tensor:
    swapped = probe.batch_first and probe.inputs.dim() == 3
    return probe.inputs.transpose(0, 1) if swapped else probe.inputs


def oscillator_cells(module: nn.Module) -> list[UnICORNNCell]:
    """Return the oscillator cells of a network or model, one per layer."""
    network = module.network if hasattr(module, "network") else module
    cells = []
    if isinstance(network, Recurrent):
        cells = [network.cell(layer) for layer in range(network.num_layers)]
    found = [cell for cell in cells if isinstance(cell, UnICORNNCell)]
    if not found:
        raise OptionError(
            explain(
                type(module).__name__,
                expected="a network of oscillators, such as unicornn",
                got="another one",
                remedy="Use gradient_flow, jacobian or recall, which read any network.",
            )
        )
    return found


def effective_steps(module: nn.Module) -> EffectiveSteps:
    """Return the effective time step of every neuron (UNI fig. 5).

    Args:
        module: A UnICORNN, or a model with one inside.
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
    """Hold the input still and follow the Hamiltonian of every layer.

    The energy is a conserved quantity only while the input does not change: the first step of
    `inputs` is shown to the first layer at all times, the others see zero.

    Args:
        module: A UnICORNN, or a model with one inside.
        inputs: (time, batch, features); only the first step counts.
        steps: How long to follow it.
    """
    cells = oscillator_cells(module)
    _, x = network_inside(module, inputs)
    course = np.empty((steps + 1, len(cells)))
    with evaluating(module), torch.no_grad():
        for layer, cell in enumerate(cells):
            u = x[0] if layer == 0 else x.new_zeros(x.shape[1], cell.input_size)
            projected, constants = cell.project(u), cell.constants()
            generator = torch.Generator().manual_seed(layer)
            shape = (x.shape[1], cell.hidden_size)
            state = tuple(torch.randn(shape, generator=generator).to(projected) for _ in range(2))
            for t in range(steps + 1):
                course[t, layer] = float(hamiltonian(cell, projected, *state).sum(1).mean())
                state = cell.advance(projected, state, constants)
    size = np.abs(course).max(0)
    return Energy(course, np.abs(course - course[0]).max(0) / np.where(size > 0, size, 1))


def inversion_error(
    module: nn.Module,
    inputs: Tensor,
    *,
    lengths: tuple[int, ...] = (10, 100, 1000),
) -> InversionError:
    """Go forth and back and compare with where it started.

    Args:
        module: A UnICORNN, or a model with one inside; its first layer is unrolled.
        inputs: (time, batch, features), at least as long as the longest length.
        lengths: How far to go.
    """
    cell = oscillator_cells(module)[0]
    _, x = network_inside(module, inputs)
    if max(lengths) > len(x):
        raise OptionError(
            explain(
                "lengths",
                expected=f"at most the {len(x)} steps of the inputs",
                got=max(lengths),
                remedy="Give longer inputs.",
            )
        )
    errors = []
    with evaluating(module), torch.no_grad():
        projected, constants = cell.project(x), cell.constants()
        generator = torch.Generator().manual_seed(0)
        shape = (x.shape[1], cell.hidden_size)
        start = tuple(torch.randn(shape, generator=generator).to(projected) for _ in range(2))
        for length in lengths:
            state = start
            for t in range(length):
                state = cell.advance(projected[t], state, constants)
            for t in reversed(range(length)):
                state = cell.inverse(projected[t], state, constants)
            off = [float((a - b).abs().max()) for a, b in zip(state, start, strict=True)]
            errors.append(max(off))
    return InversionError(np.array(lengths), np.array(errors))


def phase_volume(module: nn.Module, inputs: Tensor, *, steps: int = 100) -> PhaseVolume:
    """Follow the volume of a small cloud of states in the first layer.

    Neurons are independent, so the Jacobian of one neuron's (y, z) is 2 × 2 and its determinant
    is found exactly.

    Args:
        module: A UnICORNN, or a model with one inside.
        inputs: (time, batch, features); the first sequence is followed.
        steps: How long to follow it, at most the length of the inputs.
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
                moved = cell.advance(projected[t], (y, z), constants)
                (yy, yz), (zy, zz) = (
                    torch.autograd.grad(part.sum(), (y, z), retain_graph=True) for part in moved
                )
            determinant = (yy * zz - yz * zy)[0].double().cpu().numpy()
            total += np.log10(np.abs(determinant))
            logs.append(total.mean())
            state = tuple(part.detach() for part in moved)
    return PhaseVolume(np.array(logs))
