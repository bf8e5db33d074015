"""Protocols: what a class must offer so that its promises can be measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

# Cells and their matrices


@runtime_checkable
class HasSteps(Protocol):
    """A cell: steps from random states and inputs can be taken."""

    input_size: int
    hidden_size: int
    state_names: Any
    state_sizes: Any

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

    def from_slots(self, slots: Tensor, scores: Tensor, flags: Tensor, /) -> tuple[Tensor, ...]:
        """Return the memory made of its slots."""
        ...

    def weights(self, query: Tensor, states: Tensor, flags: Tensor, /) -> Tensor:
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
    """A cell whose inputs enter through a velocity."""

    weight_hh: Tensor
    input_filter: Any


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


# Flows over depth, and solvers


@runtime_checkable
class HasLayers(Protocol):
    """A stack of layers, each a step of an ODE on a pair of states."""

    size: int
    depth: int

    def step(self, layer: int, pair: Any, weights: Any = None, /) -> tuple[Tensor, ...]:
        """Apply a layer."""
        ...

    def undo(self, layer: int, pair: Any, weights: Any = None, /) -> tuple[Tensor, ...]:
        """Take a layer back."""
        ...


@runtime_checkable
class HasLayerJacobian(HasLayers, Protocol):
    """A stack whose layers know the Jacobian of the ODE they discretise."""

    diffusion: float

    def flow_jacobian(self, layer: int, y: Tensor, /) -> Tensor:
        """Return ∂ẏ/∂y of a layer at each state, (batch, size, size)."""
        ...


@runtime_checkable
class HasFlow(Protocol):
    """A model that carries a state along a flow, there and back."""

    def example(self, count: int, generator: Any) -> tuple[Tensor, Any]:
        """Return random states at the start, and what the flow is told beside them."""
        ...

    def carry(self, state: Tensor, condition: Any = None, /) -> Tensor:
        """Return where they end."""
        ...

    def carry_back(self, state: Tensor, condition: Any = None, /) -> Tensor:
        """Return where they started."""
        ...


@runtime_checkable
class HasVolumeRate(HasFlow, Protocol):
    """A flow that knows how fast it changes volumes."""

    def field_now(self) -> Any:
        """Return its field, a function of time and state."""
        ...

    def volume_rate(self, numbers: int) -> Tensor:
        """Return d log det/dt of a state of so many numbers."""
        ...


@runtime_checkable
class HasConserved(HasFlow, Protocol):
    """A flow along which something is conserved."""

    def conserved(self, state: Tensor) -> Tensor:
        """Return it for every state, (batch,)."""
        ...


@runtime_checkable
class HasPreservedForm(HasFlow, Protocol):
    """A flow that keeps a bilinear form."""

    def preserved_form(self) -> Tensor:
        """Return its matrix, (n, n)."""
        ...


@runtime_checkable
class HasAdjointBound(HasFlow, Protocol):
    """A flow that knows how much it can change the norm of a gradient."""

    flow: Any

    def adjoint_exponents(self, times: Tensor) -> Tensor:
        """Return the most by which log‖a‖ may change from each time to the end, (times,)."""
        ...


@runtime_checkable
class HasOrthogonalPath(HasFlow, Protocol):
    """A flow through orthogonal weights that flow themselves."""

    end_of_depth: float

    def weights_at(self, times: Tensor) -> Tensor:
        """Return the weights, (times, n, n)."""
        ...


@runtime_checkable
class HasSkewPath(HasFlow, Protocol):
    """A flow through skew matrices that flow themselves."""

    end_of_depth: float

    def skew_at(self, times: Tensor) -> Tensor:
        """Return the matrices, (times, n, n)."""
        ...


@runtime_checkable
class HasBoundedPath(HasFlow, Protocol):
    """A flow whose parameters flow at a bounded rate."""

    end_of_depth: float

    def path_at(self, times: Tensor) -> Tensor:
        """Return the parameters, (times, …)."""
        ...

    def path_rate(self) -> float:
        """Return how fast any of them may change."""
        ...


@runtime_checkable
class HasDampedFlow(HasFlow, Protocol):
    """A flow of positions and momenta with a learned damping."""

    end_of_depth: float

    damping: Tensor

    def derivative(self, t: float, state: Tensor) -> Tensor:
        """Return the field."""
        ...


@runtime_checkable
class HasDensity(HasFlow, Protocol):
    """A flow that carries a density."""

    size: int

    def log_prob(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Return log p(x), (batch,)."""
        ...

    def base_log_prob(self, z: Tensor) -> Tensor:
        """Return the log-density where the flow ends, (batch,)."""
        ...


@runtime_checkable
class HasMethodSteps(Protocol):
    """A method of solution."""

    order: int

    def start(self, field: Any, t: Any, y: Tensor, /) -> tuple[Tensor, ...]:
        """Return what a solve begins with."""
        ...

    def step(self, field: Any, t: Any, h: Any, state: Any, /) -> tuple[Any, Any]:
        """Take a step."""
        ...


@runtime_checkable
class HasResidual(Protocol):
    """A method of solution with a correction of what its base leaves out."""

    order: int
    correction: Any
    base: Any

    def residual(self, field: Any, t: float, h: float, y: Tensor, exact: Tensor) -> Tensor:
        """Return what the base method leaves out of a step."""
        ...

    def step(self, field: Any, t: Any, h: Any, state: Any, /) -> tuple[Any, Any]:
        """Take a step."""
        ...


# Models of motion


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


# Models of relations


@runtime_checkable
class HasRelations(Protocol):
    """A model that answers from relations between the codes of its inputs."""

    features: int
    length: int | None

    def relations(self, codes: Tensor, /) -> Tensor:
        """Return all that an answer depends on, (batch, numbers)."""
        ...

    def decide(self, codes: Tensor, /) -> Tensor:
        """Return the answers (batch, output) to codes (time, batch, features)."""
        ...
