"""Ports of a system: inputs, which do work on it, and friction, which dissipates energy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from undamped.ode.methods.symplectic import split


class Ports(nn.Module):
    """Forces on the momenta of a system besides those of its energy.

    Equation:
        F = g(q) u − D(q) q̇

    Symbols:
        u inputs, g(q) input matrix, D(q) friction matrix, positive semi-definite.

    Args:
        inputs: g, a module from positions to (…, dof, inputs); None without inputs.
        friction: D, a module from positions to (…, dof, dof); None without friction.
    """

    def __init__(self, inputs: nn.Module | None = None, friction: nn.Module | None = None) -> None:
        super().__init__()
        self.inputs = inputs
        self.friction = friction

    def input_force(self, q: Tensor, u: Tensor | None) -> Tensor | float:
        """Return g(q) u, (…, dof); 0 without inputs."""
        return 0.0 if self.inputs is None or u is None else times(self.inputs(q), u)

    def force(self, q: Tensor, velocity: Tensor, u: Tensor | None) -> Tensor | float:
        """Return F, (…, dof); 0 where nothing acts."""
        if self.friction is None:
            return self.input_force(q, u)
        return self.input_force(q, u) - times(self.friction(q), velocity)

    def supplied(self, q: Tensor, velocity: Tensor, u: Tensor | None) -> Tensor:
        """Return the power that the inputs supply, q̇ᵀ g u, (…,)."""
        return (velocity * self.input_force(q, u)).sum(-1)


class Mechanics(NamedTuple):
    """Quantities of a state that a controller needs."""

    position: Tensor
    """Positions q, (…, dof)."""
    velocity: Tensor
    """Velocities q̇, (…, dof)."""
    slope: Tensor
    """∂V/∂q, the gradient of the energy at rest, (…, dof)."""
    input_matrix: Tensor | None
    """g(q), (…, dof, inputs); None without inputs."""


class PortField(nn.Module, ABC):
    """A field of positions and as many momenta or velocities, with or without ports.

    Args:
        dof: Number of positions.
        ports: Inputs and friction, if there are any.
    """

    def __init__(self, dof: int, ports: Ports | None = None) -> None:
        super().__init__()
        self.dof = dof
        self.ports = ports

    @property
    def size(self) -> int:
        """Size of a state."""
        return 2 * self.dof

    @abstractmethod
    def velocities(self, q: Tensor, partner: Tensor) -> Tensor:
        """Return q̇ of positions and momenta, or velocities, (…, dof)."""

    @abstractmethod
    def rest_slope(self, q: Tensor) -> Tensor:
        """Return the gradient of the energy at rest, (…, dof)."""

    def supplied(self, state: Tensor, u: Tensor | None) -> Tensor:
        """Return the power that the inputs supply, (…,)."""
        if self.ports is None:
            return state.new_zeros(state.shape[:-1])
        q, p = split(state)
        return self.ports.supplied(q, self.velocities(q, p), u)

    def mechanics(self, state: Tensor) -> Mechanics:
        """Return positions, velocities, the gradient of the energy at rest, and g(q)."""
        q, p = split(state)
        inputs = None if self.ports is None else self.ports.inputs
        matrix = None if inputs is None else inputs(q)
        return Mechanics(q, self.velocities(q, p), self.rest_slope(q), matrix)


class ConstantInput(nn.Module):
    """Inputs that act on one momentum each: g is a constant matrix of zeros and ones.

    Args:
        dof: Number of momenta.
        acts_on: Which of them the inputs act on.
    """

    matrix: Tensor

    def __init__(self, dof: int, acts_on: tuple[int, ...]) -> None:
        super().__init__()
        matrix = torch.zeros(dof, len(acts_on), dtype=torch.float64)
        for column, row in enumerate(acts_on):
            matrix[row, column] = 1
        self.register_buffer("matrix", matrix, persistent=False)

    def forward(self, q: Tensor) -> Tensor:
        """Return g, (…, dof, inputs)."""
        return self.matrix.to(q.dtype).expand(*q.shape[:-1], *self.matrix.shape)


class Forced(nn.Module):
    """A field with its inputs, for one solve.

    Args:
        field: A field with ports, called with (t, state, u).
        control: The inputs: a constant tensor (…, inputs), or a function of (t, state).

    Example:
        >>> solve(Forced(field, torch.ones(5, 1)), start, [0.0, 1.0])
    """

    def __init__(self, field: nn.Module, control: Tensor | Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.field = field
        self.control = control

    def context_tensors(self) -> list[Tensor]:
        """Return the tensors besides the parameters that gradients have to reach."""
        return [self.control] if isinstance(self.control, Tensor) else []

    @property
    def separable(self) -> bool:
        """Whether the field is separable and the inputs do not depend on the state."""
        return bool(getattr(self.field, "separable", False)) and isinstance(self.control, Tensor)

    def velocity(self, t: Any, p: Tensor) -> Tensor:
        """Return dq/dt of a separable field."""
        return self.field.velocity(t, p)  # type: ignore[operator]

    def force(self, t: Any, q: Tensor) -> Tensor:
        """Return dp/dt of a separable field."""
        return self.field.force(t, q, self.control)  # type: ignore[operator]

    def forward(self, t: Any, state: Tensor) -> Tensor:
        """Return the field at a state and its inputs."""
        control = self.control
        return self.field(t, state, control if isinstance(control, Tensor) else control(t, state))


class TimeScaled(nn.Module):
    """A field whose time is scaled by one factor per sample, for one solve.

    Equation:
        dz/ds = T f(z), so that s = 1 is the time T

    Args:
        field: A field that does not change with time.
        scale: T, (batch, 1).
    """

    def __init__(self, field: nn.Module, scale: Tensor) -> None:
        super().__init__()
        self.field, self.scale = field, scale

    def context_tensors(self) -> list[Tensor]:
        """Return the tensors besides the parameters that gradients have to reach."""
        inner = getattr(self.field, "context_tensors", list)
        return [self.scale, *inner()]

    @property
    def separable(self) -> bool:
        """Whether the field is separable."""
        return bool(getattr(self.field, "separable", False))

    def velocity(self, t: Any, p: Tensor) -> Tensor:
        """Return dq/ds of a separable field."""
        return self.scale * self.field.velocity(t, p)  # type: ignore[operator]

    def force(self, t: Any, q: Tensor) -> Tensor:
        """Return dp/ds of a separable field."""
        return self.scale * self.field.force(t, q)  # type: ignore[operator]

    def forward(self, t: Any, state: Tensor) -> Tensor:
        """Return dz/ds."""
        return self.scale * self.field(t, state)


def times(matrix: Tensor, vector: Tensor) -> Tensor:
    """Return the product of a matrix (…, n, m) and a vector (…, m)."""
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)
