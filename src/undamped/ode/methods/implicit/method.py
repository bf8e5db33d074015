"""The base of implicit methods.

The equations of their stages are solved and differentiated in the same way by methods that have one
matrix per stage and by those that have one for all.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from undamped._base.errors import SolveError
from undamped._base.options import PositiveInt
from undamped._base.promises import Kind, Promise
from undamped.ode.methods.implicit.band import Band
from undamped.ode.methods.implicit.linearization import Jacobian
from undamped.ode.methods.implicit.local_field import Systems
from undamped.ode.methods.implicit.newton import Attempt
from undamped.ode.methods.implicit.stage_equations import StageEquations
from undamped.ode.methods.implicit.stepper import ImplicitStepper
from undamped.ode.methods.solver import Field, Number, Solver, SolverState, StepResult
from undamped.ode.methods.stages import Row, stage_times

A_STABLE = (Promise(Kind.A_STABLE, "what decays does not grow, whatever the step size"),)
L_STABLE = (*A_STABLE, Promise(Kind.L_STABLE, "what decays at once is gone after a step"))
First = Callable[[], Tensor]
Attach = Callable[[Tensor, int, tuple[Row, ...], Tensor | None], Tensor]
MOST_NUMBERS = 1 << 26
"""Numbers in all matrices of a batch, beyond which none is formed."""


class ImplicitMethod(Solver):
    """A method whose steps solve equations for stages z_i, changes from the start of the step.

    Args:
        newton_iterations: Corrections allowed in each system of equations.
        krylov_dimension: Vectors of GMRES, for systems beyond `dense_size`.
        dense_size: Largest system for which the derivative is formed as a matrix.
        jacobian: ∂f/∂y as a function of (t, y): (batch, size, size), or one matrix for the
            complete state. By default it is computed from the field.
        band: Number of nonzero diagonals of ∂f/∂y below and above the main one. By default a band
            is detected in systems up to `dense_size`.
    """

    implicit = True
    per_sample = True
    nodes: ClassVar[Row]
    """Where in a step its stages lie."""
    weights: ClassVar[Row]
    """The b."""
    shifts: ClassVar[tuple[complex, ...]]
    """The μ of its linear systems (μ − h J) x = r."""
    stiffly_accurate: ClassVar[bool]
    """Whether the last stage is the state at the end."""
    estimates_twice: ClassVar[bool] = False
    """Whether an error estimate that is too large can be computed more precisely."""

    def __init__(
        self,
        newton_iterations: PositiveInt = 7,
        krylov_dimension: PositiveInt = 60,
        dense_size: PositiveInt = 512,
        jacobian: Jacobian | None = None,
        band: tuple[int, int] | None = None,
    ) -> None:
        self.newton_iterations, self.krylov_dimension = newton_iterations, krylov_dimension
        self.dense_size, self.jacobian, self.band = dense_size, jacobian, Band.read(band)

    def for_another_field(self) -> ImplicitMethod:
        """Return the method without the derivative of a particular field."""
        return type(self)(self.newton_iterations, self.krylov_dimension, self.dense_size)

    def forms_full(self, systems: Systems) -> bool:
        """Whether full matrices are formed, where they have to be."""
        return systems.size <= self.dense_size and systems.count * systems.size**2 <= MOST_NUMBERS

    @abstractmethod
    def solve_stages(self, attempt: Attempt, start: Tensor | None) -> Tensor:
        """Return the stages, (stages, systems, size); `start` holds approximate ones, or None."""

    @abstractmethod
    def combine(self, y: Tensor, stages: Tensor, first: First, attach: Attach) -> Tensor:
        """Return the state at the end of a step from its solved stages.

        Args:
            y: State at the start.
            stages: The stages, (stages, …), without a graph.
            first: Returns h f at the first stage time and y.
            attach: Returns solved stages as functions of everything in their equations, from the
                stages, the index of the first, their matrix and what does not depend on them.
        """

    def end(
        self,
        field: Field,
        t: Number,
        h: Number,
        y: Tensor,
        stages: Tensor,
        band: Band | None = None,
    ) -> Tensor:
        """Return the state at the end of the step; where gradients are on, differentiably.

        Args:
            field: The field.
            t: Time at the start.
            h: Step size.
            y: State at the start.
            stages: The solved stages, (stages, …), without a graph.
            band: The diagonals of ∂f/∂y that they were solved with, if any.
        """
        graph = torch.is_grad_enabled()
        if not graph and self.stiffly_accurate:
            return y + stages[-1]
        times = stage_times(t, h, self.nodes, y)
        size = h.to(y.dtype) if isinstance(h, Tensor) else h  # columns are in double precision

        def attach(z: Tensor, index: int, matrix: tuple[Row, ...], base: Tensor | None) -> Tensor:
            if not graph:
                return z
            at = times[index : index + len(z)]
            return StageEquations(field, at, size, matrix, base, y, self, band).attach(z)

        return self.combine(y, stages, lambda: field(times[0], y) * size, attach)

    def last_slope(self, attempt: Attempt, stages: Tensor) -> Tensor | None:
        """Return h f at the end of the step, (systems, size), where the stages determine it better.

        An evaluation there would multiply the residual of the equations by the fastest rate of the
        field. None where that does not matter.
        """
        return None

    def estimate(self, attempt: Attempt, stages: Tensor, change: Tensor | None) -> Tensor | None:
        """Return the error estimate, as rows.

        Args:
            attempt: The step.
            stages: Its stages, (stages, systems, size).
            change: A first estimate of the error, where it was large and a second estimate may
                be smaller; only for a method that `estimates_twice`.
        """
        return None

    def step(self, field: Field, t: Number, h: Number, state: SolverState) -> StepResult:
        """Solve the equations of one step to rounding."""
        stepper = self.stepper(field, t, state[0], None)
        y1 = stepper.attempt(t, h)
        return (y1,), stepper.error().view(y1.shape) if self.adaptive else None

    def replay(
        self, field: Field, t: Number, h: Number, state: SolverState, inside: Sequence[float] = ()
    ) -> tuple[SolverState, list[Tensor]]:
        """Repeat a step, without its error estimate."""
        stepper = self.stepper(field, t, state[0], None)
        y1 = stepper.attempt(t, h)
        if not stepper.converged:
            raise SolveError(
                f"The equations of a step with '{self.name}' did not converge when it was repeated "
                "for its gradient. Take smaller steps (max_step, or a smaller rtol), or choose "
                "gradient='backprop', which repeats nothing."
            )
        return (y1,), []

    def stepper(self, field: Field, t: Number, y: Tensor, first: Tensor | None) -> ImplicitStepper:
        """Return the stepper that reuses derivative and factors."""
        return ImplicitStepper(self, field, y, first)
