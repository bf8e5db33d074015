"""A solve with everything it needs, run in the way its gradient asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from undamped.solvers.dependencies import dependencies, next_node
from undamped.solvers.field import CountedField
from undamped.solvers.gradients.adjoint import Adjoint
from undamped.solvers.gradients.field_context import FieldContext, random_state, refuse_randomness
from undamped.solvers.gradients.first_order_only import first_order_only
from undamped.solvers.gradients.replay import Replay
from undamped.solvers.gradients.sample_adjoint import SampleAdjoint
from undamped.solvers.loop.batch import Integration
from undamped.solvers.loop.dense import DenseOutput
from undamped.solvers.loop.events import Event
from undamped.solvers.loop.sample import PerSampleIntegration
from undamped.solvers.loop.sample_dense import SampleDenseOutput
from undamped.solvers.loop.sample_events import SampleEvent
from undamped.solvers.methods.explicit.runge_kutta import RungeKutta
from undamped.solvers.methods.solver import Solver
from undamped.solvers.settings import Gradient, Settings

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
    event: Event | SampleEvent | None
    dense: DenseOutput | SampleDenseOutput | None
    tensors: list[Tensor]
    first: Tensor | None = None
    keep: bool = False
    run: Run | None = None
    context: FieldContext | None = None

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
                event=self.event if isinstance(self.event, SampleEvent) else None,
                watch=self.dense.watch if isinstance(self.dense, SampleDenseOutput) else None,
            )
        else:
            assert not isinstance(self.event, SampleEvent)
            assert not isinstance(self.dense, SampleDenseOutput)
            self.run = Integration(
                self.field,
                self.solver,
                y0,
                self.times.tolist(),
                self.settings,
                first=first,
                keep=self.keep,
                record=self.gradient == "reversible",
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
        # The tensors are kept so that changing them before the way back is noticed.
        ctx.save_for_backward(y0, *tensors)
        ctx.context = problem.context
        run.statistics.kept_bytes = _bytes(problem, run, values)
        return values

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Any, ...]:
        problem: Problem = ctx.problem
        y0, *tensors = ctx.saved_tensors
        (incoming,) = gradients
        with torch.no_grad(), ctx.context.restored(problem.field):
            pulled, totals = _way_back(problem, y0, ctx.values, incoming)
        return None, *first_order_only(
            [pulled, *totals],
            [incoming, y0, *tensors],
            f"gradients of gradients of a solve: expected gradient='backprop', got "
            f"'{problem.gradient}', whose gradients can be taken once. Choose 'backprop'.",
        )


def _way_back(
    problem: Problem, y0: Tensor, values: Tensor | None, incoming: Tensor
) -> tuple[Tensor, list[Tensor | None]]:
    """Return the gradients with respect to y0 and the tensors."""
    run = problem.run
    assert run is not None
    counted = problem.field.count
    if problem.gradient == "adjoint" and isinstance(run, PerSampleIntegration):
        assert values is not None
        pulled, totals = _sample_adjoint(problem, run, values, incoming)
    elif problem.gradient == "adjoint":
        assert isinstance(run, Integration) and values is not None
        times = list(run.times[: len(run.values)])
        if run.event_time is not None:
            times[-1] = run.event_time
        settings = problem.settings
        pulled, totals = Adjoint(
            problem.solver,
            problem.field,
            times,
            values,
            problem.tensors,
            settings,
            # What the way there ended with suits the field where the way back begins.
            run.next_step if settings.first_step is None else settings.first_step,
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
        go = replay.by_reversing if problem.gradient == "reversible" else replay.from_checkpoints
        pulled, totals = go(y0, incoming)
    run.statistics.evaluations_backward += problem.field.count - counted
    return pulled, totals


def _sample_adjoint(
    problem: Problem, run: PerSampleIntegration, values: Tensor, incoming: Tensor
) -> tuple[Tensor, list[Tensor | None]]:
    """Solve the adjoint of every sample back from where that sample ended."""
    assert isinstance(problem.solver, RungeKutta)
    times = run.times
    if run.event_times is not None:
        ends = torch.where(run.event_times.isnan(), times[-1], run.event_times)
        times = torch.cat((times, ends.unsqueeze(0)))
    return SampleAdjoint(
        problem.solver, problem.field, times, values, problem.tensors, problem.settings
    ).solve(incoming)


def _bytes(problem: Problem, run: Run, values: Tensor) -> int:
    """Return how many bytes are held for the way back."""
    kept = [part for state in run.trace.checkpoints for part in state]
    if problem.gradient == "reversible":
        kept = list(run.trace.final)
    elif problem.gradient == "adjoint":
        kept = [values]
    return sum(part.numel() * part.element_size() for part in kept)


def run_problem(problem: Problem, start: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Run a problem in the way its gradient asks for; return the outputs (outputs, …)."""
    counted = problem.field
    time = problem.times[0].to(start.dtype)
    if time.dim():
        time = time.view(-1, *(1,) * (start.dim() - 1))
    elif problem.per_sample:
        time = time.expand(start.shape[0]).reshape(-1, *(1,) * (start.dim() - 1))
    if problem.gradient == "backprop" or not torch.is_grad_enabled():
        problem.first = counted.first(time, start)
        return torch.stack(problem.begin(start).values)
    problem.context = FieldContext.of(counted.function, start)
    with problem.context.precisely():
        return _without_graph(problem, start, time, parameters)


def _without_graph(
    problem: Problem, start: Tensor, time: Tensor, parameters: Sequence[Tensor]
) -> Tensor:
    """Run a problem; one evaluation with a graph shows what it depends on, and is its first."""
    counted, number = problem.field, next_node()
    leaf = start.detach().requires_grad_()
    before = random_state(start)
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
    refuse_randomness(before, start, problem.gradient)
    return _Differentiable.apply(problem, start, *problem.tensors)
