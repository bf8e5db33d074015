"""Mechanical energies H = ½ pᵀ M⁻¹(q) p + V(q), in momenta and in velocities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from undamped.models.physics.fields.angles import PositionFeatures
from undamped.models.physics.fields.hamiltonian import HamiltonianField
from undamped.models.physics.fields.ports import Mechanics, Ports, times
from undamped.models.physics.fields.positive_matrix import PositiveMatrix
from undamped.models.physics.fields.smooth_perceptron import SmoothActivation, SmoothPerceptron


class LearnedInput(nn.Module):
    """g, the directions in which inputs act, by a perceptron.

    Args:
        features: Features of positions.
        freedoms: Rows.
        inputs: Columns.
        hidden_size: Width of the perceptron.
        activation: Its activation.
        hidden_layers: Its hidden layers.
    """

    def __init__(
        self,
        features: int,
        freedoms: int,
        inputs: int,
        hidden_size: int = 64,
        activation: SmoothActivation = "tanh",
        hidden_layers: int = 2,
    ) -> None:
        super().__init__()
        self.shape = (freedoms, inputs)
        self.net = SmoothPerceptron(
            features,
            freedoms * inputs,
            hidden_size,
            hidden_layers=hidden_layers,
            activation=activation,
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return g, (…, freedoms, inputs)."""
        return self.net(x).unflatten(-1, self.shape)


