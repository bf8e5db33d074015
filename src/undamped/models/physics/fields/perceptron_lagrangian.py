"""A Lagrangian by a perceptron, whose accelerations take one pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from undamped.models.physics.fields.angles import PositionFeatures
from undamped.models.physics.fields.curvature import Curvature
from undamped.models.physics.fields.lagrangian import LagrangianField, solve_each
from undamped.models.physics.fields.ports import Ports, times
from undamped.models.physics.fields.positive_matrix import PositiveMatrix
from undamped.models.physics.fields.smooth_perceptron import SmoothActivation, SmoothPerceptron
from undamped.ode.methods.symplectic.phase import split

Masses = Literal["unit", "learned"]
SMALLEST = 1e-3
"""The least eigenvalue of learned masses, before the perceptron changes them."""


class PerceptronLagrangian(LagrangianField):
    """L(q, q̇) by one perceptron and a start of ordinary masses.

    The masses are no restriction, since the perceptron may undo them; but weights begin where
    L_q̇q̇ is near the identity, and not wherever chance leads. Velocities are seen in units of a
    usual speed, so that the perceptron is curved over those that occur. Masses that are learned
    with the rest spare it to multiply velocities with each other and with functions of positions.

    Equation:
        L = ½ q̇ᵀ A(q) q̇ + s² f(φ(q), q̇/s)

    Symbols:
        A the identity, or a positive matrix by a perceptron of φ(q).

    Args:
        freedoms: Positions; as many velocities.
        hidden_size: Width of the hidden layers.
        hidden_layers: Their number.
        activation: σ.
        angles: Positions that are seen by cosine and sine.
        speed: s, a usual speed.
        masses: Whether A is the identity (unit) or learned.
        ports: Inputs and friction.

    Example:
        >>> field = PerceptronLagrangian(2)
        >>> field(0.0, torch.randn(5, 4)).shape, field.energy(torch.randn(5, 4)).shape
        (torch.Size([5, 4]), torch.Size([5]))
    """

    def __init__(
        self,
        freedoms: int,
        hidden_size: int = 64,
        *,
        hidden_layers: int = 3,
        activation: SmoothActivation = "softplus",
        angles: Sequence[int] = (),
        speed: float = 1.0,
        masses: Masses = "unit",
        ports: Ports | None = None,
    ) -> None:
        super().__init__(freedoms, ports)
        self.speed = speed
        self.features = PositionFeatures(freedoms, angles)
        self.net = SmoothPerceptron(
            self.features.size + freedoms,
            1,
            hidden_size,
            hidden_layers=hidden_layers,
            activation=activation,
            orthogonal=True,
            readout_bias=False,
        )
        self.masses = None
        if masses == "learned":
            self.masses = PositiveMatrix(
                self.features.size,
                freedoms,
                hidden_size,
                hidden_layers=hidden_layers,
                activation=activation,
                smallest=SMALLEST,
            )

    def lagrangian(self, q: Tensor, v: Tensor) -> Tensor:
        """Return L, (…,)."""
        x = self.features(q)
        return self._kinetic(x, v) + self.speed**2 * self.net(self._seen(x, v)).squeeze(-1)

    def acceleration(self, q: Tensor, v: Tensor, force: Tensor | float = 0.0) -> Tensor:
        """Return q̈, (…, freedoms): one forward-over-reverse pass and one solve."""
        x = self.features(q)
        at = Curvature(self.net, self._seen(x, v))
        of_x, of_v = self._places
        steady = at.enter(torch.eye(self.freedoms, dtype=v.dtype, device=v.device), of_v)
        moving = self.features.push(x, v)
        carried = at.enter(moving, of_x).unsqueeze(-2)
        steady = steady.expand(*carried.shape[:-2], *steady.shape)
        second = at.along(torch.cat((steady, carried), dim=-2))
        hessian, mixed = second[..., :-1, :-1], self.speed * second[..., :-1, -1]
        by_x = self.speed**2 * at.gradient[..., of_x]
        if self.masses is None:
            return solve_each(
                self._with_masses(hessian), self.features.pull(x, by_x) - mixed + force
            )
        mass = self.masses.linearise(x)
        by_q = self.features.pull(x, by_x + mass.half_square_slope(v))
        turning = times(mass.rate(moving), v)
        return solve_each(hessian + mass.value, by_q - mixed - turning + force)

    def mass(self, state: Tensor) -> Tensor:
        """Return L_q̇q̇ at states, (…, freedoms, freedoms)."""
        q, v = split(state)
        x = self.features(q)
        at = Curvature(self.net, self._seen(x, v))
        steady = at.enter(torch.eye(self.freedoms, dtype=v.dtype, device=v.device), self._places[1])
        hessian = at.along(steady.expand(*v.shape[:-1], *steady.shape))
        return self._with_masses(hessian) if self.masses is None else hessian + self.masses(x)

    def energy(self, state: Tensor) -> Tensor:
        """Return E = q̇ᵀ L_q̇ − L of states (…, 2 × freedoms), in closed form."""
        q, v = split(state)
        x = self.features(q)
        at = self.net.linearise(self._seen(x, v))
        carried = (v / self.speed * at.gradient()[..., self._places[1]]).sum(-1)
        return self._kinetic(x, v) + self.speed**2 * (carried - at.value.squeeze(-1))

    def _kinetic(self, x: Tensor, v: Tensor) -> Tensor:
        """Return ½ q̇ᵀ A q̇, (…,)."""
        moved = v if self.masses is None else self.masses.linearise(x).product(v)
        return (v * moved).sum(-1) / 2

    def _seen(self, x: Tensor, v: Tensor) -> Tensor:
        """Return what the perceptron sees of features of positions and of velocities."""
        return torch.cat((x, v / self.speed), dim=-1)

    @property
    def _places(self) -> tuple[slice, slice]:
        """Where features of positions, and velocities, stand in what the perceptron sees."""
        return slice(None, self.features.size), slice(self.features.size, None)

    def _with_masses(self, hessian: Tensor) -> Tensor:
        return hessian + torch.eye(self.freedoms, dtype=hessian.dtype, device=hessian.device)
