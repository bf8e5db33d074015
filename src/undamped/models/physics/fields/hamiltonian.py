"""The contract of Hamiltonian fields: an energy H(q, p), and the motion that keeps it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from undamped.models.physics.fields.ports import Mechanics, Ports
from undamped.ode.methods.symplectic.phase import split


class HamiltonianField(nn.Module, ABC):
    """A field that is the symplectic gradient of an energy, perhaps with ports.

    A subclass gives `hamiltonian`, and for speed `gradient` in closed form; without it autograd
    takes the gradient, which works in every mode of the solvers too. A state holds positions
    first and momenta second.

    Equation:
        q̇ = ∂H/∂p,  ṗ = −∂H/∂q + g(q) u − D(q) q̇

    Symbols:
        q positions, p momenta, H energy, u inputs, g and D as in `Ports`.

    Args:
        freedoms: Positions; as many momenta.
        ports: Inputs and friction, if there are any.

    Example:
        >>> class Spring(HamiltonianField):
        ...     def hamiltonian(self, t, q, p):
        ...         return (q**2 + p**2).sum(-1) / 2
        >>> Spring(1)(0.0, torch.tensor([1.0, 2.0]))
        tensor([ 2., -1.])
    """

    splits: bool = False
    """Whether H = T(p) + V(q): then `velocity` and `force` need one half of the state each."""

    def __init__(self, freedoms: int, ports: Ports | None = None) -> None:
        super().__init__()
        self.freedoms = freedoms
        self.ports = ports

    @property
    def size(self) -> int:
        """Numbers of a state."""
        return 2 * self.freedoms

    @property
    def separable(self) -> bool:
        """Whether positions and momenta can be stepped in turn; friction needs both at once."""
        return self.splits and (self.ports is None or self.ports.friction is None)

    @abstractmethod
    def hamiltonian(self, t: Any, q: Tensor, p: Tensor) -> Tensor:
        """Return H, (…,), of positions and momenta (…, freedoms)."""

    def gradient(self, t: Any, q: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        """Return ∂H/∂q and ∂H/∂p, each (…, freedoms)."""
        by_q, by_p = by_autograd(lambda q, p: self.hamiltonian(t, q, p), q, p)
        return by_q, by_p

    def forward(self, t: Any, state: Any, u: Tensor | None = None) -> Any:
        """Return (q̇, ṗ), in the form the state came in.

        Args:
            t: Time.
            state: (…, 2 × freedoms), or a pair (q, p).
            u: Inputs, (…, inputs).
        """
        q, p = state if isinstance(state, tuple) else split(state)
        by_q, by_p = self.gradient(t, q, p)
        rate = -by_q if self.ports is None else self.ports.force(q, by_p, u) - by_q
        return (by_p, rate) if isinstance(state, tuple) else torch.cat((by_p, rate), dim=-1)

    def energy(self, state: Tensor) -> Tensor:
        """Return H of states (…, 2 × freedoms) at time zero."""
        return self.hamiltonian(0.0, *split(state))

    def supplied(self, state: Tensor, u: Tensor | None) -> Tensor:
        """Return the power that the inputs supply, (…,)."""
        q, p = split(state)
        if self.ports is None:
            return state.new_zeros(state.shape[:-1])
        return self.ports.supplied(q, self.gradient(0.0, q, p)[1], u)

    def mechanics(self, state: Tensor) -> Mechanics:
        """Return positions, velocities, the slope of H at rest, and how inputs act."""
        q, p = split(state)
        acting = None if self.ports is None or self.ports.inputs is None else self.ports.inputs(q)
        at_rest = self.gradient(0.0, q, torch.zeros_like(p))[0]
        return Mechanics(q, self.gradient(0.0, q, p)[1], at_rest, acting)


class SeparableField(HamiltonianField):
    """A Hamiltonian field with H = T(p) + V(q); subclasses give the four parts.

    Symplectic methods evaluate only the half they need.

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
        """Return ∂T/∂p, (…, freedoms)."""
        return by_autograd(self.kinetic, p)[0]

    def potential_gradient(self, q: Tensor) -> Tensor:
        """Return ∂V/∂q, (…, freedoms)."""
        return by_autograd(self.potential, q)[0]

    def hamiltonian(self, t: Any, q: Tensor, p: Tensor) -> Tensor:
        """Return T + V."""
        return self.kinetic(p) + self.potential(q)

    def gradient(self, t: Any, q: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        """Return both halves of the gradient."""
        return self.potential_gradient(q), self.kinetic_gradient(p)

    def velocity(self, t: Any, p: Tensor) -> Tensor:
        """Return q̇, which depends on the momenta alone."""
        return self.kinetic_gradient(p)

    def force(self, t: Any, q: Tensor, u: Tensor | None = None) -> Tensor:
        """Return ṗ, which depends on the positions and the inputs alone."""
        slope = self.potential_gradient(q)
        return -slope if self.ports is None else self.ports.driven(q, u) - slope


class PairField(SeparableField):
    """T(p) + V(q) by two modules, each of which has a value and a closed `gradient`.

    Args:
        freedoms: Positions; as many momenta.
        of_momenta: T.
        of_positions: V.
        ports: Inputs, if there are any.
    """

    def __init__(
        self,
        freedoms: int,
        of_momenta: nn.Module,
        of_positions: nn.Module,
        ports: Ports | None = None,
    ) -> None:
        super().__init__(freedoms, ports)
        self.of_momenta, self.of_positions = of_momenta, of_positions

    def kinetic(self, p: Tensor) -> Tensor:
        """Return T, (…,)."""
        return self.of_momenta(p)

    def potential(self, q: Tensor) -> Tensor:
        """Return V, (…,)."""
        return self.of_positions(q)

    def kinetic_gradient(self, p: Tensor) -> Tensor:
        """Return ∂T/∂p in closed form."""
        return self.of_momenta.gradient(p)  # type: ignore[operator]

    def potential_gradient(self, q: Tensor) -> Tensor:
        """Return ∂V/∂q in closed form."""
        return self.of_positions.gradient(q)  # type: ignore[operator]


def by_autograd(function: Any, *points: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients of a function (…,) of points (…, n), differentiable where that is asked.

    Works without gradients and in inference mode, where a solver evaluates fields.
    """
    recording = torch.is_grad_enabled()
    with torch.inference_mode(False), torch.enable_grad():
        seen = [seen_by_autograd(x, recording) for x in points]
        value = function(*seen)
        return torch.autograd.grad(value.sum(), seen, create_graph=recording)


def seen_by_autograd(x: Tensor, recording: bool) -> Tensor:
    """Return a point whose gradient can be asked for.

    A view of what is already in a graph keeps its place in it; anything else is a new leaf.

    Args:
        x: The point.
        recording: Whether somebody will differentiate what is made of the gradient.
    """
    return x.view_as(x) if recording and x.requires_grad else x.clone().requires_grad_()
