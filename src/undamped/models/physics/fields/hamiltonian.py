"""The contract of Hamiltonian fields: an energy H(q, p), and the motion that conserves it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from undamped.models.physics.fields.ports import PortField, Ports
from undamped.ode.methods.symplectic import split


class HamiltonianField(PortField):
    """A field that is the symplectic gradient of an energy, with or without ports.

    A subclass defines `hamiltonian` and, for speed, `gradient` in closed form; by default autograd
    computes the gradient, in every mode of the solvers. A state holds positions first and momenta
    second.

    Equation:
        q̇ = ∂H/∂p,  ṗ = −∂H/∂q + g(q) u − D(q) q̇

    Symbols:
        q positions, p momenta, H energy, u inputs, g and D as in `Ports`.

    Args:
        dof: Positions; as many momenta.
        ports: Inputs and friction, if there are any.

    Example:
        >>> class Spring(HamiltonianField):
        ...     def hamiltonian(self, t, q, p):
        ...         return (q**2 + p**2).sum(-1) / 2
        >>> Spring(1)(0.0, torch.tensor([1.0, 2.0]))
        tensor([ 2., -1.])
    """

    splits: bool = False
    """Whether H = T(p) + V(q), so that `velocity` and `force` need one half of the state each."""

    @property
    def separable(self) -> bool:
        """Whether positions and momenta can be stepped in turn; friction needs both at once."""
        return self.splits and (self.ports is None or self.ports.friction is None)

    @abstractmethod
    def hamiltonian(self, t: Any, q: Tensor, p: Tensor) -> Tensor:
        """Return H, (…,), of positions and momenta (…, dof)."""

    def gradient(self, t: Any, q: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        """Return ∂H/∂q and ∂H/∂p, each (…, dof)."""
        by_q, by_p = by_autograd(lambda q, p: self.hamiltonian(t, q, p), q, p)
        return by_q, by_p

    def forward(self, t: Any, state: Any, u: Tensor | None = None) -> Any:
        """Return (q̇, ṗ) in the form of the state, (…, 2 × dof) or a pair (q, p), with inputs u."""
        q, p = state if isinstance(state, tuple) else split(state)
        by_q, by_p = self.gradient(t, q, p)
        rate = -by_q if self.ports is None else self.ports.force(q, by_p, u) - by_q
        return (by_p, rate) if isinstance(state, tuple) else torch.cat((by_p, rate), dim=-1)

    def energy(self, state: Tensor) -> Tensor:
        """Return H of states (…, 2 × dof) at time zero."""
        return self.hamiltonian(0.0, *split(state))

    def velocities(self, q: Tensor, partner: Tensor) -> Tensor:
        return self.gradient(0.0, q, partner)[1]

    def rest_slope(self, q: Tensor) -> Tensor:
        """Return ∂H/∂q for momenta of zero, (…, dof)."""
        return self.gradient(0.0, q, torch.zeros_like(q))[0]


class SeparableField(HamiltonianField):
    """A Hamiltonian field with H = T(p) + V(q); subclasses define the four parts.

    Symplectic methods evaluate only the half that they need.

    Equation:
        q̇ = ∂T/∂p,  ṗ = −∂V/∂q + g(q) u
    """

    splits = True

    @abstractmethod
    def kinetic(self, p: Tensor) -> Tensor:
        """Return T, (…,)."""

    @abstractmethod
    def potential(self, q: Tensor) -> Tensor:
        """Return V, (…,)."""

    def kinetic_gradient(self, p: Tensor) -> Tensor:
        """Return ∂T/∂p, (…, dof)."""
        return by_autograd(self.kinetic, p)[0]

    def potential_gradient(self, q: Tensor) -> Tensor:
        """Return ∂V/∂q, (…, dof)."""
        return by_autograd(self.potential, q)[0]

    def hamiltonian(self, t: Any, q: Tensor, p: Tensor) -> Tensor:
        return self.kinetic(p) + self.potential(q)

    def gradient(self, t: Any, q: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        return self.potential_gradient(q), self.kinetic_gradient(p)

    def velocity(self, t: Any, p: Tensor) -> Tensor:
        """Return q̇, which depends only on the momenta."""
        return self.kinetic_gradient(p)

    def force(self, t: Any, q: Tensor, u: Tensor | None = None) -> Tensor:
        """Return ṗ, which depends only on the positions and the inputs."""
        slope = self.potential_gradient(q)
        return -slope if self.ports is None else self.ports.input_force(q, u) - slope


class PairField(SeparableField):
    """T(p) + V(q) by two modules, each with a value and a `gradient` in closed form.

    Args:
        of_momenta: T.
        of_positions: V.
    """

    of_momenta: Any
    of_positions: Any

    def __init__(
        self, dof: int, of_momenta: nn.Module, of_positions: nn.Module, ports: Ports | None = None
    ) -> None:
        super().__init__(dof, ports)
        self.of_momenta, self.of_positions = of_momenta, of_positions

    def kinetic(self, p: Tensor) -> Tensor:
        return self.of_momenta(p)

    def potential(self, q: Tensor) -> Tensor:
        return self.of_positions(q)

    def kinetic_gradient(self, p: Tensor) -> Tensor:
        return self.of_momenta.gradient(p)

    def potential_gradient(self, q: Tensor) -> Tensor:
        return self.of_positions.gradient(q)


def by_autograd(function: Any, *points: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients of a function (…,) of points (…, n), differentiable in grad mode.

    It also works under `no_grad` and in inference mode, in which solvers evaluate fields.
    """
    recording = torch.is_grad_enabled()
    with torch.inference_mode(False), torch.enable_grad():
        leaves = [differentiable_point(x, recording) for x in points]
        value = function(*leaves)
        return torch.autograd.grad(value.sum(), leaves, create_graph=recording)


def differentiable_point(x: Tensor, recording: bool) -> Tensor:
    """Return a point with respect to which autograd can differentiate.

    A point that is part of a graph stays connected to it; any other becomes a new leaf.

    Args:
        x: The point.
        recording: Whether the gradient itself will be differentiated.
    """
    return x.view_as(x) if recording and x.requires_grad else x.clone().requires_grad_()
