"""What a flow over depth, or a solver, has to show, so that its promises can be measured."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class HasLayers(Protocol):
    """A stack of layers, each a step of an ODE on a pair of states."""

    size: int
    depth: int

    def step(self, layer: int, pair: Any, own: Any = None, /) -> tuple[Tensor, ...]:
        """Apply a layer."""
        ...

    def undo(self, layer: int, pair: Any, own: Any = None, /) -> tuple[Tensor, ...]:
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

    def carry(self, state: Tensor, given: Any = None) -> Tensor:
        """Return where they end."""
        ...

    def carry_back(self, state: Tensor, given: Any = None) -> Tensor:
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
class HasKeptForm(HasFlow, Protocol):
    """A flow that keeps a bilinear form."""

    def kept_form(self) -> Tensor:
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
