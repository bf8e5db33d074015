"""Solve an initial value problem, and say what it took."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from undamped._base.errors import NonFiniteError, SolveError
from undamped.kernels.dispatch import inside_transform
from undamped.ode.choices import Choices, OnFailure, read_gradient
from undamped.ode.field import CountedField, all_finite
from undamped.ode.gradients.transforms import refuse_vmap
from undamped.ode.loop.dense import DenseOutput, SampleDenseOutput
from undamped.ode.loop.events import Event, EventFunction
from undamped.ode.methods.explicit.runge_kutta import RungeKutta
from undamped.ode.methods.solver import Solver
from undamped.ode.problem import Problem, run_problem
from undamped.ode.record import Run, Solution, Status
from undamped.ode.settings import Gradient, Settings, Steps, choose_solver, read_settings
from undamped.ode.state.packing import Packing
from undamped.ode.state.times import Times, read_times, shift_outputs, shift_start

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def uncompiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Return a function that a compiler calls as it is.

    The compiler is told so only while it is compiling: importing it takes seconds.
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
        rtol: Relative tolerance, 1e-7 if not given; for methods that choose their steps. A
            tensor that broadcasts to the state sets one tolerance per number, a tuple one per
            member of a tuple.
        atol: Absolute tolerance, 1e-9 if not given, likewise.
        options: Further settings by name: step_size, first_step, max_step, max_steps,
            checkpoint_steps, control and norm, as in `undamped.ode.Settings`.
        gradient: `checkpoint` recomputes recorded steps in segments (exact); `backprop` keeps
            the whole graph, so that gradients of gradients work; `adjoint` solves the adjoint
            equation back in time; `reversible` undoes the steps of a reversible method (exact,
            memory independent of their number).
        parameters: Tensors the field depends on that were computed from others; leaves and the
            parameters of a module are found without being named.
        steps: One step size for the batch, or one for every sample.
        compact: With steps for every sample, show the field only the samples under way.
        event: A function of (t, y), one number or truth; the solve ends where its sign changes,
            NaN having none. With a step size for every sample, one number a sample, each of which
            ends at its own. Gradients of the event's time reach the parameters of the function.
            An `undamped.ode.Event` says more: which changes of sign count, and whether the
            solve ends there. With an event that ends it, the last time may be infinite.
        dense: Whether to keep the solution as a function of time; of one for every sample where
            samples have their own steps. Its values have gradients with gradient='backprop'.
        on_failure: Raise a `SolveError` that carries the partial solution, or return it.
        fall_back: Whether to back-propagate where the chosen gradient cannot be had.
        backward: How to solve the adjoint equation, if otherwise than the equation itself.

    Example:
        >>> solution = solve(lambda t, y: -y, torch.ones(3), [0.0, 1.0], rtol=1e-6, atol=1e-8)
        >>> solution.evaluations, solution.values[-1]
    """
    packing = Packing.of(y0)
    start = packing.pack(y0, "the start")
    method_options = MethodOptions(choose_solver(method), rtol, atol, options)
    solver, settings = method_options.read(packing, start)
    times = read_times(t, start, open_end=event is not None)
    if event is not None and not isinstance(event, Event):
        event = Event(event)
    choices = Choices(
        solver=solver,
        settings=settings,
        gradient=read_gradient(gradient, steps, on_failure),
        own_steps=steps == "sample" or times.dim() == 2,
        compact=compact,
        event=event,
        dense=dense,
    )
    choices.refuse_conflicts()
    choices.check_shapes(packing, start)
    counted, start = CountedField(field, packing), _checked_start(start, choices)
    exact, own_steps = choices.gradient.keeps_graph, choices.own_steps
    start = shift_start(t, counted, start, each=own_steps, exact=exact)
    problem = Problem(
        field=counted,
        solver=solver,
        times=times,
        settings=settings,
        gradient=choices.gradient,
        per_sample=own_steps,
        compact=compact,
        event=None if event is None else EventFunction(event, packing, each=own_steps),
        dense=_dense(choices, counted, start, times) if dense else None,
        tensors=[],
        fall_back=fall_back,
        backward=None if backward is None else backward.read(packing, start),
    )
    values = run_problem(problem, start, parameters)
    return _report(problem, values, t, packing, on_failure)


def _checked_start(start: Tensor, choices: Choices) -> Tensor:
    """Return a start that can be solved from."""
    if start.is_inference() and not torch.is_inference_mode_enabled():
        start = start.clone()
    if inside_transform() and choices.solver.adaptive and choices.settings.step_size is None:
        refuse_vmap(start, choices.solver)
    if not all_finite(start):
        raise NonFiniteError("y0 contains NaN or infinity.")
    return start


def _dense(
    choices: Choices, field: CountedField, start: Tensor, times: Tensor
) -> DenseOutput | SampleDenseOutput:
    solver = choices.solver
    if not choices.own_steps:
        graph = choices.gradient.keeps_graph
        return DenseOutput(solver, field, float(times[0]), start, graph=graph)
    assert isinstance(solver, RungeKutta)
    ends = torch.stack((times[0], times[-1]))
    if ends.dim() == 1:
        ends = ends.unsqueeze(1).expand(2, start.shape[0])
    return SampleDenseOutput(solver, field, start, ends)


def _report(
    problem: Problem,
    values: Tensor,
    t: Times,
    packing: Packing,
    on_failure: OnFailure,
) -> Solution:
    run: Run = problem.run
    # The evaluation before the run, which found shapes and dependencies, is the first stage.
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
        kind = NonFiniteSolveError if run.failure.status is Status.NON_FINITE else SolveError
        raise kind(run.failure.message, solution)
    return solution


class NonFiniteSolveError(SolveError, NonFiniteError):
    """A solve met a value that is not a finite number."""
