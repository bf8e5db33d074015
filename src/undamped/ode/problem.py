"""A solve with everything it needs, run in the way its gradient asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any

import torch
from torch import Tensor, nn

from undamped.ode.dependencies import NeedsGraphError, dependencies, next_node
from undamped.ode.field import CountedField
from undamped.ode.gradients.field_context import (
    FieldContext,
    frozen_statistics,
    normalizations,
    random_state,
    refuse_randomness,
)
from undamped.ode.gradients.gradient import GradientMethod, gradients
from undamped.ode.gradients.refused import refuse_gradients
from undamped.ode.gradients.transforms import (
    needs_graph,
    refuse_implicit,
    refuse_vmap,
    transformed,
)
from undamped.ode.gradients.unchanged import FieldSamples
from undamped.ode.loop.batch import Integration
from undamped.ode.loop.dense import DenseOutput, SampleDenseOutput
from undamped.ode.loop.events import EventFunction
from undamped.ode.loop.sample import ImplicitPerSample, PerSampleIntegration
from undamped.ode.methods.solver import Solver
from undamped.ode.record import Run
from undamped.ode.settings import Settings


@dataclass
class Problem:
    """One solve with everything it needs; `begin` makes a run of it."""

    field: CountedField
    solver: Solver
    times: Tensor
    settings: Settings
    gradient: GradientMethod
    per_sample: bool
    compact: bool
    event: EventFunction | None
    dense: DenseOutput | SampleDenseOutput | None
    tensors: list[Tensor]
    first: Tensor | None = None
    keep: bool = False
    differentiated: bool = False
    """Whether gradients go through the steps."""
    run: Any = None
    """The `Run`, once begun."""
    context: FieldContext | None = None
    samples: FieldSamples | None = None
    normalizations: list[nn.Module] = dataclass_field(default_factory=list)
    """Modules of the field with running statistics, which the forward pass alone updates."""
    fall_back: bool = False
    """Whether to back-propagate where the gradient method cannot be had."""
    backward: tuple[Solver, Settings] | None = None
    """Method and settings of an adjoint solve, where they are its own."""

    def first_slope(self, time: Tensor, y0: Tensor) -> Tensor:
        """Evaluate the field for the first time, on the side of a jump that the solve goes to."""
        window = None
        if self.settings.jumps and not self.per_sample:
            begin, end = self.times[0].item(), self.times[-1].item()
            window = self.settings.jumps.window(begin, 1.0 if end >= begin else -1.0)
        with self.field.within(window):
            return self.field.first(time, y0)

    def begin(self, y0: Tensor) -> Run:
        """Solve from y0."""
        first, self.first = self.first, None
        if self.per_sample:
            kind = ImplicitPerSample if self.solver.implicit else PerSampleIntegration
            times = self.times
            if times.dim() == 1:
                times = times.unsqueeze(1).expand(-1, y0.shape[0])
            self.run = kind(
                self.field,
                self.solver,  # type: ignore[arg-type]
                y0,
                times,
                self.settings,
                first=first,
                keep=self.keep,
                compact=self.compact,
                event=self.event,
                watch=self.dense.watch if isinstance(self.dense, SampleDenseOutput) else None,
                differentiated=self.differentiated,
            )
        else:
            assert not isinstance(self.dense, SampleDenseOutput)
            self.run = Integration(
                self.field,
                self.solver,
                y0,
                self.times.tolist(),
                self.settings,
                first=first,
                keep=self.keep,
                record=self.gradient.records_steps,
                event=self.event,
                watch=None if self.dense is None else self.dense.watch,
                differentiated=self.differentiated,
                tensors=None if self.gradient.keeps_graph else self.tensors,
            )
        self.run.run()
        return self.run


class _Differentiable(torch.autograd.Function):
    """A solve without a graph, whose gradient method evaluates the field again."""

    @staticmethod
    def forward(ctx: Any, problem: Problem, y0: Tensor, *tensors: Tensor) -> Tensor:
        problem.field.samples = problem.samples
        try:
            run = problem.begin(y0.detach())
        finally:
            problem.field.samples = None
        values = torch.stack(run.values)
        saved = problem.gradient.saved(problem, values)
        ctx.problem = problem
        # The tensors are kept so that changing them before the backward pass is noticed. What is
        # returned may be kept in this way only: as an attribute it would keep itself.
        stored = values if any(part is values for part in saved) else None
        ctx.save_for_backward(y0, stored, *tensors)
        ctx.context = problem.context
        run.statistics.stored_bytes = sum(part.numel() * part.element_size() for part in saved)
        return values

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Any, ...]:
        problem: Problem = ctx.problem
        y0, values, *tensors = ctx.saved_tensors
        (incoming,) = gradients
        field, name = problem.field, problem.gradient.name
        frozen = frozen_statistics(problem.normalizations)
        with torch.no_grad(), frozen, ctx.context.restored(field):
            counted = field.count
            if problem.samples is not None:
                problem.samples.refuse(field, name, ctx.context.rounding(y0.dtype))
            grad_start, totals = problem.gradient.backward(problem, y0, values, incoming)
            problem.run.statistics.evaluations_backward += field.count - counted
        return None, *refuse_gradients(
            [grad_start, *totals],
            [incoming, y0, *tensors],
            f"gradients of gradients of a solve: expected gradient='backprop', got '{name}', "
            "whose gradients can be taken once. Choose 'backprop'.",
        )


def run_problem(problem: Problem, start: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Run a problem in the way its gradient asks for; return the outputs (outputs, …)."""
    counted = problem.field
    time = problem.times[0].to(start.dtype)
    if time.dim():
        time = time.view(-1, *(1,) * (start.dim() - 1))
    elif problem.per_sample:
        time = time.expand(start.shape[0]).reshape(-1, *(1,) * (start.dim() - 1))
    if transformed(start):
        refuse_implicit(problem.solver)
        # Gradients that are exact are the same however they are had.
        exact = not problem.gradient.solves_back
        if not exact and not problem.fall_back and torch.is_grad_enabled():
            raise needs_graph(problem.gradient.name)
        problem.gradient = gradients["backprop"]()
    if problem.gradient.keeps_graph or not torch.is_grad_enabled():
        return _with_graph(problem, start, time)
    problem.context = FieldContext.of(counted.function, start)
    with problem.context.precisely():
        try:
            return _without_graph(problem, start, time, parameters)
        except NeedsGraphError:
            if not problem.fall_back:
                raise
    problem.gradient = gradients["backprop"]()
    return _with_graph(problem, start, time)


