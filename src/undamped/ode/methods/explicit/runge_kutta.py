"""Explicit Runge–Kutta: the plain step, and a stepper with little cost beyond the field.

Times and step sizes are plain numbers, so nothing waits for a device except one norm per step;
stage times are made for many steps at once; on the CPU the error norm and, without a graph
through them, the stage values are one compiled pass each (`kernels.runge_kutta_sums`); and the last
evaluation of a step is the first of the next. The following was slower with a graph: all stages in
one matrix with a product for each stage value, for its copies and views; transposed sums written by
hand with a separate graph for each evaluation, and sums as separate autograd functions, for the
cost of entering autograd from Python at every stage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped._base.registry import solvers
from undamped._base.torch_internals import forward_mode_open
from undamped.kernels.dispatch import implementation
from undamped.ode.loop.norm import ErrorNorm
from undamped.ode.methods.solver import Field, Number, Solver, SolverState, Stepper, StepResult
from undamped.ode.methods.stages import (
    StageClock,
    Tableau,
    Terms,
    combine,
    combine_terms,
    stage_times,
)

if TYPE_CHECKING:
    from undamped.kernels.runge_kutta_sums import WeightedSums
    from undamped.ode.loop.norm import ErrorNorm


def compiled_sums(y: Tensor) -> CompiledSums | None:
    """Return the sums for states like y, or None where no kernel takes them."""
    if torch.compiler.is_compiling() or implementation(y) != "numba" or not y.is_contiguous():
        return None
    if forward_mode_open():  # a kernel would lose the tangents
        return None
    from undamped.kernels.runge_kutta_sums import WeightedSums

    return CompiledSums(WeightedSums(y))


class CompiledSums:
    """Stage values and error norms of the steps of one solve.

    Every value of the field is checked: a step with a value of another type, or one that is not
    contiguous, is summed by torch, as is every step with a graph.

    Args:
        kernel: The sums.
    """

    def __init__(self, kernel: WeightedSums) -> None:
        self._kernel = kernel
        self._fit, self._count = True, 0

    def __call__(self, y: Tensor, h: Any, terms: Terms, stages: list[Tensor]) -> Tensor:
        """Return y + h Σ a_j k_j without a graph; called after every stage."""
        count = len(stages)
        if count == 1:
            self._count = 0
        if self._fit and 0 < self._count == count - 1:
            # The stage before this one was accepted: all in one call.
            self._count, total = count, self._kernel.add(h, terms.row, stages[-1])
            self._fit = total is not None
            if total is not None:
                return total
        elif self._fits(y, stages):
            return self._kernel.add(h, terms.row)
        return combine_terms(y, h, terms, stages)

    def restart(self) -> None:
        """Begin a step whose stages are added up elsewhere, or a norm between steps."""
        self._count = 0

    def _fits(self, y: Tensor, stages: Sequence[Tensor]) -> bool:
        """Pass new stages to the kernel; return whether it takes everything in this step."""
        if not self._count:
            self._fit = self._kernel.begin(y)
        while self._fit and self._count < len(stages):
            self._fit = self._kernel.take(stages[self._count])
            self._count += 1
        return self._fit

    def norm(
        self,
        ends: tuple[Tensor, Tensor],
        h: Any,
        terms: Terms,
        stages: Sequence[Tensor],
        norm: ErrorNorm | None,
    ) -> float | None:
        """Return the norm of h Σ a_j k_j in units of the tolerance; None if torch must compute it.

        Args:
            ends: The states between which the tolerance is measured.
            h: Step size.
            terms: The a_j.
            stages: The k_j.
            norm: The tolerance; None for a root mean square.
        """
        if not self._fits(ends[0], stages) or not (norm is None or norm.compiled):
            return None
        if norm is None:
            return self._kernel.error(ends[1], h, terms.row, 0.0, 1.0)
        return self._kernel.error(ends[1], h, terms.row, *norm.uniform, norm.leading)


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
            last: Whether to evaluate f at the end too.
            add: What adds up stage values; `combine_terms` by default.
            clock: What makes the times of the stages, for `all_nodes` of the tableau.
        """
        tableau, add = self.tableau, add or combine_terms
        times = clock(t, h) if clock else stage_times(t, h, tableau.all_nodes, y)
        slopes = [field(times[0], y) if first is None else first]
        for terms, time in zip(tableau.row_terms, times[1:], strict=False):
            slopes.append(field(time, add(y, h, terms, slopes)))
        y1 = add(y, h, tableau.weight_terms, slopes)
        if last and tableau.reuses_last:
            slopes.append(field(times[-1], y1))
        return y1, slopes

    def step(self, field: Field, t: Number, h: Number, state: SolverState) -> StepResult:
        y1, stages = self.stages(field, t, h, state[0], last=True)
        return (y1,), self.estimate(h, stages)

    def increment(self, field: Field, t: Number, h: Number, y: Tensor) -> Tensor:
        """Return y' − y without adding it up: what a reversible wrapper needs."""
        _, stages = self.stages(field, t, h, y)
        return combine(None, h, self.tableau.weights, stages)

    def estimate(self, h: Number, stages: Sequence[Tensor]) -> Tensor | None:
        """Return the error estimate of a step from its stages."""
        terms = self.tableau.error_terms
        return combine_terms(None, h, terms, stages) if terms else None

    def replay(
        self, field: Field, t: Number, h: Number, state: SolverState, inside: Sequence[float] = ()
    ) -> tuple[SolverState, list[Tensor]]:
        """Repeat a step, without the evaluation that only the estimate needed."""
        y = state[0]
        y1, stages = self.stages(field, t, h, y, last=bool(inside))
        weights = [self.tableau.inside_weights(fraction) for fraction in inside]
        return (y1,), [combine(y, h, row, stages) for row in weights]

    def repeat(self, field: Field, t: Number, h: Number, state: SolverState) -> SolverState:
        """Repeat a step with the sums that the stepper takes."""
        if isinstance(h, Tensor):
            return (self.stages(field, t, h, state[0])[0],)
        return (self.stepper(field, t, state[0], None).attempt(t, h),)

    def stepper(self, field: Field, t: Number, y: Tensor, first: Tensor | None) -> Stepper:
        """Return the stepper that reuses evaluations."""
        return RungeKuttaStepper(self, field, y, first)


