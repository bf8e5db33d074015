"""SymODEN (Zhong, Dey and Chakraborty, 2020): masses, potential and inputs learned separately."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import StateSpace, TaskShape
from undamped._base.options import PositiveFloat, select
from undamped._base.registry import models
from undamped.models.physics.base import (
    BALANCE,
    CIRCLE,
    ENERGY,
    MASS,
    PASSIVE,
    SYMPLECTIC,
    VOLUME,
    Embedded,
    LayerOptions,
    MotionModel,
    MotionSolveOptions,
    PerceptronOptions,
)
from undamped.models.physics.fields.coordinates import Coordinates, PositionFeatures, space_of
from undamped.models.physics.fields.hamiltonian import HamiltonianField
from undamped.models.physics.fields.ports import Mechanics, Ports, times
from undamped.models.physics.fields.smooth_perceptron import (
    LearnedInput,
    PositiveMatrix,
    SmoothPerceptron,
)


class MechanicalEnergy(nn.Module):
    """M⁻¹ and V of features of positions, and ports that read the same features.

    Args:
        features: Number of features of positions.
        dof: Number of momenta.
        smallest_mass: Smallest eigenvalue of M⁻¹.
        inputs: Number of inputs.
        friction: Whether there is friction.
        layers: Sizes and activation of every perceptron, as for `SmoothPerceptron`.
    """

    def __init__(
        self,
        features: int,
        dof: int,
        *,
        smallest_mass: float = 0.1,
        inputs: int = 0,
        friction: bool = False,
        **layers: Any,
    ) -> None:
        super().__init__()
        self.inverse_mass = PositiveMatrix(features, dof, smallest=smallest_mass, **layers)
        self.potential = SmoothPerceptron(
            features, 1, orthogonal=True, readout_bias=False, **layers
        )
        self.ports = Ports(
            LearnedInput(features, dof, inputs, **layers) if inputs else None,
            PositiveMatrix(features, dof, smallest=0.0, **layers) if friction else None,
        )

    def value(self, x: Tensor, p: Tensor) -> Tensor:
        """Return H, (…,)."""
        half = (p * self.inverse_mass.linearise(x).product(p)).sum(-1) / 2
        return half + self.potential(x).squeeze(-1)


class MassHamiltonian(HamiltonianField):
    """H = ½ pᵀ M⁻¹(q) p + V(q) in positions and momenta.

    Equation:
        q̇ = M⁻¹(q) p,  ṗ = −∂(½ pᵀ M⁻¹ p + V)/∂q + g(q) u − D(q) q̇

    Args:
        angles: Positions that are replaced by cosine and sine.
        options: Those of `MechanicalEnergy`.
    """

    def __init__(self, dof: int, angles: Sequence[int] = (), **options: Any) -> None:
        features = PositionFeatures(dof, angles)
        energy = MechanicalEnergy(features.size, dof, **options)
        ports = [
            None if port is None else nn.Sequential(features, port)
            for port in (energy.ports.inputs, energy.ports.friction)
        ]
        super().__init__(dof, Ports(*ports) if any(ports) else None)
        self.features, self.parts = features, energy

    def hamiltonian(self, t: Any, q: Tensor, p: Tensor) -> Tensor:
        return self.parts.value(self.features(q), p)

    def gradient(self, t: Any, q: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        """Return ∂H/∂q and ∂H/∂p in closed form."""
        x = self.features(q)
        mass = self.parts.inverse_mass.linearise(x)
        slope = mass.half_square_slope(p) + self.parts.potential.linearise(x).gradient()
        return self.features.vjp(x, slope), mass.product(p)

    def inverse_mass(self, state: Tensor) -> Tensor:
        """Return M⁻¹ at states, (…, dof, dof)."""
        return self.parts.inverse_mass(self.features(state[..., : self.dof]))


class VelocityField(nn.Module):
    """The same energy in velocities instead of momenta, where angles may be cosine and sine.

    Equation:
        p = M(x) q̇,  ṗ = −∂(½ pᵀ M⁻¹ p + V)/∂q + g(x) u − D(x) q̇
        q̈ = M⁻¹ ṗ + (d M⁻¹/dt) p

    Symbols:
        x positions; or for an angle q its cosine and sine, whose rates are −sin q q̇ and cos q q̇.

    Args:
        straight: Positions that are given as they are.
        turning: Angles that are given by cosine and sine.
        angles: Which of the straight positions are replaced by cosine and sine.
        options: Those of `MechanicalEnergy`.
    """

    separable = False

    def __init__(
        self, straight: int, turning: int = 0, angles: Sequence[int] = (), **options: Any
    ) -> None:
        super().__init__()
        self.straight, self.turning = straight, turning
        self.dof = straight + turning
        self.kinematics = PositionFeatures(self.dof, tuple(range(straight, self.dof)))
        """Maps velocities to the rates of [straight positions, cosines, sines]."""
        # States hold [straight, cosines, sines] already; straight angles may be embedded too.
        self.features = PositionFeatures(straight + 2 * turning, angles)
        self.parts = MechanicalEnergy(self.features.size, self.dof, **options)
        self.ports = self.parts.ports

    @property
    def size(self) -> int:
        """Size of a state."""
        return self.straight + 2 * self.turning + self.dof

    def _split(self, state: Tensor) -> tuple[Tensor, Tensor]:
        return state[..., : -self.dof], state[..., -self.dof :]

    def forward(self, t: Any, state: Tensor, u: Tensor | None = None) -> Tensor:
        """Return the rates of a state, (…, size)."""
        position, v = self._split(state)
        x = self.features(position)
        mass = self.parts.inverse_mass.linearise(x)
        p = mass.solve(v)
        slope = mass.half_square_slope(p) + self.parts.potential.linearise(x).gradient()
        by_q = self.kinematics.vjp(position, self.features.vjp(x, slope))
        force = self.ports.force(x, v, u) - by_q
        rate = self.kinematics.jvp(position, v)
        mass_rate = times(mass.rate(self.features.jvp(x, rate)), p)
        return torch.cat((rate, mass.product(force) + mass_rate), dim=-1)

    def energy(self, state: Tensor) -> Tensor:
        """Return ½ pᵀ M⁻¹ p + V of states, (…,)."""
        position, v = self._split(state)
        x = self.features(position)
        p = self.parts.inverse_mass.linearise(x).solve(v)
        return (p * v).sum(-1) / 2 + self.parts.potential(x).squeeze(-1)

    def supplied(self, state: Tensor, u: Tensor | None) -> Tensor:
        """Return the power that the inputs supply, (…,)."""
        position, v = self._split(state)
        return self.ports.supplied(self.features(position), v, u)

    def mechanics(self, state: Tensor) -> Mechanics:
        """Return positions (angles from cosine and sine), velocities, ∂V/∂q, the input matrix."""
        position, v = self._split(state)
        x = self.features(position)
        slope = self.features.vjp(x, self.parts.potential.linearise(x).gradient())
        straight, cosine, sine = position.split((self.straight, self.turning, self.turning), dim=-1)
        q = torch.cat((straight, torch.atan2(sine, cosine)), dim=-1)
        input_matrix = None if self.ports.inputs is None else self.ports.inputs(x)
        return Mechanics(q, v, self.kinematics.vjp(position, slope), input_matrix)

    def inverse_mass(self, state: Tensor) -> Tensor:
        """Return M⁻¹ at states, (…, dof, dof)."""
        return self.parts.inverse_mass(self.features(self._split(state)[0]))

    def circles(self, state: Tensor) -> Tensor:
        """Return cos² + sin² of the angles by cosine and sine, (…, turning)."""
        pairs = state[..., self.straight : self.straight + 2 * self.turning]
        return pairs.unflatten(-1, (2, self.turning)).square().sum(-2)


class SymODENOptions(PerceptronOptions, MotionSolveOptions, total=False):
    """Perceptrons and solver of a SymODEN."""

    angles: Embedded


@models.register("symoden")
class SymODEN(MotionModel):
    """Symplectic ODE-net: inverse masses, a potential and the input matrix, learned separately.

    States may hold positions and momenta; or velocities instead of momenta; or angles by cosine
    and sine with their velocities; or both kinds of positions.

    Equation:
        H = ½ pᵀ M⁻¹(q) p + V(q)
        q̇ = ∂H/∂p,  ṗ = −∂H/∂q + g(q) u − D(q) q̇

    Symbols:
        q positions, p momenta, M⁻¹ = L Lᵀ + ε I, V, g and D = K Kᵀ perceptrons, u inputs; D only
        with friction (dissipative SymODEN).

    Promise:
        Masses are positive. Without friction the field conserves its energy, and inputs change it
        by their power, dH/dt = yᵀu with y = gᵀ q̇; with friction it never grows by more. Angles
        given by cosine and sine stay on the circle up to the error of the steps. M⁻¹, V and g are
        determined only up to a common factor.

    Args:
        smallest_mass: Lower bound ε of the eigenvalues of M⁻¹.
        friction: Whether there is friction.
        options: See `PerceptronOptions` and `SolveOptions`.

    Reference:
        Y. D. Zhong, B. Dey, A. Chakraborty. Symplectic ODE-net: learning Hamiltonian dynamics with
        control. ICLR, 2020. Dissipative SymODEN. ICLR workshop, 2020.
    """

    usual_choice = True
    promises = (ENERGY, BALANCE, PASSIVE, VOLUME, SYMPLECTIC, MASS, CIRCLE)
    recipe: ClassVar = {"task": {"form": "trajectory"}, "model": {"hidden_size": 64}}

    @checked
    def __init__(
        self,
        shape: TaskShape | StateSpace | int,
        *,
        smallest_mass: PositiveFloat = 0.1,
        friction: bool = False,
        **options: Unpack[SymODENOptions],
    ) -> None:
        super().__init__()
        space = space_of(shape, "SymODEN")
        self.smallest_mass = smallest_mass
        arguments: dict[str, Any] = {
            **select(options, LayerOptions),
            "smallest_mass": smallest_mass,
            "inputs": len(space.inputs),
            "friction": friction,
        }
        moving = "velocity" in space.kinds
        sort = Coordinates.with_velocities if moving else Coordinates.of
        coordinates = sort(space, "SymODEN")
        dof, turning = coordinates.dof, coordinates.turning
        angles = coordinates.angles if options.get("angles") == "embedded" else ()
        if moving:
            field = VelocityField(dof - turning, turning, angles, **arguments)
        else:
            field = MassHamiltonian(dof, angles, **arguments)
        self._build(field, coordinates, options)
        self.promises = (*self.promises, MASS)
        if "cosine" in space.kinds:
            self.promises = (*self.promises, CIRCLE)

    def mass_matrix(self, states: Tensor) -> Tensor:
        """Return M⁻¹ at states, (…, dof, dof)."""
        return self.field.inverse_mass(self._sorted(states))  # type: ignore[operator]

    def constraints(self, states: Tensor) -> Tensor:
        """Return cos² + sin² of the angles by cosine and sine, (…, angles)."""
        return self.field.circles(self._sorted(states))  # type: ignore[operator]

    def example_states(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return random states and inputs; angles by cosine and sine lie on the circle."""
        states, u = super().example_states(count, generator)
        for cosine, sine in zip(
            self.space.indices("cosine"), self.space.indices("sine"), strict=True
        ):
            angle = states[:, cosine].clone()
            states[:, cosine], states[:, sine] = angle.cos(), angle.sin()
        return states, u
