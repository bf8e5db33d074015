"""Explicit Runge–Kutta: the plain step, and a stepper with little cost beyond the field.

Times and step sizes are plain numbers, so nothing waits for a device except one norm per step;
stage times are made for many steps at once; on the CPU the error norm and, without a graph
through them, the stage values are one compiled pass each (`kernels.runge_kutta_sums`); and the last
evaluation of a step is the first of the next. Tried and slower, with a graph: all stages in one
matrix with a product for each stage value, for its copies and views; sums transposed by hand with
a graph for each evaluation alone, and sums as autograd functions of their own, for what entering
autograd from Python costs at every stage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from undamped.ode.loop.norm import ErrorNorm
from undamped.ode.methods.combine import Terms, combine, combine_terms
from undamped.ode.methods.explicit.compiled_sums import compiled_sums
from undamped.ode.methods.explicit.tableau import Tableau
from undamped.ode.methods.solver import Field, Number, Solver, SolverState, Stepper
from undamped.ode.methods.stage_times import StageClock, stage_times


class RungeKutta(Solver):
    """Explicit Runge–Kutta with a tableau."""

    tableau: ClassVar[Tableau]
    per_sample = True

    def stages(
        self,
        field: Field,
        t: Number,
        h: Number,
        y: Tensor,
        *,
        first: Tensor | None = None,
        last: bool = False,
        add: Callable[[Tensor, Any, Terms, list[Tensor]], Tensor] | None = None,
        clock: StageClock | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the new value and the stages, differentiably.

        Args:
            field: The field.
            t: Time at the start; a column (batch, 1, …) where steps differ between samples.
            h: Step size, of the same kind as t.
            y: Value at the start.
            first: f(t, y), where it is known.
            last: Whether f at the end is wanted too.
            add: What adds up stage values; `combine_terms` by default.
            clock: What makes the times of the stages, for `all_nodes` of the tableau.
        """
        tableau, add = self.tableau, add or combine_terms
        times = clock(t, h) if clock else stage_times(t, h, tableau.all_nodes, y)
        taken = [field(times[0], y) if first is None else first]
        for terms, time in zip(tableau.row_terms, times[1:], strict=False):
            taken.append(field(time, add(y, h, terms, taken)))
        y1 = add(y, h, tableau.weight_terms, taken)
        if last and tableau.reuses_last:
            taken.append(field(times[-1], y1))
        return y1, taken

    def step(
        self, field: Field, t: Number, h: Number, state: SolverState
    ) -> tuple[SolverState, Tensor | None]:
        """Step, with an error estimate where the tableau has one."""
        y1, taken = self.stages(field, t, h, state[0], last=True)
        return (y1,), self.estimate(h, taken)

    def increment(self, field: Field, t: Number, h: Number, y: Tensor) -> Tensor:
        """Return y' − y without adding it up: what a reversible wrapper needs."""
        _, taken = self.stages(field, t, h, y)
        return combine(None, h, self.tableau.weights, taken)

    def estimate(self, h: Number, taken: Sequence[Tensor]) -> Tensor | None:
        """Return the error estimate of a step from its stages."""
        terms = self.tableau.error_terms
        return combine_terms(None, h, terms, taken) if terms else None

    def replay(
        self, field: Field, t: Number, h: Number, state: SolverState, inside: Sequence[float] = ()
    ) -> tuple[SolverState, list[Tensor]]:
        """Repeat a step, without the evaluation that only the estimate needed."""
        y = state[0]
        y1, taken = self.stages(field, t, h, y, last=bool(inside))
        weights = [self.tableau.inside_weights(fraction) for fraction in inside]
        return (y1,), [combine(y, h, row, taken) for row in weights]

    def repeat(self, field: Field, t: Number, h: Number, state: SolverState) -> SolverState:
        """Repeat a step with the sums that the stepper takes."""
        if isinstance(h, Tensor):
            return (self.stages(field, t, h, state[0])[0],)
        return (self.stepper(field, t, state[0], None).attempt(t, h),)

    def stepper(self, field: Field, t: Number, y: Tensor, first: Tensor | None) -> Stepper:
        """Return the stepper that reuses evaluations."""
        return RungeKuttaStepper(self, field, y, first)


