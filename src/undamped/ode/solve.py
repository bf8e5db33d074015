"""Solve an initial value problem, at once or step by step, and report what it took."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar

import torch
from torch import Tensor

from undamped._base.errors import NonFiniteError, OptionError, SolveError
from undamped._base.options import convert
from undamped._base.registry import gradients
from undamped.kernels.dispatch import inside_transform
from undamped.ode.field import CountedField, all_finite
from undamped.ode.gradients.refused import refuse_vmap
from undamped.ode.loop.batch import Integration
from undamped.ode.loop.dense import DenseOutput, SampleDenseOutput
from undamped.ode.loop.events import Event, EventFunction
from undamped.ode.methods.explicit.runge_kutta import RungeKutta
from undamped.ode.methods.solver import Solver
from undamped.ode.problem import Problem, run_problem
from undamped.ode.record import Failure, Run, RunOptions, Solution, Status
from undamped.ode.settings import (
    Gradient,
    Settings,
    Steps,
    choose_solver,
    read_settings,
    refuse_conflicts,
)
from undamped.ode.state.packing import Packing
from undamped.ode.state.times import Times, read_times, shift_outputs, shift_start

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
OnFailure = Literal["raise", "return"]


def uncompiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Return a function that a compiler calls without compiling it.

    The compiler is imported only while it is compiling, since that takes seconds.
    """

    @wraps(function)
    def call(*arguments: Arguments.args, **keywords: Arguments.kwargs) -> Result:
        if torch.compiler.is_compiling():
            eager: Any = torch.compiler.disable(function)
            return eager(*arguments, **keywords)
        return function(*arguments, **keywords)

    return call


Tolerance = float | Tensor | Sequence[Any] | None


@dataclass(frozen=True)
class MethodOptions:
    """A method with its tolerances and settings, for a solve or for its adjoint.

    Args:
        method: The method.
        rtol: Relative tolerance, or None for the default.
        atol: Absolute tolerance, or None for the default.
        options: Further settings by name.
    """

    method: Solver
    rtol: Tolerance = None
    atol: Tolerance = None
    options: dict[str, Any] | None = None

    def read(self, packing: Packing, like: Tensor) -> tuple[Solver, Settings]:
        """Return the method and its settings."""
        options = {} if self.options is None else self.options
        return self.method, read_settings(self.method, self.rtol, self.atol, options, packing, like)


@uncompiled
def solve(
    field: Callable[[Any, Any], Any],
    y0: Any,
    t: Times,
    *,
    method: str | Solver = "dopri5",
    rtol: Tolerance = None,
    atol: Tolerance = None,
    options: dict[str, Any] | None = None,
    gradient: Gradient = "checkpoint",
    parameters: Sequence[Tensor] = (),
    steps: Steps = "batch",
    compact: bool = False,
    event: Callable[[Any, Any], Tensor] | Event | None = None,
    dense: bool = False,
    on_failure: OnFailure = "raise",
    fall_back: bool = False,
    backward: MethodOptions | None = None,
) -> Solution:
    """Solve dy/dt = field(t, y) from y0 at t[0], and report.

    Args:
        field: f(t, y) → dy/dt; t is a tensor without dimensions, or (batch, 1, …) when samples
            have their own steps.
        y0: A tensor of any shape, or a tuple of tensors.
        t: Output times, the start first; increasing or decreasing. (outputs, batch) gives every
            sample its own times. Gradients reach them.
        method: A registry name or a solver.
        rtol: Relative tolerance, 1e-7 by default; for methods that choose their steps. A tensor
            that broadcasts to the state sets one tolerance per number, a tuple one per tensor.
        atol: Absolute tolerance, 1e-9 by default, likewise.
        options: Further settings by name: step_size, first_step, max_step, max_steps,
            checkpoint_steps, control and norm, as in `undamped.ode.Settings`.
        gradient: `checkpoint` recomputes recorded steps in segments (exact); `backprop` stores
            the complete graph, so that gradients of gradients work; `adjoint` solves the adjoint
            equation back in time; `reversible` undoes the steps of a reversible method (exact,
            memory independent of their number).
        parameters: Tensors the field depends on that were computed from others; leaves and the
            parameters of a module need not be named.
        steps: One step size for the batch, or one for every sample.
        compact: With steps for every sample, evaluate the field only for unfinished samples.
        event: A function of (t, y) that returns a number or a truth value; the solve ends where
            its sign changes. With a step size for every sample it returns one number per sample,
            each of which ends at its event. Gradients of the event's time reach the parameters of
            the function. An `undamped.ode.Event` also sets which changes of sign count, and
            whether the solve ends there. With an event that ends it, the last time may be
            infinite.
        dense: Whether to store the solution as a function of time; of one time per sample where
            samples have their own steps. Its values have gradients with gradient='backprop'.
        on_failure: Raise a `SolveError` that carries the partial solution, or return it.
        fall_back: Whether to back-propagate where the gradient method is not possible.
        backward: Method and settings of the adjoint equation, where they differ.

    Example:
        >>> solution = solve(lambda t, y: -y, torch.ones(3), [0.0, 1.0], rtol=1e-6, atol=1e-8)
        >>> solution.evaluations, solution.values[-1]
    """
    for kind, value, name in (
        (Gradient, gradient, "gradient"),
        (Steps, steps, "steps"),
        (OnFailure, on_failure, "on_failure"),
    ):
        convert(kind, value, name)
    packing = Packing.of(y0)
    start = packing.pack(y0, "the start")
    solver, settings = MethodOptions(choose_solver(method), rtol, atol, options).read(
        packing, start
    )
    times = read_times(t, start, open_end=event is not None)
    per_sample = steps == "sample" or times.dim() == 2
    if event is not None:
        event = event if isinstance(event, Event) else Event(event)
    problem = Problem(
        field=CountedField(field, packing),
        solver=solver,
        times=times,
        settings=settings,
        gradient=gradients[gradient](),
        per_sample=per_sample,
        compact=compact,
        event=None if event is None else EventFunction(event, packing, each=per_sample),
        keeps_dense=dense,
        fall_back=fall_back,
    )
    refuse_conflicts(problem, start)
    start, exact = _checked_start(start, problem), problem.gradient.keeps_graph
    start = shift_start(t, problem.field, start, each=per_sample, exact=exact)
    if dense:
        problem.dense = _dense(problem, start)
    if backward is not None:
        problem.backward = backward.read(packing, start)
    values = run_problem(problem, start, parameters)
    return _report(problem, values, t, on_failure)


