"""The Solver contract: what a method declares, and the two ways it is stepped.

`step` defines a method: it maps a state to a state, differentiably. A state is a tuple: the
solution first, then whatever else the method carries from step to step (a velocity, a second
copy). A `Stepper` is the same method during one solve, which may reuse buffers and the last
evaluation; it must agree with `step`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from torch import Tensor

from undamped._base.errors import OptionError
from undamped._base.registry import solvers
from undamped.ode.methods.stages import combine_terms

if TYPE_CHECKING:
    from undamped._base.promises import Promise
    from undamped.ode.loop.control import ControlMemory, StepControl
    from undamped.ode.loop.norm import ErrorNorm
    from undamped.ode.methods.stages import Terms

Field = Callable[[Any, Tensor], Tensor]
SolverState = tuple[Tensor, ...]
StepResult = tuple[SolverState, Tensor | None]
"""The state after a step, and an error estimate if the method has one."""
Number = float | Tensor
SolverClass = TypeVar("SolverClass", bound="type[Solver]")


class Solver(ABC):
    """One way of taking a step of dy/dt = f(t, y)."""

    name: ClassVar[str] = ""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Other names."""
    promises: ClassVar[tuple[Promise, ...]] = ()
    """What it claims besides its attributes."""
    order: int
    """Order p: the error of a solve over a fixed time shrinks as step size to the power p."""
    error_order: int | None = None
    """Order of the error estimate's companion; None means fixed steps only."""
    symmetric: ClassVar[bool] = False
    """A step forward and a step of the opposite size cancel."""
    symplectic: ClassVar[bool] = False
    """The Jacobian of a step keeps the symplectic form, for the Hamiltonian fields it is for."""
    needs_separable: ClassVar[bool] = False
    """It does so only where H = T(p) + V(q); other fields are stepped, but nothing is conserved."""
    doubles_state: ClassVar[bool] = False
    """It does so for two copies of the state together, and not for the one that is returned."""
    reversible: ClassVar[bool] = False
    """`reverse` undoes a step algebraically, to rounding."""
    phase_space: ClassVar[bool] = False
    """The halves of a state are positions and momenta, which are stepped alternately."""
    rotates: ClassVar[bool] = False
    """Steps are rotations, for fields that only rotate: dY/dt = Y b with b skew."""
    linear: ClassVar[bool] = False
    """For fields linear in the state alone."""
    implicit: ClassVar[bool] = False
    """Each step solves equations; meant for stiff fields."""
    switches: ClassVar[bool] = False
    """Steps are taken by one of several methods, depending on the field."""
    per_sample: ClassVar[bool] = False
    """Step sizes may differ from sample to sample."""
    dense: ClassVar[bool] = False
    """Values inside a step come from a polynomial, without further evaluations."""

    @property
    def adaptive(self) -> bool:
        """Whether the method estimates its error, so that step sizes can be chosen."""
        return self.error_order is not None

    def tensors(self) -> Sequence[Tensor]:
        """Return the trainable tensors of the method itself; most have none."""
        return ()

    def start(self, field: Field, t: Number, y: Tensor) -> SolverState:
        """Return the state at the start: the solution and what the method carries."""
        return (y,)

    @abstractmethod
    def step(self, field: Field, t: Number, h: Number, state: SolverState) -> StepResult:
        """Step from t to t + h; return the new state and an error estimate, if there is one."""

    def replay(
        self, field: Field, t: Number, h: Number, state: SolverState, inside: Sequence[float] = ()
    ) -> tuple[SolverState, list[Tensor]]:
        """Repeat a step that was accepted; also return the values at fractions `inside` of it."""
        assert not inside, f"{self.name} has no polynomial inside its steps"
        return self.step(field, t, h, state)[0], []

    def repeat(self, field: Field, t: Number, h: Number, state: SolverState) -> SolverState:
        """Repeat a step without a graph as the stepper took it, bit for bit where that can be."""
        return self.step(field, t, h, state)[0]

    def reverse(self, field: Field, t: Number, h: Number, state: SolverState) -> SolverState:
        """Undo the step from t to t + h that ended in `state`; by symmetry, unless overridden."""
        if self.reversible and self.symmetric:
            return self.step(field, t + h, -h, state)[0]
        raise OptionError(
            f"'{self.name}' is not reversible. Choose 'reversible-heun' or 'alf', or wrap an "
            "explicit method: McCallumFoster(base='rk4')."
        )

    def stepper(self, field: Field, t: Number, y: Tensor, first: Tensor | None) -> Stepper:
        """Return the method ready for one solve.

        Args:
            field: The field.
            t: Start time.
            y: Start value.
            first: f(t, y), where it is available.
        """
        return Stepper(self, field, t, y)


class Stepper:
    """A method during one solve: attempt a step, then accept it or attempt another."""

    def __init__(self, solver: Solver, field: Field, t: Number, y: Tensor) -> None:
        self.solver = solver
        self.field = field
        self.state = solver.start(field, t, y)
        self._proposed = self.state
        self._error: Tensor | None = None

    @property
    def active(self) -> Stepper:
        """The stepper in use, where a method has several."""
        return self

    def memory(self, control: StepControl, norm: ErrorNorm) -> ControlMemory:
        """Return what chooses step sizes in a solve to this tolerance."""
        from undamped.ode.loop.control import ControlMemory

        assert self.solver.error_order is not None
        return ControlMemory(control, self.solver.error_order)

    def attempt(self, t: Number, h: Number) -> Tensor:
        """Return the solution at t + h, without accepting it."""
        self._proposed, self._error = self.solver.step(self.field, t, h, self.state)
        return self._proposed[0]

    def error(self) -> Tensor:
        """Return the error estimate of the last attempt, of a method that has one."""
        assert self._error is not None
        return self._error.detach()

    def error_norm(self, norm: ErrorNorm) -> float:
        """Return the same in units of the tolerance."""
        return norm(self.error(), self.state[0].detach(), self._proposed[0].detach())

    def movement(self, norm: ErrorNorm, y1: Tensor) -> float:
        """Return the size of the last attempt's change, to y1, in units of the tolerance."""
        y, y1 = self.state[0].detach(), y1.detach()
        return norm(y1 - y, y, y1)

    def accept(self) -> None:
        """Accept the last attempt."""
        self.state = self._proposed

    def restart(self) -> None:
        """Forget evaluations of earlier steps: the field jumps here."""
        return

    def inside(self, h: float, fraction: float) -> Tensor:
        """Return the solution at a fraction of the step last attempted, before accepting it."""
        raise NotImplementedError

    def measure(self, norm: ErrorNorm, y: Tensor, terms: Terms, parts: Sequence[Tensor]) -> float:
        """Return the size of Σ a_j part_j in units of the tolerance at y; no graph on any."""
        return norm(combine_terms(None, 1.0, terms, parts), y, y)

    def fastest_rate(self) -> float | None:
        """Return how fast the field changes, from two stages at the end of the last attempt.

        The ratio of the differences in f and in y sees the fastest mode of the field: it is the
        estimate of stiffness. None where there are no two stages at one time.
        """
        return None

    def note_rate(self, rate: float | None) -> None:
        """Take a measured rate of the field at the last attempt into account."""
        return


def register_solver(name: str) -> Callable[[SolverClass], SolverClass]:
    """Return a decorator that names a solver class and enters it in the registry."""

    def enter(solver: SolverClass) -> SolverClass:
        solver.name = name
        return solvers.register(name)(solver)

    return enter
