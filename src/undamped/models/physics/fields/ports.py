"""Ports: where a system meets the world, by inputs that do work and by friction that takes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Ports(nn.Module):
    """What acts on the momenta of a system besides its own energy.

    Equation:
        F = g(q) u − D(q) q̇

    Symbols:
        u inputs, g(q) where they act, D(q) friction, positive semi-definite.

    Args:
        inputs: g, a module from positions to (…, freedoms, inputs); None without inputs.
        friction: D, a module from positions to (…, freedoms, freedoms); None without friction.
    """

    def __init__(self, inputs: nn.Module | None = None, friction: nn.Module | None = None) -> None:
        super().__init__()
        self.inputs = inputs
        self.friction = friction

    def driven(self, q: Tensor, u: Tensor | None) -> Tensor | float:
        """Return g(q) u, (…, freedoms); 0 without inputs."""
        return 0.0 if self.inputs is None or u is None else times(self.inputs(q), u)

    def force(self, q: Tensor, velocity: Tensor, u: Tensor | None) -> Tensor | float:
        """Return F, (…, freedoms); 0 where nothing acts."""
        if self.friction is None:
            return self.driven(q, u)
        return self.driven(q, u) - times(self.friction(q), velocity)

    def supplied(self, q: Tensor, velocity: Tensor, u: Tensor | None) -> Tensor:
        """Return the power that the inputs supply, q̇ᵀ g u, (…,)."""
        return (velocity * self.driven(q, u)).sum(-1)


class Mechanics(NamedTuple):
    """What a controller has to know about a state, sample by sample."""

    place: Tensor
    """Positions q, (…, freedoms)."""
    speed: Tensor
    """Velocities q̇, (…, freedoms)."""
    slope: Tensor
    """∂V/∂q, the slope of the energy at rest, (…, freedoms)."""
    acting: Tensor | None
    """g(q), (…, freedoms, inputs); None without inputs."""


class ConstantInput(nn.Module):
    """Inputs that act on some of the momenta, one each: g is a fixed matrix of zeros and ones.

    Args:
        freedoms: Number of momenta.
        acts_on: Which of them the inputs act on.
    """

    matrix: Tensor

    def __init__(self, freedoms: int, acts_on: tuple[int, ...]) -> None:
        super().__init__()
        matrix = torch.zeros(freedoms, len(acts_on), dtype=torch.float64)
        for column, row in enumerate(acts_on):
            matrix[row, column] = 1
        self.register_buffer("matrix", matrix, persistent=False)

    def forward(self, q: Tensor) -> Tensor:
        """Return g, (…, freedoms, inputs)."""
        return self.matrix.to(q.dtype).expand(*q.shape[:-1], *self.matrix.shape)


class Driven(nn.Module):
    """A field with its inputs, for one solve.

    Args:
        field: A field with ports, called with (t, state, u).
        control: The inputs: a tensor (…, inputs) that stays as it is, or a function of
            (t, state).

    Example:
        >>> solve(Driven(field, torch.ones(5, 1)), start, [0.0, 1.0])
    """

    def __init__(self, field: nn.Module, control: Tensor | Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.field = field
        self.control = control

    def context_tensors(self) -> list[Tensor]:
        """Name what gradients must reach besides the parameters."""
        return [self.control] if isinstance(self.control, Tensor) else []

    @property
    def separable(self) -> bool:
        """Whether positions and momenta can be stepped in turn: inputs must not see the state."""
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


class Paced(nn.Module):
    """A field in which every sample has a clock of its own, for one solve.

    Equation:
        dz/ds = T f(z), so that s = 1 is a time of T

    Args:
        field: A field that does not change with time.
        pace: T, (batch, 1).
    """

    def __init__(self, field: nn.Module, pace: Tensor) -> None:
        super().__init__()
        self.field, self.pace = field, pace

    def context_tensors(self) -> list[Tensor]:
        """Name what gradients must reach besides the parameters."""
        inner = getattr(self.field, "context_tensors", list)
        return [self.pace, *inner()]

    @property
    def separable(self) -> bool:
        """Whether the field is; a pace changes nothing."""
        return bool(getattr(self.field, "separable", False))

    def velocity(self, t: Any, p: Tensor) -> Tensor:
        """Return dq/ds of a separable field."""
        return self.pace * self.field.velocity(t, p)  # type: ignore[operator]

    def force(self, t: Any, q: Tensor) -> Tensor:
        """Return dp/ds of a separable field."""
        return self.pace * self.field.force(t, q)  # type: ignore[operator]

    def forward(self, t: Any, state: Tensor) -> Tensor:
        """Return dz/ds."""
        return self.pace * self.field(t, state)


def times(matrix: Tensor, vector: Tensor) -> Tensor:
    """Return the product of a matrix (…, n, m) and a vector (…, m)."""
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)