def _checked_start(start: Tensor, problem: Problem) -> Tensor:
    """Return a start that can be solved from."""
    if start.is_inference() and not torch.is_inference_mode_enabled():
        start = start.clone()
    if inside_transform() and problem.chooses_steps:
        refuse_vmap(start, problem.solver)
    if not all_finite(start):
        raise NonFiniteError("y0 contains NaN or infinity.")
    return start


def _dense(problem: Problem, start: Tensor) -> DenseOutput | SampleDenseOutput:
    solver, field, times = problem.solver, problem.field, problem.times
    if not problem.per_sample:
        graph = problem.gradient.keeps_graph
        return DenseOutput(solver, field, float(times[0]), start, graph=graph)
    assert isinstance(solver, RungeKutta)
    ends = torch.stack((times[0], times[-1]))
    if ends.dim() == 1:
        ends = ends.unsqueeze(1).expand(2, start.shape[0])
    return SampleDenseOutput(solver, field, start, ends)


def _report(problem: Problem, values: Tensor, t: Times, on_failure: OnFailure) -> Solution:
    run: Run = problem.run
    packing = problem.field.packing
    # The evaluation before the run, which showed shapes and dependencies, is the first stage.
    run.statistics.evaluations += 1
    outputs, exact = problem.times.shape[0], problem.gradient.keeps_graph
    values, event_time, event_state = run.at_event(values, exact=exact)
    values = shift_outputs(t, problem.field, values, each=problem.per_sample, exact=exact)
    if values.shape[0] < outputs:
        missing = values.new_full((outputs - values.shape[0], *values.shape[1:]), float("nan"))
        values = torch.cat((values, missing))
    if not problem.per_sample:
        samples = values.shape[1] if packing.batched else 1
        run.statistics.sample_evaluations = run.statistics.evaluations * samples
    solution = Solution(
        values=packing.unpack(values),
        times=problem.times,
        status=run.statuses(),
        message="" if run.failure is None else run.failure.message,
        statistics=run.statistics,
        event_time=event_time,
        event_state=None if event_state is None else packing.unpack(event_state),
        dense=problem.dense,
    )
    if run.failure is not None and on_failure == "raise":
        raise _error_of(run.failure)(run.failure.message, solution)
    return solution


class NonFiniteSolveError(SolveError, NonFiniteError):
    """A solve met a value that is not a finite number."""


def _error_of(failure: Failure) -> type[SolveError]:
    return NonFiniteSolveError if failure.status is Status.NON_FINITE else SolveError


@dataclass(frozen=True)
class Reached:
    """Time, state and counts of an iterated solve after a step.

    Args:
        t: Time.
        y: State, in the form the start had.
        step: Size of the last step.
        evaluations: Evaluations of the field so far.
        rejected: Rejected steps so far.
    """

    t: float
    y: Any
    step: float
    evaluations: int
    rejected: int


def iterate(
    field: Callable[[Any, Any], Any],
    y0: Any,
    start: float | Tensor,
    end: float | Tensor,
    *,
    method: str | Solver = "dopri5",
    rtol: Tolerance = None,
    atol: Tolerance = None,
    options: dict[str, Any] | None = None,
) -> Iterator[Reached]:
    """Yield after every accepted step; the caller may leave the loop at any time.

    Args:
        field: f(t, y) → dy/dt.
        y0: A tensor of any shape, or a tuple of tensors.
        start: Time of y0.
        end: Last time; infinity leaves the end to the caller.
        method: A registry name or a solver.
        rtol: Relative tolerance, 1e-7 by default.
        atol: Absolute tolerance, 1e-9 by default.
        options: Further settings by name, as in `undamped.ode.solve`.

    Example:
        >>> for reached in iterate(lambda t, y: -y, torch.ones(3), 0.0, 10.0):
        ...     if reached.y.norm() < 0.1:
        ...         break
    """
    solver = choose_solver(method)
    packing = Packing.of(y0)
    y = packing.pack(y0, "the start")
    settings = read_settings(solver, rtol, atol, options or {}, packing, y)
    start, end = float(start), float(end)
    fixed = not solver.adaptive and settings.step_size is None
    if not math.isfinite(start) or math.isnan(end) or (fixed and math.isinf(end)):
        raise OptionError(
            f"start and end must be two times, got {start:g} and {end:g}. The end may be infinite "
            "for methods with step control, or with options={'step_size': …}."
        )
    counted = CountedField(field, packing)
    with counted.within(settings.jumps.window(start, 1.0 if end >= start else -1.0)):
        first = counted.first(torch.full((), start, dtype=y.dtype, device=y.device), y)
    differentiated = first.requires_grad or y.requires_grad
    run_options = RunOptions(first=first, differentiated=differentiated)
    run = Integration(counted, solver, y, (start, end), settings, run_options)
    for step in run.advance():
        yield Reached(run.t, packing.unpack(run.y), step, counted.count, run.statistics.rejected)
    if run.failure is not None:
        raise _error_of(run.failure)(run.failure.message)
