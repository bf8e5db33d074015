"""What a cell or its matrix has to show, so that its promises can be measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn


@runtime_checkable
class HasSteps(Protocol):
    """A cell: steps from random states and inputs can be taken."""

    input_size: int
    hidden_size: int
    state_size: int
    state_names: Any

    def project(self, x: Tensor, /) -> Tensor:
        """Return what a step sees of its input."""
        ...

    def constants(self) -> Any:
        """Return what all steps share."""
        ...

    def initial_state(self, batch: int, like: Tensor, /) -> tuple[Tensor, ...]:
        """Return the state before the first step."""
        ...

    def advance(
        self, projected: Tensor, state: tuple[Tensor, ...], constants: Any, /
    ) -> tuple[Tensor, ...]:
        """Take a step."""
        ...


@runtime_checkable
class HasMemory(HasSteps, Protocol):
    """A cell that attends to remembered states."""

    attention: Any

    def split(self, state: tuple[Tensor, ...], /) -> tuple[Any, Any, Any]:
        """Return what the recurrence reads, what else it carries, and the memory."""
        ...

    def as_slots(self, memory: Any, batch: int, /) -> tuple[Tensor, ...]:
        """Return the remembered states, their scores and their flags."""
        ...

    def from_slots(self, slots: Tensor, scores: Tensor, seen: Tensor, /) -> tuple[Tensor, ...]:
        """Return the memory made of its slots."""
        ...

    def weights(self, query: Tensor, states: Tensor, seen: Tensor, /) -> Tensor:
        """Return the attention of a query to states."""
        ...


@runtime_checkable
class HasStepInverse(HasSteps, Protocol):
    """A cell whose steps can be taken back."""

    def inverse(
        self, projected: Tensor, state: tuple[Tensor, ...], constants: Any, /
    ) -> tuple[Tensor, ...]:
        """Return the state before a step."""
        ...


@runtime_checkable
class HasStepGradientBound(HasSteps, Protocol):
    """A cell that knows how much one step can stretch a gradient."""

    def step_gradient_bound(self) -> Tensor:
        """Return the bound of ‖∂h'/∂h‖₂."""
        ...


@runtime_checkable
class HasStateBound(HasSteps, Protocol):
    """A cell that knows how far its states can go."""

    def state_bound(self, steps: int) -> Sequence[float]:
        """Return the bound of every part of the state after some steps from the first state."""
        ...


@runtime_checkable
class HasRecurrentMatrix(Protocol):
    """A cell whose step has a linear part."""

    def recurrent_matrix(self) -> Tensor:
        """Return its matrix."""
        ...


@runtime_checkable
class HasFreeMatrix(HasRecurrentMatrix, Protocol):
    """A cell whose recurrent matrix is made of free parameters."""

    def free_parameters(self) -> Sequence[nn.Parameter]:
        """Return what training moves."""
        ...


@runtime_checkable
class HasMargin(HasFreeMatrix, Protocol):
    """A cell that holds its singular values within a margin of one."""

    margin: float


@runtime_checkable
class HasSpectrum(HasFreeMatrix, Protocol):
    """A cell that knows the moduli of its eigenvalues."""

    def spectrum(self) -> Tensor:
        """Return the moduli."""
        ...


@runtime_checkable
class HasFlowJacobian(HasSteps, Protocol):
    """A cell that discretises an ODE and knows its Jacobian."""

    diffusion: float

    def flow_jacobian(self, projected: Tensor, state: tuple[Tensor, ...], /) -> Tensor:
        """Return ∂ḣ/∂h at each state, (batch, hidden, hidden)."""
        ...


@runtime_checkable
class HasMomentum(HasSteps, Protocol):
    """A cell that drives its state by a momentum of the inputs."""

    weight_hh: Tensor
    drive: Any


@runtime_checkable
class HasEquilibrium(HasSteps, Protocol):
    """A cell that iterates towards an equilibrium in every step."""

    steps: nn.Parameter


@runtime_checkable
class HasGaps(Protocol):
    """A network whose state flows over the gaps between its samples."""

    state_sizes: Any

    def flow(self, state: tuple[Tensor, ...], gaps: Tensor, /) -> tuple[Tensor, ...]:
        """Return the state (batch, size) after gaps (batch,) without samples."""
        ...
