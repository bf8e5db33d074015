"""Solve an initial value problem, and say what it took."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from undamped.errors import NonFiniteError, OptionError, SolveError, explain
from undamped.options import check, convert
from undamped.registry import solvers
from undamped.solvers.dense import DenseOutput
from undamped.solvers.evaluation import CountedField, dependencies
from undamped.solvers.events import Event, with_event_gradient
from undamped.solvers.explicit.runge_kutta import RungeKutta
from undamped.solvers.gradients.adjoint import Adjoint
from undamped.solvers.gradients.replay import Replay
from undamped.solvers.integration import Integration
from undamped.solvers.packing import Packing
from undamped.solvers.per_sample import PerSampleIntegration
from undamped.solvers.settings import Settings
from undamped.solvers.solution import Solution
from undamped.solvers.solver import Solver
from undamped.solvers.times import Times, read_times, shift_outputs, shift_start
from undamped.solvers.trace import Status

Gradient = Literal["checkpoint", "backprop", "adjoint", "reversible"]
Steps = Literal["batch", "sample"]
Run = Integration | PerSampleIntegration


@dataclass
class Problem:
    """One solve with everything it needs; `begin` makes a run of it."""

    field: CountedField
    solver: Solver
    times: Tensor
    settings: Settings
    gradient: Gradient
    per_sample: bool
    compact: bool
    event: Event | None
    dense: DenseOutput | None
    tensors: list[Tensor]
    first: Tensor | None = None
    keep: bool = False
    run: Run | None = None

    def begin(self, y0: Tensor) -> Run:
        """Solve from y0."""
        first, self.first = self.first, None
        if self.per_sample:
            assert isinstance(self.solver, RungeKutta)
            times = self.times
            if times.dim() == 1:
                times = times.unsqueeze(1).expand(-1, y0.shape[0])
            self.run = PerSampleIntegration(
                self.field,
                self.solver,
                y0,
                times,
                self.settings,
                first=first,
                keep=self.keep,
                compact=self.compact,
            )
        else:
            self.run = Integration(
                self.field,
                self.solver,
                y0,
                self.times.tolist(),
                self.settings,
                first=first,
                keep=self.keep,
                event=self.event,
                watch=None if self.dense is None else self.dense.watch,
            )
        self.run.run()
        return self.run


class _Differentiable(torch.autograd.Function):
    """A solve without a graph, whose way back is one of the three that need none."""

    @staticmethod
    def forward(ctx: Any, problem: Problem, y0: Tensor, *tensors: Tensor) -> Tensor:
        run = problem.begin(y0.detach())
        values = torch.stack(run.values)
        ctx.problem, ctx.values = problem, values if problem.gradient == "adjoint" else None
        ctx.save_for_backward(y0)
        run.statistics.kept_bytes = _bytes(problem, run, values)
        return values

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Any, ...]:
        problem: Problem = ctx.problem
        (y0,) = ctx.saved_tensors
        run = problem.run
        assert run is not None
        counted = problem.field.count
        (incoming,) = gradients
        if problem.gradient == "adjoint":
            assert isinstance(run, Integration)
            times = list(run.times[: len(run.values)])
            if run.event_time is not None:
                times[-1:] = [run.event_time] if len(times) == len(run.values) else []
            pulled, totals = Adjoint(
                problem.solver, problem.field, times, ctx.values, problem.tensors, problem.settings
            ).solve(incoming)
        else:
            start = problem.times[0]
            begin = start.item() if start.dim() == 0 else start
            replay = Replay(
                problem.solver,
                problem.field,
                run.trace,
                begin,
                problem.tensors,
                problem.settings.piece,
            )
            go = (
                replay.by_reversing if problem.gradient == "reversible" else replay.from_checkpoints
            )
            pulled, totals = go(y0, incoming)
        run.statistics.evaluations_backward += problem.field.count - counted
        return None, pulled, *totals


def _bytes(problem: Problem, run: Run, values: Tensor) -> int:
    """Return how many bytes are held for the way back."""
    kept = [part for state in run.trace.checkpoints for part in state]
    if problem.gradient == "reversible":
        kept = list(run.trace.final)
    elif problem.gradient == "adjoint":
        kept = [values]
    return sum(part.numel() * part.element_size() for part in kept)


def choose_solver(method: str | Solver) -> Solver:
    """Return a method by its registry name, or as it was given."""
    if isinstance(method, Solver):
        return method
    return solvers[method]()


def solve(
    field: Callable[[Any, Any], Any],
    y0: Any,
    t: Times,
    *,
    method: str | Solver = "dopri5",
    rtol: float | None = None,
    atol: float | None = None,
    options: dict[str, Any] | None = None,
    gradient: Gradient = "checkpoint",
    parameters: Sequence[Tensor] = (),
    steps: Steps = "batch",
    compact: bool = False,
    event: Callable[[Any, Any], Tensor] | None = None,
    dense: bool = False,
    on_failure: Literal["raise", "return"] = "raise",
) -> Solution:
    """Solve dy/dt = field(t, y) from y0 at t[0], and report.

    Args:
        field: f(t, y) → dy/dt; t is a tensor without dimensions, or (batch, 1, …) when samples
            have their own steps.
        y0: A tensor of any shape, or a tuple of tensors.
        t: Output times, the start first; increasing or decreasing. (outputs, batch) gives every
            sample its own times. Gradients reach them.
        method: A registry name or a solver.
        rtol: Relative tolerance, 1e-7 if not given; for methods that choose their steps.
        atol: Absolute tolerance, 1e-9 if not given.
        options: Further settings by name: step_size, first_step, max_step, max_steps, piece and
            control, as in `Settings`.
        gradient: `checkpoint` recomputes recorded steps piece by piece (exact); `backprop` keeps
            the whole graph, so that gradients of gradients work; `adjoint` solves the adjoint
            equation back in time; `reversible` undoes the steps of a reversible method (exact,
            memory independent of their number).
        parameters: Tensors the field depends on that were computed from others; leaves and the
            parameters of a module are found without being named.
        steps: One step size for the batch, or one for every sample.
        compact: With steps for every sample, show the field only the samples under way.
        event: A function of (t, y), one number; the solve ends where its sign changes.
        dense: Whether to keep the solution as a function of time.
        on_failure: Raise a `SolveError` that carries the partial solution, or return it.

    Example:
        >>> solution = solve(lambda t, y: -y, torch.ones(3), [0.0, 1.0], rtol=1e-6, atol=1e-8)
        >>> solution.evaluations, solution.values[-1]
    """
    solver = choose_solver(method)
    settings = _read_settings(solver, rtol, atol, options or {})
    packing = Packing.of(y0)
    counted = CountedField(field, packing)
    start = packing.pack(y0, "the start")
    times = read_times(t, start)
    own_steps = steps == "sample" or times.dim() == 2
    _check_choices(solver, settings, gradient, own_steps, steps, compact, event, dense)
    if not bool(torch.isfinite(start).all()):
        raise NonFiniteError(
            explain(
                "the start y0",
                expected="finite numbers",
                got="NaN or infinity",
                remedy="Look at what computed it.",
            )
        )
    start = shift_start(t, counted, start)
    problem = Problem(
        field=counted,
        solver=solver,
        times=times,
        settings=settings,
        gradient=gradient,
        per_sample=own_steps,
        compact=compact,
        event=None if event is None else Event(event, counted),
        dense=DenseOutput(solver, counted) if dense else None,
        tensors=[],
    )
    values = _run(problem, start, parameters)
    return _report(problem, values, t, packing, on_failure)


def _run(problem: Problem, start: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Run a problem in the way its gradient asks for; return the outputs (outputs, …)."""
    counted = problem.field
    time = problem.times[0].to(start.dtype)
    if time.dim():
        time = time.view(-1, *(1,) * (start.dim() - 1))
    elif problem.per_sample:
        time = time.expand(start.shape[0]).reshape(-1, *(1,) * (start.dim() - 1))
    if not torch.is_grad_enabled():
        problem.first = counted.first(time, start)
        return torch.stack(problem.begin(start).values)
    if problem.gradient == "backprop":
        problem.first = counted.first(time, start)
        return torch.stack(problem.begin(start).values)
    # One evaluation with a graph shows what the field depends on, and is the first stage too.
    marker = torch.ones((), requires_grad=True) * 1.0
    assert marker.grad_fn is not None
    number = marker.grad_fn._sequence_nr()
    leaf = start.detach().requires_grad_()
    slope = counted.first(time, leaf)
    named = [*parameters, *problem.solver.tensors()]
    found = dependencies(counted.function, named, slope, number)
    problem.tensors = [tensor for tensor in found if tensor is not leaf]
    problem.first = slope.detach()
    problem.keep = problem.gradient == "checkpoint" and (
        bool(problem.tensors) or start.requires_grad
    )
    if not problem.tensors and not start.requires_grad:
        with torch.no_grad():
            return torch.stack(problem.begin(start).values)
    return _Differentiable.apply(problem, start, *problem.tensors)