def explicit_base(owner: str, name: str) -> RungeKutta:
    """Return the explicit method that another method is built on.

    Args:
        owner: Name of the other method.
        name: Registry name of the explicit one.
    """
    method = solvers[name]
    if not (isinstance(method, type) and issubclass(method, RungeKutta)):
        raise OptionError(
            f"base of '{owner}' must be an explicit Runge–Kutta method such as 'midpoint' or "
            f"'rk4', got '{name}'."
        )
    return method()


class RungeKuttaStepper(Stepper):
    """Runge–Kutta during one solve: the last evaluation of a step is the first of the next."""

    solver: RungeKutta

    def __init__(self, solver: RungeKutta, field: Field, y: Tensor, first: Tensor | None) -> None:
        self.solver, self.field, self.state = solver, field, (y,)
        self._first = first
        self._stages: list[Tensor] = []
        self._proposed = (y,)
        self._reuses = solver.tableau.reuses_last
        self._size: Number = 0.0
        self._sums = compiled_sums(y)
        self._clock = StageClock(solver.tableau.all_nodes, y)

    @property
    def first_slope(self) -> Tensor:
        """f where the last attempt began."""
        return self._stages[0]

    def attempt(self, t: Number, h: Number) -> Tensor:
        # Release the last step's stages, or the stages of two steps would be in memory.
        self._stages = []
        add = self._sums
        if add is not None and torch.is_grad_enabled():
            add.restart()
            add = None
        y1, stages = self.solver.stages(
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
        self._first, self._stages, self._proposed, self._size = stages[0], stages, (y1,), h
        return y1

    @torch.no_grad()
    def error(self) -> Tensor:
        """Return the error estimate, without a graph: step sizes count as constants."""
        estimate = self.solver.estimate(self._size, self._stages)
        assert estimate is not None
        return estimate

    def _norm(self, terms: Terms, h: Any, norm: ErrorNorm | None) -> float | None:
        """Return the norm of a sum of the stages by the kernel, or None."""
        if self._sums is None:
            return None
        ends = self.state[0], self._proposed[0]
        return self._sums.norm(ends, h, terms, self._stages, norm)

    def error_norm(self, norm: ErrorNorm) -> float:
        ratio = self._norm(self.solver.tableau.error_terms, self._size, norm)
        return super().error_norm(norm) if ratio is None else ratio

    def movement(self, norm: ErrorNorm, y1: Tensor) -> float:
        size = self._norm(self.solver.tableau.weight_terms, self._size, norm)
        return super().movement(norm, y1) if size is None else size

    def accept(self) -> None:
        self.state = self._proposed
        self._first = self._stages[-1] if self._reuses else None

    def restart(self) -> None:
        self._first = None

    def inside(self, h: float, fraction: float) -> Tensor:
        row = self.solver.tableau.inside_weights(fraction)
        return combine(self.state[0], h, row, self._stages)

    def measure(self, norm: ErrorNorm, y: Tensor, terms: Terms, parts: Sequence[Tensor]) -> float:
        size = None
        if self._sums is not None:
            self._sums.restart()
            size = self._sums.norm((y, y), 1.0, terms, parts, norm)
        return super().measure(norm, y, terms, parts) if size is None else size

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
        length = self._norm(terms, 1.0, None)
        if length is not None:
            return length
        total = combine_terms(None, 1.0, terms, self._stages)
        return torch.linalg.vector_norm(total).item() / math.sqrt(max(total.numel(), 1))