def _with_graph(problem: Problem, start: Tensor, time: Tensor) -> Tensor:
    problem.first = problem.first_slope(time, start)
    if transformed(problem.first):
        refuse_implicit(problem.solver)
        if problem.solver.adaptive and problem.settings.step_size is None:
            refuse_vmap(problem.first, problem.solver)
    if problem.dense is not None:
        problem.dense.roots = [start, problem.first]
    problem.differentiated = (
        problem.first.requires_grad or start.requires_grad or transformed(start, problem.first)
    )
    return torch.stack(problem.begin(start).values)


def _without_graph(
    problem: Problem, start: Tensor, time: Tensor, parameters: Sequence[Tensor]
) -> Tensor:
    """Run a problem; one evaluation with a graph shows what it depends on, and is its first."""
    counted, number = problem.field, next_node()
    copied = _with_copies(counted)
    leaf = start.detach().requires_grad_()
    # Equations solved to a tolerance are solved to other digits when a step is repeated: where it
    # ends then says less about the field than its values do.
    if problem.gradient.samples_field or problem.solver.implicit:
        problem.samples = counted.samples = FieldSamples()
    before = random_state(start)
    with normalizations(counted.function, problem.normalizations):
        slope = problem.first_slope(time, leaf)
    counted.samples = None
    if transformed(slope):
        raise needs_graph(problem.gradient.name)
    tensors = [*parameters, *problem.solver.tensors()]
    leaves = dependencies(counted.function, tensors, slope, number)
    problem.tensors = [tensor for tensor in leaves if tensor is not leaf]
    problem.first = slope.detach()
    if problem.dense is not None:
        problem.dense.roots = [start, *problem.tensors]
    if not problem.tensors and not start.requires_grad:
        with torch.no_grad():
            return torch.stack(problem.begin(start).values)
    problem.keep = problem.gradient.keeps_states
    problem.differentiated = not problem.gradient.solves_back
    refuse_randomness(before, start, problem.gradient.name)
    inputs = [copied.get(id(tensor), tensor) for tensor in problem.tensors]
    return _Differentiable.apply(problem, start, *inputs)


def _with_copies(counted: CountedField) -> dict[int, Tensor]:
    """Let a field read copies of tensors computed before; return whose copies they are, by id.

    A gradient that evaluates the field again follows the graph of what it reads, all of it and each
    time, also where it stops earlier. A field that can read other tensors in place of its
    `context_tensors()` says so by a method `reading(tensors)`.
    """
    function = counted.function
    reading = getattr(function, "reading", None)
    if reading is None:
        return {}
    originals = list(function.context_tensors())  # type: ignore[attr-defined]
    copies = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in originals]
    counted.function = reading(copies)
    return {id(copy): tensor for copy, tensor in zip(copies, originals, strict=True)}