def _report(
    problem: Problem,
    values: Tensor,
    t: Times,
    packing: Packing,
    on_failure: Literal["raise", "return"],
) -> Solution:
    run, counted = problem.run, problem.field
    assert run is not None
    # The evaluation before the run, which found shapes and dependencies, is the first stage.
    run.statistics.evaluations += 1
    outputs = problem.times.shape[0]
    event_time = event_state = None
    at_event = isinstance(run, Integration) and run.event_time is not None
    if at_event:
        assert isinstance(run, Integration) and run.event_time is not None
        assert problem.event is not None
        event_time, state = with_event_gradient(problem.event, counted, run.event_time, values[-1])
        event_state = packing.unpack(state)
        values = values[:-1]
    if values.shape[0] == outputs:
        values = shift_outputs(t, counted, values)
    elif values.shape[0] < outputs:
        missing = values.new_full((outputs - values.shape[0], *values.shape[1:]), float("nan"))
        values = torch.cat((values, missing))
    if isinstance(run, PerSampleIntegration):
        status = tuple(run.statuses())
    else:
        run.statistics.sample_evaluations = run.statistics.evaluations * (
            values.shape[1] if packing.batched else 1
        )
        ended = Status.EVENT if at_event else Status.DONE
        status = (ended if run.failure is None else run.failure.status,)
    solution = Solution(
        values=packing.unpack(values),
        times=problem.times,
        status=status,
        message="" if run.failure is None else run.failure.message,
        statistics=run.statistics,
        event_time=event_time,
        event_state=event_state,
        dense=problem.dense,
    )
    if run.failure is not None and on_failure == "raise":
        kind = NonFiniteSolveError if run.failure.status is Status.NON_FINITE else SolveError
        raise kind(run.failure.message, solution)
    return solution