class RungeKuttaStepper(Stepper):
    """Runge–Kutta during one solve: the last evaluation of a step is the first of the next."""

    solver: RungeKutta

    def __init__(self, solver: RungeKutta, field: Field, y: Tensor, first: Tensor | None) -> None:
        self.solver, self.field, self.state = solver, field, (y,)
        self._first = first
        self._taken: list[Tensor] = []
        self._proposed = (y,)
        self._reuses = solver.tableau.reuses_last
        self._size: Number = 0.0
        self._sums = compiled_sums(y)
        self._clock = StageClock(solver.tableau.all_nodes, y)

    @property
    def first_slope(self) -> Tensor:
        """f where the last attempt began."""
        return self._taken[0]

    def attempt(self, t: Number, h: Number) -> Tensor:
        """Attempt a step."""
        # Let go of the last step's stages, or two steps would hold theirs at once.
        self._taken = []
        add = self._sums
        if add is not None and torch.is_grad_enabled():
            add.restart()
            add = None
        y1, taken = self.solver.stages(
            self.field,
            t,
            h,
            self.state[0],
            first=self._first,
            last=True,
            add=add,
            clock=self._clock,
        )
        # A step that is refused and tried again starts from the same first evaluation.
        self._first, self._taken, self._proposed, self._size = taken[0], taken, (y1,), h
        return y1

    @torch.no_grad()
    def error(self) -> Tensor:
        """Return the error estimate: it steers step sizes, which are taken as given."""
        found = self.solver.estimate(self._size, self._taken)
        assert found is not None
        return found

    def error_norm(self, norm: ErrorNorm) -> float:
        """Return the same in units of the tolerance."""
        found = self._compiled(self.solver.tableau.error_terms, norm)
        return super().error_norm(norm) if found is None else found

    def movement(self, norm: ErrorNorm, y1: Tensor) -> float:
        """Return how far the last attempt went in units of the tolerance."""
        found = self._compiled(self.solver.tableau.weight_terms, norm)
        return super().movement(norm, y1) if found is None else found

    def _compiled(self, terms: Terms, norm: ErrorNorm) -> float | None:
        """Return the norm of h Σ a_j k_j by a kernel; None if torch has to find it."""
        if self._sums is None:
            return None
        y, y1 = self.state[0], self._proposed[0]
        return self._sums.error(y, y1, self._size, terms, self._taken, norm)

    def accept(self) -> None:
        """Keep the attempt."""
        self.state = self._proposed
        self._first = self._taken[-1] if self._reuses else None

    def restart(self) -> None:
        """Evaluate the first stage anew."""
        self._first = None

    def inside(self, h: float, fraction: float) -> Tensor:
        """Return the value at a fraction of the step."""
        row = self.solver.tableau.inside_weights(fraction)
        return combine(self.state[0], h, row, self._taken)

    def measure(self, norm: ErrorNorm, y: Tensor, terms: Terms, parts: Sequence[Tensor]) -> float:
        """Return the size of Σ a_j part_j in units of the tolerance at y."""
        found = None if self._sums is None else self._sums.measure(norm, y, terms, parts)
        return super().measure(norm, y, terms, parts) if found is None else found

    @torch.no_grad()
    def fastest_rate(self) -> float | None:
        """Compare the last stage with f at the end of the step; both belong to the same time."""
        pair = self.solver.tableau.end_pair
        if pair is None:
            return None
        slope, distance = (self._length(terms) for terms in pair)
        return slope / (abs(float(self._size)) * distance) if distance > 0 else None

    def _length(self, terms: Terms) -> float:
        """Return the root mean square of Σ a_j k_j."""
        found = None
        if self._sums is not None:
            found = self._sums.length(self.state[0], self._proposed[0], terms, self._taken)
        if found is not None:
            return found
        total = combine_terms(None, 1.0, terms, self._taken)
        return torch.linalg.vector_norm(total).item() / math.sqrt(max(total.numel(), 1))
