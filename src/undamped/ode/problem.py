"""A solve with everything it needs, run in the way its gradient requires."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.registry import gradients
from undamped.ode.dependencies import NeedsGraphError, dependencies, next_node
from undamped.ode.field import CountedField
from undamped.ode.gradients.methods import GradientMethod
from undamped.ode.gradients.refused import (
    needs_graph,
    refuse_gradients,
    refuse_implicit,
    refuse_vmap,
    transformed,
)
from undamped.ode.gradients.repetition import (
    FieldContext,
    FieldSamples,
    frozen_statistics,
    normalizations,
    random_state,
    refuse_randomness,
)
from undamped.ode.loop.batch import Integration
from undamped.ode.loop.dense import DenseOutput, SampleDenseOutput
from undamped.ode.loop.events import EventFunction
from undamped.ode.loop.sample import ImplicitPerSample, PerSampleIntegration
from undamped.ode.methods.solver import Solver
from undamped.ode.record import Run, RunOptions
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
    """Whether every sample has its own step size."""
    compact: bool
    """Whether the field sees only unfinished samples."""
    event: EventFunction | None
    keeps_dense: bool
    """Whether the solution is stored as a function of time."""
    fall_back: bool
    """Whether to back-propagate where the gradient method is not possible."""
    backward: tuple[Solver, Settings] | None = None
    """Method and settings of an adjoint solve, where they differ from those of the solve."""
    dense: DenseOutput | SampleDenseOutput | None = None
    tensors: list[Tensor] = dataclass_field(default_factory=list)
    """What the field depends on, besides the state."""
    first: Tensor | None = None
    checkpoint: bool = False
    differentiated: bool = False
    """Whether gradients are taken through the steps."""
    run: Any = None
    """The `Run`, once begun."""
    context: FieldContext | None = None
    samples: FieldSamples | None = None
    normalizations: list[nn.Module] = dataclass_field(default_factory=list)
    """Modules of the field with running statistics, which the forward pass alone updates."""

    @property
    def chooses_steps(self) -> bool:
        """Whether step sizes follow from errors."""
        return self.solver.adaptive and self.settings.step_size is None

    def first_slope(self, time: Tensor, y0: Tensor) -> Tensor:
        """Evaluate the field for the first time, on the side of a jump that the steps are on."""
        window = None
        if self.settings.jumps and not self.per_sample:
            begin, end = self.times[0].item(), self.times[-1].item()
            window = self.settings.jumps.window(begin, 1.0 if end >= begin else -1.0)
        with self.field.within(window):
            return self.field.first(time, y0)

    def begin(self, y0: Tensor) -> Run:
        """Solve from y0."""
        options = RunOptions(
            first=self.first,
            checkpoint=self.checkpoint,
            record=self.gradient.records_steps,
            compact=self.compact,
            event=self.event,
            watch=None if self.dense is None else self.dense.watch,
            differentiated=self.differentiated,
            tensors=None if self.gradient.keeps_graph else self.tensors,
        )
        self.first = None
        kind, times = Integration, self.times
        if self.per_sample:
            kind = ImplicitPerSample if self.solver.implicit else PerSampleIntegration
            times = times if times.dim() > 1 else times.unsqueeze(1).expand(-1, y0.shape[0])
        else:
            times = times.tolist()
        self.run = kind(self.field, self.solver, y0, times, self.settings, options)
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
        # The tensors are saved so that changing them before the backward pass is noticed. What is
        # returned may be saved in this way only: as an attribute it would refer to itself.
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
            f"Gradients of gradients of a solve need gradient='backprop', got '{name}', whose "
            "gradients can be taken once.",
        )


def run_problem(problem: Problem, start: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Run a problem in the way its gradient requires; return the outputs (outputs, …)."""
    time = problem.times[0].to(start.dtype)
    if time.dim() or problem.per_sample:
        time = time.expand(start.shape[0]).reshape(-1, *(1,) * (start.dim() - 1))
    if transformed(start):
        refuse_implicit(problem.solver)
        # Gradients that are exact are the same with every gradient method.
        exact = not problem.gradient.solves_back
        if not exact and not problem.fall_back and torch.is_grad_enabled():
            raise needs_graph(problem.gradient.name)
        problem.gradient = gradients["backprop"]()
    if problem.gradient.keeps_graph or not torch.is_grad_enabled():
        return _with_graph(problem, start, time)
    problem.context = FieldContext.of(problem.field.function, start)
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
        if problem.chooses_steps:
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
    """Run a problem; its first evaluation has a graph, which shows what it depends on."""
    counted, number = problem.field, next_node()
    copied = _with_copies(counted)
    leaf = start.detach().requires_grad_()
    # Equations solved to a tolerance are solved to different digits when a step is repeated: its
    # end then says less about the field than the values of the field do.
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
    problem.checkpoint = problem.gradient.keeps_states
    problem.differentiated = not problem.gradient.solves_back
    refuse_randomness(before, start, problem.gradient.name)
    inputs = [copied.get(id(tensor), tensor) for tensor in problem.tensors]
    return _Differentiable.apply(problem, start, *inputs)


def _with_copies(counted: CountedField) -> dict[int, Tensor]:
    """Let a field read copies of tensors computed before; return the originals by the copies' ids.

    A gradient that evaluates the field again follows the graph of what it reads, each time and to
    its beginning, even where it needs only the last part. A field that can read other tensors in
    place of its `context_tensors()` has a method `reading(tensors)`.
    """
    function = counted.function
    reading = getattr(function, "reading", None)
    if reading is None:
        return {}
    originals = list(function.context_tensors())  # type: ignore[attr-defined]
    copies = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in originals]
    counted.function = reading(copies)
    return {id(copy): tensor for copy, tensor in zip(copies, originals, strict=True)}
