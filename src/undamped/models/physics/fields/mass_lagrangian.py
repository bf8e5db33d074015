"""Lagrangians with a positive mass matrix and a potential, in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from undamped.models.physics.fields.angles import PositionFeatures
from undamped.models.physics.fields.lagrangian import LagrangianField
from undamped.models.physics.fields.ports import Ports, times
from undamped.models.physics.fields.positive_matrix import LinearisedMatrix, PositiveMatrix
from undamped.models.physics.fields.smooth_perceptron import SmoothActivation, SmoothPerceptron
from undamped.ode.methods.symplectic.phase import split


class Forces(NamedTuple):
    """What it takes to move as wanted, (…, freedoms) each."""

    inertial: Tensor
    """M q̈."""
    coriolis: Tensor
    """Ṁ q̇ − ∂(½ q̇ᵀ M q̇)/∂q: Coriolis and centrifugal forces."""
    potential: Tensor
    """∂V/∂q."""


class MassLagrangian(LagrangianField):
    """L = ½ q̇ᵀ M(q) q̇ − V(q) with M positive whatever the weights.

    Both directions take one pass forward along q̇ (Ṁ) and one backward (the slopes of the kinetic
    energy and of V) through the perceptrons; the forward one solves by Cholesky.

    Equation:
        M(q) q̈ + Ṁ(q) q̇ − ∂(½ q̇ᵀ M q̇)/∂q + ∂V/∂q = F,  M = K(q) K(q)ᵀ + ε I

    Args:
        freedoms: Positions; as many velocities.
        hidden_size: Width of the perceptrons.
        hidden_layers: Their hidden layers.
        activation: Their activation.
        angles: Positions that are seen by cosine and sine.
        smallest_mass: ε.
        ports: Inputs and friction.

    Example:
        >>> field = MassLagrangian(2)
        >>> field(0.0, torch.randn(5, 4)).shape, field.energy(torch.randn(5, 4)).shape
        (torch.Size([5, 4]), torch.Size([5]))
    """

    def __init__(
        self,
        freedoms: int,
        hidden_size: int = 64,
        *,
        hidden_layers: int = 2,
        activation: SmoothActivation = "softplus",
        angles: Sequence[int] = (),
        smallest_mass: float = 1e-3,
        ports: Ports | None = None,
    ) -> None:
        super().__init__(freedoms, ports)
        self.features = PositionFeatures(freedoms, angles)
        self.masses = PositiveMatrix(
            self.features.size,
            freedoms,
            hidden_size,
            hidden_layers=hidden_layers,
            activation=activation,
            smallest=smallest_mass,
        )
        self.of_positions = SmoothPerceptron(
            self.features.size,
            1,
            hidden_size,
            hidden_layers=hidden_layers,
            activation=activation,
            readout_bias=False,
        )

    def potential(self, q: Tensor) -> Tensor:
        """Return V, (…,)."""
        return self.of_positions(self.features(q)).squeeze(-1)

    def lagrangian(self, q: Tensor, v: Tensor) -> Tensor:
        """Return L, (…,)."""
        x = self.features(q)
        kinetic = (v * self.masses.linearise(x).product(v)).sum(-1) / 2
        return kinetic - self.of_positions(x).squeeze(-1)

    def energy(self, state: Tensor) -> Tensor:
        """Return ½ q̇ᵀ M q̇ + V of states (…, 2 × freedoms)."""
        q, v = split(state)
        x = self.features(q)
        kinetic = (v * self.masses.linearise(x).product(v)).sum(-1) / 2
        return kinetic + self.of_positions(x).squeeze(-1)

    def acceleration(self, q: Tensor, v: Tensor, force: Tensor | float = 0.0) -> Tensor:
        """Return q̈, (…, freedoms): what a force makes of it."""
        mass, coriolis, slope = self._resisting(q, v)
        return mass.solve(force - coriolis - slope)

    def forces(self, q: Tensor, v: Tensor, acceleration: Tensor) -> Forces:
        """Return what it takes to move so, part by part."""
        mass, coriolis, slope = self._resisting(q, v)
        return Forces(mass.product(acceleration), coriolis, slope)

    def mass(self, state: Tensor) -> Tensor:
        """Return M at states, (…, freedoms, freedoms)."""
        return self.masses(self.features(split(state)[0]))

    def _resisting(self, q: Tensor, v: Tensor) -> tuple[LinearisedMatrix, Tensor, Tensor]:
        """Return M, what turning masses take, and the slope of V."""
        x = self.features(q)
        mass = self.masses.linearise(x)
        turning = times(mass.rate(self.features.push(x, v)), v)
        coriolis = turning - self.features.pull(x, mass.half_square_slope(v))
        slope = self.features.pull(x, self.of_positions.linearise(x).gradient())
        return mass, coriolis, slope