class NonFiniteSolveError(SolveError, NonFiniteError):
    """A solve met a value that is not a finite number."""


def _read_settings(
    solver: Solver, rtol: float | None, atol: float | None, options: dict[str, Any]
) -> Settings:
    chosen = check("options", Settings, options)
    for reserved in ("rtol", "atol", "norm_size"):
        if reserved in chosen:
            raise OptionError(
                f"options.{reserved}: expected it as an argument of its own, got it among the "
                "options. Pass rtol= and atol= to solve."
            )
    fixed = not solver.adaptive or chosen.get("step_size") is not None
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value is None:
            continue
        if fixed:
            raise OptionError(
                explain(
                    f"{name} of '{solver.name}'",
                    expected="to be left out, since the steps are fixed",
                    got=value,
                    remedy="Choose a method with step control, such as 'dopri5', or set only "
                    "options={'step_size': …}.",
                )
            )
        chosen[name] = convert(float, value, name)
    if fixed and ("first_step" in chosen or "max_step" in chosen or "control" in chosen):
        raise OptionError(
            f"options of '{solver.name}': expected step_size or max_steps, got step control for "
            "fixed steps. Leave first_step, max_step and control out."
        )
    return Settings(**chosen)


def _check_choices(
    solver: Solver,
    settings: Settings,
    gradient: str,
    own_steps: bool,
    steps: str,
    compact: bool,
    event: object,
    dense: bool,
) -> None:
    convert(Gradient, gradient, "gradient")
    convert(Steps, steps, "steps")
    if gradient == "reversible" and not solver.reversible:
        raise OptionError(
            explain(
                "gradient='reversible'",
                expected="a reversible method",
                got=f"'{solver.name}'",
                remedy="Use method='reversible-heun' or 'alf', or McCallumFoster(base='rk4').",
            )
        )
    if compact and not own_steps:
        raise OptionError(
            "compact: expected steps='sample', got one step size for the batch. All samples of "
            "a batch with one step size finish together."
        )
    if own_steps and not (solver.per_sample and solver.adaptive and settings.step_size is None):
        raise OptionError(
            explain(
                "a step size for every sample",
                expected="an explicit method that chooses its steps",
                got=f"'{solver.name}'" + (" with a fixed step_size" if settings.step_size else ""),
                remedy="Use 'dopri5', 'tsit5', 'bosh3', 'heun' or 'dopri8'.",
            )
        )
    if own_steps and (event is not None or dense or gradient in ("adjoint", "reversible")):
        raise OptionError(
            "a step size for every sample: expected gradient='checkpoint' or 'backprop' and "
            "neither event nor dense, got another choice. Use steps='batch' for those."
        )
