"""What a model of motion has to show, so that its promises can be measured."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class HasMotion(Protocol):
    """A model of a moving system with an energy of its own."""

    def example_states(self, count: int, generator: Any) -> tuple[Tensor, Tensor]:
        """Return random states and inputs."""
        ...

    def derivative(self, states: Tensor, u: Tensor | None = None) -> Tensor:
        """Return the rates of states."""
        ...

    def energy(self, states: Tensor) -> Tensor:
        """Return the energy of states, (batch,)."""
        ...

    def supplied(self, states: Tensor, u: Tensor | None) -> Tensor:
        """Return the power that inputs supply, (batch,)."""
        ...


@runtime_checkable
class HasPhaseStep(Protocol):
    """A model that takes steps in phase space."""

    def phase_states(self, count: int, generator: Any) -> Tensor:
        """Return random states: positions in the first half, momenta in the second."""
        ...

    def phase_step(self, states: Tensor) -> Tensor:
        """Take a step of the model's own method and size."""
        ...


@runtime_checkable
class HasPhaseInverse(HasPhaseStep, Protocol):
    """A model whose steps in phase space can be taken back."""

    def phase_undo(self, states: Tensor) -> Tensor:
        """Take a step back."""
        ...


@runtime_checkable
class HasMass(Protocol):
    """A model with a mass matrix, or with the inverse of one."""

    smallest_mass: float

    def example_states(self, count: int, generator: Any) -> tuple[Tensor, Tensor]:
        """Return random states and inputs."""
        ...

    def mass_matrix(self, states: Tensor) -> Tensor:
        """Return the matrix that is to be positive, (batch, n, n)."""
        ...


@runtime_checkable
class HasConstraints(Protocol):
    """A model whose states keep to constraints."""

    def example_states(self, count: int, generator: Any) -> tuple[Tensor, Tensor]:
        """Return random states that keep to them, and inputs."""
        ...

    def derivative(self, states: Tensor, u: Tensor | None = None) -> Tensor:
        """Return the rates of states."""
        ...

    def constraints(self, states: Tensor) -> Tensor:
        """Return what has to stay as it is, (batch, constraints)."""
        ...
