"""What implicit methods have in common: equations of stages, solved and differentiated alike."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import SolveError, explain
from undamped._base.options import PositiveInt
from undamped.ode.methods.implicit.band import Band
from undamped.ode.methods.implicit.convergence import ONE_LANE, Convergence
from undamped.ode.methods.implicit.linearization import (
    Jacobian,
    LinearAlgebra,
    Linearization,
)
from undamped.ode.methods.solver import Field, Number, Solver, SolverState, Stepper
from undamped.ode.methods.stage_times import stage_times


@dataclass
class Attempt:
    """A step being solved, every system a row.

    Args:
        t: Time at its start.
        h: Step size: a number, or a column like the state's.
        y: State at its start.
        line: The derivative and its factors.
        weights: What makes units of the tolerance of a correction, (systems, size).
        kappa: Part of the tolerance that the equations may leave.
        iterations: Corrections allowed.
        known: How fast corrections shrank before, for each lane.
        initial: f at the start, once it is known.
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
    known: np.ndarray
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

    def corrections(self) -> Convergence:
        """Begin to watch the corrections of some equations."""
        return Convergence(self.weights, self.kappa, self.iterations, self.line.lanes, self.known)

    def finish(self, seen: Convergence) -> None:
        """Take down how equations were solved; a lane that failed here failed altogether."""
        if self.line.lanes == 1:
            self.known = seen.factor if seen.done[0] else self.known
            self.used[0] = max(self.used[0], seen.iterations[0])
            self.rate[0] = max(self.rate[0], seen.rate[0])
            self.ok[0] = self.ok[0] and seen.done[0]
            return
        self.known = np.where(seen.done, seen.factor, self.known)
        self.used = np.maximum(self.used, seen.iterations)
        self.rate = np.maximum(self.rate, seen.rate)
        self.ok &= seen.done

    @staticmethod
    def added(lanes: np.ndarray, stages: Tensor, correction: Tensor) -> Tensor:
        """Return rows, (…, systems, size), with a correction added for some lanes."""
        if lanes is ONE_LANE or lanes.all():
            return stages + correction
        mask = torch.from_numpy(lanes).to(stages.device).unsqueeze(1)
        return torch.where(mask, stages + correction, stages)


class ImplicitMethod(Solver):
    """A method whose steps solve equations for stages z_i, changes from the start of the step.

    Args:
        newton_iterations: Corrections allowed in each system of equations.
        krylov_dimension: Vectors kept by GMRES, for systems beyond `dense_size`.
        dense_size: Largest system for which the derivative is formed as a matrix.
        jacobian: ∂f/∂y as a function of (t, y), if it is known: (batch, size, size), or one matrix
            for the whole state. By default it is taken from the field.
        band: How many diagonals of ∂f/∂y below and above the main one are not zero, if it is known.
            By default a band is looked for in systems up to `dense_size`.
    """

    implicit = True
    per_sample = True
    nodes: ClassVar[tuple[float, ...]]
    """Where in a step its stages lie."""
    shifts: ClassVar[tuple[complex, ...]]
    """The μ of its linear systems (μ − h J) x = r."""
    looks_twice: ClassVar[bool] = False
    """Whether an error estimate that is too large can be had more precisely."""

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
        """Return the method without what is known of one field's derivative."""
        return type(self)(self.newton_iterations, self.krylov_dimension, self.dense_size)

    @abstractmethod
    def solve_stages(self, attempt: Attempt, start: Tensor | None) -> Tensor:
        """Return the stages, (stages, systems, size); `start` holds them roughly, if known."""

    @abstractmethod
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
            band: The diagonals of ∂f/∂y that they were solved with, if they were.
        """

    @abstractmethod
    def points(self, y: Tensor, stages: Tensor) -> list[tuple[float, float, Tensor]]:
        """Return weights, nodes and states by which the method integrates along a step.

        Args:
            y: State at the start.
            stages: The solved stages, (stages, …).
        """

    def last_slope(self, attempt: Attempt, stages: Tensor) -> Tensor | None:
        """Return h f at the end of the step, (systems, size), where the stages know it better.

        Evaluated anew, f holds what the equations left unsolved times the fastest rate of the
        field. None where that does not matter.
        """
        return None

    def estimate(self, attempt: Attempt, stages: Tensor, change: Tensor | None) -> Tensor | None:
        """Return the error estimate, as rows.

        Args:
            attempt: The step.
            stages: Its stages, (stages, systems, size).
            change: A first estimate of the error, where it was large and a second look is worth an
                evaluation; only of a method that `looks_twice`.
        """
        return None

    def step(
        self, field: Field, t: Number, h: Number, state: SolverState
    ) -> tuple[SolverState, Tensor | None]:
        """Solve the equations of one step to rounding."""
        from undamped.ode.methods.implicit.stepper import ImplicitStepper

        stepper = ImplicitStepper(self, field, state[0], None)
        stepper.attempt(t, h)
        error = stepper.error().view(state[0].shape) if self.adaptive else None
        return stepper.proposed, error

    def replay(
        self, field: Field, t: Number, h: Number, state: SolverState, inside: Sequence[float] = ()
    ) -> tuple[SolverState, list[Tensor]]:
        """Repeat a step, without its error estimate."""
        from undamped.ode.methods.implicit.stepper import ImplicitStepper

        stepper = ImplicitStepper(self, field, state[0], None)
        stepper.attempt(t, h)
        if stepper.made is None or not stepper.made.ok.all():
            raise SolveError(
                explain(
                    f"the gradient of a step with '{self.name}'",
                    expected="its equations solved to rounding when the step is repeated",
                    got="corrections that do not converge",
                    remedy="Take smaller steps (max_step, or a smaller rtol), or "
                    "gradient='backprop', which repeats nothing.",
                )
            )
        return stepper.proposed, []

    def stepper(self, field: Field, t: Number, y: Tensor, first: Tensor | None) -> Stepper:
        """Return the stepper that keeps derivative and factors."""
        from undamped.ode.methods.implicit.stepper import ImplicitStepper

        return ImplicitStepper(self, field, y, first)
