"""What implicit methods have in common: the equations of their stages are solved and differentiated
in the same way, by the methods that have one matrix per stage and by those that have one for all.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import SolveError
from undamped._base.options import PositiveInt
from undamped._base.promises import Kind, Promise
from undamped.ode.methods.combine import Row
from undamped.ode.methods.implicit.band import Band
from undamped.ode.methods.implicit.convergence import ONE_LANE, Convergence
from undamped.ode.methods.implicit.linearization import Jacobian, LinearAlgebra, Linearization
from undamped.ode.methods.implicit.stage_equations import StageEquations
from undamped.ode.methods.solver import Field, Number, Solver, SolverState, Stepper, StepResult
from undamped.ode.methods.stage_times import stage_times

A_STABLE = (Promise(Kind.A_STABLE, "what decays does not grow, whatever the step size"),)
L_STABLE = (*A_STABLE, Promise(Kind.L_STABLE, "what decays at once is gone after a step"))


@dataclass
class Attempt:
    """A step being solved, every system a row.

    Args:
        t: Time at its start.
        h: Step size: a number, or a column like the state's.
        y: State at its start.
        line: The linearized field: its derivative and factors.
        weights: What a correction is multiplied by to be in units of the tolerance,
            (systems, size).
        kappa: Fraction of the tolerance that the equations may leave.
        iterations: Number of corrections allowed.
        factor: How fast corrections shrank before, for each lane.
        initial: f at the start, once it was evaluated.
        last: Stages of the step before, (stages, systems, size).
        ratio: Size of this step over that of the one before, for each lane.
    """

    t: Number
    h: Number
    y: Tensor
    line: Linearization
    weights: Tensor
    kappa: float
    iterations: int
    factor: np.ndarray
    initial: Tensor | None
    last: Tensor | None = None
    ratio: np.ndarray | None = None

    def __post_init__(self) -> None:
        lanes = self.line.lanes
        self.used = np.zeros(lanes, dtype=np.int64)
        self.rate = np.zeros(lanes)
        self.ok = np.ones(lanes, dtype=bool)
        self.rows = self.line.systems.rows(self.y)
        """The state, (systems, size)."""
        self.row_h: float | Tensor = (
            self.h if not isinstance(self.h, Tensor) else (self.h.reshape(-1, 1).to(self.y.dtype))
        )
        """The step size for rows, (systems, 1) where it is not one number."""

    def times(self, nodes: tuple[float, ...]) -> Sequence[Tensor]:
        """Return the times at fractions of the step."""
        return stage_times(self.t, self.h, nodes, self.y)

    def first_slope(self) -> Tensor:
        """Return f at the start of the step, as rows."""
        if self.initial is None:
            self.initial = self.line.field(self.times((0.0,))[0], self.y)
        return self.line.systems.rows(self.initial)

    def slope(self, time: Tensor, change: Tensor) -> Tensor:
        """Return f at the start of the step plus a change, as rows."""
        systems = self.line.systems
        return systems.rows(self.line.field(time, systems.state(self.rows + change)))

    def correct(
        self,
        stages: Tensor,
        residual: Callable[[Tensor], Tensor],
        solve: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """Return stages with corrections added until they converge or fail.

        Args:
            stages: Where to begin, (…, systems, size).
            residual: What the equations leave at some stages, of the same shape.
            solve: Solves the linearized equations for a residual.
        """
        convergence = Convergence(
            self.weights, self.kappa, self.iterations, self.line.lanes, self.factor
        )
        while convergence.under_way:
            correction = solve(residual(stages))
            lanes = convergence.look(correction)
            if lanes is ONE_LANE or lanes.all():
                stages = stages + correction
            else:
                mask = torch.from_numpy(lanes).to(stages.device).unsqueeze(1)
                stages = torch.where(mask, stages + correction, stages)
        self._finish(convergence)
        return stages

    def _finish(self, convergence: Convergence) -> None:
        """Record how equations were solved; a lane that failed here failed altogether."""
        converged = convergence.converged
        if self.line.lanes == 1:
            self.factor = convergence.factor if converged[0] else self.factor
            self.used[0] = max(self.used[0], convergence.iterations[0])
            self.rate[0] = max(self.rate[0], convergence.rate[0])
            self.ok[0] = self.ok[0] and converged[0]
            return
        self.factor = np.where(converged, convergence.factor, self.factor)
        self.used = np.maximum(self.used, convergence.iterations)
        self.rate = np.maximum(self.rate, convergence.rate)
        self.ok &= converged


class ImplicitMethod(Solver):
    """A method whose steps solve equations for stages z_i, changes from the start of the step.

    Args:
        newton_iterations: Corrections allowed in each system of equations.
        krylov_dimension: Vectors kept by GMRES, for systems beyond `dense_size`.
        dense_size: Largest system for which the derivative is formed as a matrix.
        jacobian: ∂f/∂y as a function of (t, y): (batch, size, size), or one matrix for the whole
            state. By default it is computed from the field.
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
    looks_twice: ClassVar[bool] = False
    """Whether an error estimate that is too large can be computed more precisely."""

    def __init__(
        self,
        newton_iterations: PositiveInt = 7,
        krylov_dimension: PositiveInt = 60,
        dense_size: PositiveInt = 512,
        jacobian: Jacobian | None = None,
        band: tuple[int, int] | None = None,
    ) -> None:
        self.newton_iterations = newton_iterations
        self.krylov_dimension = krylov_dimension
        self.dense_size = dense_size
        self.jacobian = jacobian
        self.band = Band.read(band)
        self.algebra = LinearAlgebra(jacobian, dense_size, krylov_dimension, self.band)

    def for_another_field(self) -> ImplicitMethod:
        """Return the method without the derivative of a particular field."""
        return type(self)(self.newton_iterations, self.krylov_dimension, self.dense_size)

    @abstractmethod
    def solve_stages(self, attempt: Attempt, start: Tensor | None) -> Tensor:
        """Return the stages, (stages, systems, size); `start` holds approximate ones, or None."""

    @abstractmethod
    def combine(
        self,
        y: Tensor,
        stages: Tensor,
        first: Callable[[], Tensor],
        attach: Callable[[Tensor, int, tuple[Row, ...], Tensor | None], Tensor],
    ) -> Tensor:
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
            return StageEquations(field, at, size, matrix, base, y, self.algebra, band).attach(z)

        return self.combine(y, stages, lambda: field(times[0], y) * size, attach)

    def points(self, y: Tensor, stages: Tensor) -> list[tuple[float, float, Tensor]]:
        """Return weights, nodes and states by which the method integrates along a step.

        Args:
            y: State at the start.
            stages: The solved stages, (stages, …).
        """
        states = [y + z for z in stages.unbind()]
        points = zip(self.weights, self.nodes, states, strict=True)
        return [point for point in points if point[0] != 0]

    def last_slope(self, attempt: Attempt, stages: Tensor) -> Tensor | None:
        """Return h f at the end of the step, (systems, size), where the stages determine it better.

        An evaluation there would hold what the equations left unsolved times the fastest rate of
        the field. None where that does not matter.
        """
        return None

    def estimate(self, attempt: Attempt, stages: Tensor, change: Tensor | None) -> Tensor | None:
        """Return the error estimate, as rows.

        Args:
            attempt: The step.
            stages: Its stages, (stages, systems, size).
            change: A first estimate of the error, where it was large and a second one is worth an
                evaluation; only for a method that `looks_twice`.
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
        from undamped.ode.methods.implicit.stepper import ImplicitStepper

        stepper = ImplicitStepper(self, field, state[0], None)
        y1 = stepper.attempt(t, h)
        if not stepper.converged:
            raise SolveError(
                f"The equations of a step with '{self.name}' did not converge when it was repeated "
                "for its gradient. Take smaller steps (max_step, or a smaller rtol), or choose "
                "gradient='backprop', which repeats nothing."
            )
        return (y1,), []

    def stepper(self, field: Field, t: Number, y: Tensor, first: Tensor | None) -> Stepper:
        """Return the stepper that keeps derivative and factors."""
        from undamped.ode.methods.implicit.stepper import ImplicitStepper

        return ImplicitStepper(self, field, y, first)