class MechanicalEnergy(nn.Module):
    """M⁻¹ and V of features of positions, and ports that see the same features.

    Args:
        features: Features of positions.
        freedoms: Number of momenta.
        hidden_size: Width of every perceptron.
        hidden_layers: Their hidden layers.
        activation: Their activation.
        smallest_mass: Smallest eigenvalue of M⁻¹.
        inputs: Number of inputs.
        friction: Whether there is friction.
    """

    def __init__(
        self,
        features: int,
        freedoms: int,
        hidden_size: int = 64,
        *,
        hidden_layers: int = 2,
        activation: SmoothActivation = "tanh",
        smallest_mass: float = 0.1,
        inputs: int = 0,
        friction: bool = False,
    ) -> None:
        super().__init__()
        net: dict[str, Any] = {"hidden_layers": hidden_layers, "activation": activation}
        self.inverse_mass = PositiveMatrix(
            features, freedoms, hidden_size, smallest=smallest_mass, **net
        )
        self.potential = SmoothPerceptron(
            features, 1, hidden_size, orthogonal=True, readout_bias=False, **net
        )
        self.ports = Ports(
            LearnedInput(features, freedoms, inputs, hidden_size, **net) if inputs else None,
            PositiveMatrix(features, freedoms, hidden_size, smallest=0.0, **net)
            if friction
            else None,
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
        freedoms: Positions; as many momenta.
        angles: Positions that are seen by cosine and sine.
        options: Those of `MechanicalEnergy`.
    """

    def __init__(self, freedoms: int, angles: Sequence[int] = (), **options: Any) -> None:
        features = PositionFeatures(freedoms, angles)
        energy = MechanicalEnergy(features.size, freedoms, **options)
        ports = energy.ports
        wrapped = [
            None if part is None else nn.Sequential(features, part)
            for part in (ports.inputs, ports.friction)
        ]
        super().__init__(freedoms, Ports(*wrapped) if any(wrapped) else None)
        self.features, self.parts = features, energy

    def hamiltonian(self, t: Any, q: Tensor, p: Tensor) -> Tensor:
        """Return H, (…,)."""
        return self.parts.value(self.features(q), p)

    def gradient(self, t: Any, q: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        """Return ∂H/∂q and ∂H/∂p in closed form."""
        x = self.features(q)
        mass = self.parts.inverse_mass.linearise(x)
        slope = mass.half_square_slope(p) + self.parts.potential.linearise(x).gradient()
        return self.features.pull(x, slope), mass.product(p)

    def inverse_mass(self, state: Tensor) -> Tensor:
        """Return M⁻¹ at states, (…, freedoms, freedoms)."""
        return self.parts.inverse_mass(self.features(state[..., : self.freedoms]))


class VelocityField(nn.Module):
    """The same energy where velocities are given in place of momenta, and angles as they come.

    Equation:
        p = M(x) q̇,  ṗ = −∂(½ pᵀ M⁻¹ p + V)/∂q + g(x) u − D(x) q̇
        q̈ = M⁻¹ ṗ + (d M⁻¹/dt) p

    Symbols:
        x positions; or for an angle q its cosine and sine, whose rates are −sin q q̇ and cos q q̇.

    Args:
        straight: Positions that are given as they are.
        turning: Angles that are given by cosine and sine.
        angles: Which of the straight positions the energy sees by cosine and sine.
        options: Those of `MechanicalEnergy`.
    """

    separable = False

    def __init__(
        self, straight: int, turning: int = 0, angles: Sequence[int] = (), **options: Any
    ) -> None:
        super().__init__()
        self.straight, self.turning = straight, turning
        self.freedoms = straight + turning
        given = tuple(range(straight, self.freedoms))
        self.of_given = PositionFeatures(self.freedoms, given)
        """How the rates of what is given follow from velocities."""
        # What is given holds [straight, cosines, sines]; straight angles may be embedded too.
        self.seen = PositionFeatures(straight + 2 * turning, angles)
        self.parts = MechanicalEnergy(self.seen.size, self.freedoms, **options)
        self.ports = self.parts.ports

    @property
    def size(self) -> int:
        """Numbers of a state."""
        return self.straight + 2 * self.turning + self.freedoms

    def _split(self, state: Tensor) -> tuple[Tensor, Tensor]:
        return state[..., : -self.freedoms], state[..., -self.freedoms :]

    def forward(self, t: Any, state: Tensor, u: Tensor | None = None) -> Tensor:
        """Return the rates of a state, (…, size)."""
        place, v = self._split(state)
        x = self.seen(place)
        mass = self.parts.inverse_mass.linearise(x)
        p = mass.solve(v)
        slope = mass.half_square_slope(p) + self.parts.potential.linearise(x).gradient()
        pull = self.of_given.pull(place, self.seen.pull(x, slope))
        force = self.ports.force(x, v, u) - pull
        moved = self.of_given.push(place, v)
        turned = times(mass.rate(self.seen.push(x, moved)), p)
        return torch.cat((moved, mass.product(force) + turned), dim=-1)

    def energy(self, state: Tensor) -> Tensor:
        """Return ½ pᵀ M⁻¹ p + V of states, (…,)."""
        place, v = self._split(state)
        x = self.seen(place)
        p = self.parts.inverse_mass.linearise(x).solve(v)
        return (p * v).sum(-1) / 2 + self.parts.potential(x).squeeze(-1)

    def supplied(self, state: Tensor, u: Tensor | None) -> Tensor:
        """Return the power that the inputs supply, (…,)."""
        place, v = self._split(state)
        return self.ports.supplied(self.seen(place), v, u)

    def mechanics(self, state: Tensor) -> Mechanics:
        """Return positions (angles from cosine and sine), velocities, ∂V/∂q, and how inputs act."""
        given, v = self._split(state)
        x = self.seen(given)
        pull = self.seen.pull(x, self.parts.potential.linearise(x).gradient())
        straight, cosine, sine = given.split((self.straight, self.turning, self.turning), dim=-1)
        place = torch.cat((straight, torch.atan2(sine, cosine)), dim=-1)
        acting = None if self.ports.inputs is None else self.ports.inputs(x)
        return Mechanics(place, v, self.of_given.pull(given, pull), acting)

    def inverse_mass(self, state: Tensor) -> Tensor:
        """Return M⁻¹ at states, (…, freedoms, freedoms)."""
        return self.parts.inverse_mass(self.seen(self._split(state)[0]))

    def circles(self, state: Tensor) -> Tensor:
        """Return cos² + sin² of the angles that are given so, (…, turning)."""
        given = state[..., self.straight : self.straight + 2 * self.turning]
        return given.unflatten(-1, (2, self.turning)).square().sum(-2)
