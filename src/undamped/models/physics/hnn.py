"""Hamiltonian networks by one perceptron: HNN, NSSNN, and their baseline.

HNN (Greydanus, Dzamba and Yosinski, 2019): the motion is the gradient of a learned energy. NSSNN
(Xiong and others, 2021): any energy, by Tao's steps in a doubled phase space. PlainODE: a field
without physical structure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import StateSpace, TaskShape
from undamped._base.errors import OptionError
from undamped._base.options import PositiveFloat, select
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.models.physics.base import (
    ENERGY,
    SYMPLECTIC,
    VOLUME,
    LayerOptions,
    MotionModel,
    MotionSolveOptions,
    PerceptronOptions,
    Width,
    perceptron_arguments,
)
from undamped.models.physics.fields.coordinates import Coordinates, PositionFeatures, space_of
from undamped.models.physics.fields.hamiltonian import HamiltonianField
from undamped.models.physics.fields.ports import Ports
from undamped.models.physics.fields.smooth_perceptron import SmoothPerceptron
from undamped.ode.methods.symplectic import TaoOfCopies
from undamped.ode.settings import Gradient
from undamped.ode.solve import OnFailure


class PerceptronHamiltonian(HamiltonianField):
    """H(q, p) by one perceptron.

    Equation:
        H = w σ(W₂ σ(W₁ [φ(q), p] + b₁) + b₂)

    Args:
        angles: Positions that are replaced by cosine and sine.
        layers: Sizes and activation, as for `SmoothPerceptron`.

    Example:
        >>> field = PerceptronHamiltonian(2)
        >>> field(0.0, torch.randn(5, 4)).shape, field.energy(torch.randn(5, 4)).shape
        (torch.Size([5, 4]), torch.Size([5]))
    """

    def __init__(
        self, dof: int, *, angles: Sequence[int] = (), ports: Ports | None = None, **layers: Any
    ) -> None:
        super().__init__(dof, ports)
        self.features = PositionFeatures(dof, angles)
        size = self.features.size + dof
        self.net = SmoothPerceptron(size, 1, orthogonal=True, readout_bias=False, **layers)

    def hamiltonian(self, t: Any, q: Tensor, p: Tensor) -> Tensor:
        return self.net(torch.cat((self.features(q), p), dim=-1)).squeeze(-1)

    def gradient(self, t: Any, q: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        """Return ∂H/∂q and ∂H/∂p in closed form."""
        features = self.features(q)
        slope = self.net.linearise(torch.cat((features, p), dim=-1)).gradient()
        by_features, by_p = slope.split((self.features.size, self.dof), dim=-1)
        return self.features.vjp(features, by_features), by_p


class HNNOptions(PerceptronOptions, MotionSolveOptions, total=False):
    """Perceptron and solver of an HNN."""

    hidden_size: Width


@models.register("hnn")
class HNN(MotionModel):
    """Hamiltonian neural network: the energy of a state is learned, and the motion follows from it.

    Equation:
        q̇ = ∂H/∂p,  ṗ = −∂H/∂q

    Symbols:
        q positions, p momenta, H a perceptron.

    Promise:
        The field conserves its own energy H and the volume of phase space, for any weights. Steps
        are symplectic with method=implicit-midpoint; with leapfrog they are not, since H need not
        be of the form T(p) + V(q). The true energy is conserved as accurately as H was learned.

    Args:
        options: See `PerceptronOptions` and `SolveOptions`.

    Example:
        >>> model = undamped.models.HNN(2)
        >>> model(torch.randn(5, 4)).shape, model.energy(torch.randn(5, 4)).shape
        (torch.Size([5, 4]), torch.Size([5]))
        >>> model.trajectory(torch.randn(5, 4), [0.1, 0.2, 0.3]).shape
        torch.Size([3, 5, 4])

    Reference:
        S. Greydanus, M. Dzamba, J. Yosinski. Hamiltonian neural networks. NeurIPS, 2019.
    """

    usual_choice = True
    promises = (ENERGY, VOLUME, SYMPLECTIC)
    recipe: ClassVar = {"task": {"form": "derivative"}, "model": {"hidden_size": 200}}

    @checked
    def __init__(self, shape: TaskShape | StateSpace | int, **options: Unpack[HNNOptions]) -> None:
        super().__init__()
        coordinates = Coordinates.of(shape, "HNN")
        arguments = perceptron_arguments(coordinates, options)
        self._build(PerceptronHamiltonian(coordinates.dof, **arguments), coordinates, options)


DOUBLED = Promise(Kind.SYMPLECTIC, "every step is symplectic on both copies together: DᵀJD = J")


@models.register("nssnn")
class NSSNN(MotionModel):
    """Nonseparable symplectic network: any H(q, p), stepped explicitly in two coupled copies.

    Equation:
        φ₁(h/2) φ₂(h/2) φ₃(h) φ₂(h/2) φ₁(h/2), the flows of H(q, y), H(x, p) and
        ω/2 (‖q − x‖² + ‖p − y‖²), from x = q and y = p

    Symbols:
        (q, p) the state, (x, y) its copy, H a perceptron, ω coupling, h step size.

    Promise:
        Every step is symplectic on (q, p, x, y) together, and not on (q, p) alone. Both copies are
        fitted to the data: training adds the loss of the second to that of the first.

    Args:
        omega: Coupling ω of the copies.
        step_size: Size of all steps; readings that lie further apart are reached in several steps.
        gradient: How gradients are computed.
        options: See `PerceptronOptions`.

    Reference:
        S. Xiong and others. Nonseparable symplectic neural networks. ICLR, 2021. M. Tao. Explicit
        symplectic approximation of nonseparable Hamiltonians. Physical Review E, 2016.
    """

    promises = (ENERGY, VOLUME, DOUBLED)
    recipe: ClassVar = {
        "task": {"form": "trajectory", "error": "absolute"},
        "model": {"hidden_size": 64},
        "train": {"learning_rate": 3e-3},
    }

    @checked
    def __init__(
        self,
        shape: TaskShape | StateSpace | int,
        *,
        omega: PositiveFloat = 20.0,
        step_size: PositiveFloat = 0.01,
        gradient: Gradient = "backprop",
        **options: Unpack[PerceptronOptions],
    ) -> None:
        super().__init__()
        coordinates = Coordinates.of(shape, "NSSNN")
        arguments = perceptron_arguments(coordinates, options)
        _refuse_full_turns(omega, step_size)
        solver = {"method": TaoOfCopies(omega), "step_size": step_size, "gradient": gradient}
        self._build(PerceptronHamiltonian(coordinates.dof, **arguments), coordinates, solver)
        self.promises = (ENERGY, VOLUME, DOUBLED)
        self._second: Tensor | None = None

    def _solve(
        self, start: Tensor, times: Tensor, first: int, u: Tensor | None, on_failure: OnFailure
    ) -> Tensor:
        """Return the first copy; the second is stored for training."""
        field, start = _CopiedField(self.field), self._sorted(start)
        both = torch.cat((start, start), dim=-1)
        if times.dim() == 2:
            self._solve_per_sample(field, both, times, on_failure)  # raises the error
        states = self.flow.solve(both, times, field=field, on_failure=on_failure).values
        copy, second = states[first:].chunk(2, dim=-1)
        self._second = self._unsorted(second) if torch.is_grad_enabled() else None
        return self._unsorted(copy)

    def further_predictions(self) -> list[Tensor]:
        """Return the second copy of the last pass, which is fitted to the data too."""
        return [] if self._second is None else [self._second]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_second": None}

    def phase_states(self, count: int, generator: torch.Generator) -> Tensor:
        """Return random pairs of copies: positions of both, then momenta of both."""
        first, second = (super(NSSNN, self).phase_states(count, generator) for _ in range(2))
        (q, p), (x, y) = first.chunk(2, dim=-1), second.chunk(2, dim=-1)
        return torch.cat((q, x, p, y), dim=-1)

    def phase_step(self, states: Tensor) -> Tensor:
        """Take one step of both copies."""
        q, x, p, y = states.chunk(4, dim=-1)
        after = self._one_step(_CopiedField(self.field), torch.cat((q, p, x, y), dim=-1))
        q, p, x, y = after.chunk(4, dim=-1)
        return torch.cat((q, x, p, y), dim=-1)


class _CopiedField(nn.Module):
    """A field of one state, or of two copies of it, concatenated."""

    def __init__(self, field: nn.Module) -> None:
        super().__init__()
        self.field = field

    def forward(self, t: Any, state: Tensor) -> Tensor:
        """Return the rates of one state, or of both copies."""
        if state.shape[-1] == self.field.size:
            return self.field(t, state)
        first, second = state.chunk(2, dim=-1)
        return torch.cat((self.field(t, first), self.field(t, second)), dim=-1)


def _refuse_full_turns(omega: float, step_size: float) -> None:
    """Refuse a step in which the rotation that couples the copies completes full turns."""
    turns = omega * step_size / math.pi
    if round(turns) >= 1 and abs(turns - round(turns)) < 0.02:
        raise OptionError(
            f"NSSNN.step_size must not be a multiple of π/ω = {math.pi / omega:.4g}, after which "
            f"the copies are not coupled, got {step_size} with omega={omega:g}."
        )


class PlainField(nn.Module):
    """A perceptron as dz/dt; or as d²q/dt² alone, where the state holds velocities.

    Equation:
        ż = f([z, u]);  of second order: q̇ = v, v̇ = f([q, v, u])

    Args:
        size: Size of a state.
        inputs: Number of inputs u.
        second_order: Whether the second half of a state is the rate of the first.
        angles: Which numbers of a state are replaced by cosine and sine.
        layers: Sizes and activation, as for `SmoothPerceptron`.
    """

    separable = False

    def __init__(
        self,
        size: int,
        inputs: int = 0,
        *,
        second_order: bool = False,
        angles: Sequence[int] = (),
        **layers: Any,
    ) -> None:
        super().__init__()
        self.size, self.inputs, self.second_order = size, inputs, second_order
        self.features = PositionFeatures(size, angles)
        outputs = size // 2 if second_order else size
        features = self.features.size + inputs
        self.net = SmoothPerceptron(features, outputs, orthogonal=True, **layers)

    def forward(self, t: Any, state: Tensor, u: Tensor | None = None) -> Tensor:
        """Return dz/dt, (…, size)."""
        features = self.features(state)
        if self.inputs:
            inputs = state.new_zeros(*state.shape[:-1], self.inputs) if u is None else u
            features = torch.cat((features, inputs), dim=-1)
        rate = self.net(features)
        if not self.second_order:
            return rate
        return torch.cat((state[..., self.size // 2 :], rate), dim=-1)


@models.register("plain-ode")
class PlainODE(MotionModel):
    """A perceptron as the rates of a state: the baseline without physical structure.

    Trained on derivatives it is the baseline of the HNN paper; trained on trajectories it is a
    neural ODE.

    Equation:
        ż = f(z, u)

    Symbols:
        z state, u inputs, f a perceptron.

    Promise:
        None: the energy drifts at an unknown rate.

    Args:
        second_order: Whether only velocities are learned, and positions follow from them; for
            states of positions and velocities.
        options: See `PerceptronOptions` and `SolveOptions`.

    Reference:
        S. Greydanus, M. Dzamba, J. Yosinski. Hamiltonian neural networks. NeurIPS, 2019.
        R. Chen and others. Neural ordinary differential equations. NeurIPS, 2018.
    """

    usual_choice = True
    recipe: ClassVar = {"model": {"hidden_size": 200}}

    @checked
    def __init__(
        self,
        shape: TaskShape | StateSpace | int,
        *,
        second_order: bool = False,
        **options: Unpack[HNNOptions],
    ) -> None:
        super().__init__()
        space = space_of(shape, "PlainODE")
        half = space.size // 2
        if second_order and space.kinds[half:] != ("velocity",) * half:
            raise OptionError(
                "PlainODE.second_order needs velocities in the second half of a state, got "
                f"{', '.join(space.kinds)}."
            )
        field = PlainField(
            space.size,
            len(space.inputs),
            second_order=second_order,
            angles=space.indices("angle") if options.get("angles") == "embedded" else (),
            **select(options, LayerOptions),
        )
        self._build(field, space, options)
