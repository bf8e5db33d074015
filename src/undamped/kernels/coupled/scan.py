"""`coupled_scan`: the function of torch, with its gradient, over shards of the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from undamped.kernels.coupled.contract import (
    Operator,
    Projection,
    ProjectionPass,
    Step,
    StructuredOperator,
)
from undamped.kernels.coupled.passes import Pass, Shard
from undamped.kernels.dispatch import runs_as_operator
from undamped.kernels.shared.allocate import empty
from undamped.kernels.shared.chunks import COUPLED, chunk_length, ranges
from undamped.kernels.shared.operator import refuse_second_derivatives
from undamped.kernels.shared.threads import run_in_parallel, split_batch

Reference = Callable[..., tuple[Tensor, tuple[Tensor, ...]]]
"""A function of the input and the groups of tensors of a `Plan`: outputs and final state."""


@dataclass
class Plan:
    """The arguments of a scan without gradient.

    Args:
        step: The elementwise part.
        operator: The linear part.
        projection: The map from the input to the projected input.
        counts: The numbers of tensors of the first state, the projection's first state, the
            projection, the operator and the step.
        lengths: (batch,), the lengths of sequences, or None.
        reference: The same recurrence in plain PyTorch, for second derivatives, or None.
    """

    step: Step
    operator: Operator
    projection: Projection
    counts: tuple[int, ...]
    lengths: Tensor | None
    reference: Reference | None = None

    def groups(self, tensors: Sequence[Any]) -> list[list[Any]]:
        """Split tensors, or their gradients, into the groups of `counts`."""
        parts, start = [], 0
        for count in self.counts:
            parts.append(list(tensors[start : start + count]))
            start += count
        return parts

    def widths(self, tensors: Sequence[Tensor]) -> list[int]:
        """Return the widths of the parts of the state that the operator reads."""
        states = tensors[: self.counts[0]]
        return [part.shape[1] for part in (states[:-1] if self.step.has_memory else states)]


def coupled_scan(
    step: Step,
    operator: Operator,
    projection: Projection,
    x: Tensor,
    state: tuple[Tensor, ...],
    *,
    input_tensors: Sequence[Tensor],
    linear: Sequence[Tensor],
    weights: Sequence[Tensor] = (),
    filters: tuple[Tensor, ...] = (),
    lengths: Tensor | None = None,
    reference: Reference | None = None,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Iterate through time; return the outputs (time, batch, hidden) and the final state.

    Args:
        step: The elementwise part.
        operator: The linear part.
        projection: The map from the input to the projected input.
        x: (time, batch, input), the input.
        state: The first state; the output is its first tensor. The operator reads the concatenation
            of its tensors, except a last one for steps that have a memory.
        input_tensors: The tensors of the projection.
        linear: The tensors of the operator.
        weights: The tensors of the elementwise part.
        filters: The first state of the projection, if it has one; the final state ends with it.
        lengths: (batch,), the lengths of sequences; after its end the state of a sequence stays and
            its outputs are zero.
        reference: The same in plain PyTorch, for second derivatives.
    """
    groups = (state, filters, input_tensors, linear, weights)
    plan = Plan(
        step, operator, projection, tuple(len(group) for group in groups), lengths, reference
    )
    tensors = [tensor for group in groups for tensor in group]
    if runs_as_operator(x):
        from undamped.kernels.coupled.operator import scan_by_operator

        return scan_by_operator(plan, x, tensors)
    output, *finals = _CoupledScan.apply(plan, x, *tensors)  # type: ignore[misc]
    return output, tuple(finals)


@dataclass
class Trajectory:
    """All states of a forward pass.

    Args:
        hidden_states: (time + 1, batch, width), the part of the state that the operator reads, the
            first state at 0.
        memory: The part that it does not read, likewise, or None.
    """

    hidden_states: Tensor
    memory: Tensor | None


def run_forward(
    plan: Plan, x: Tensor, tensors: list[Tensor]
) -> tuple[Trajectory, list[slice], list[ProjectionPass]]:
    """Run the forward pass; return all states, and shards and projections for the backward one."""
    states = plan.groups(tensors)[0]
    steps, batch = x.shape[:2]
    read = states[:-1] if plan.step.has_memory else states
    hidden_states = empty((steps + 1, batch, sum(plan.widths(tensors))), x)
    torch.cat(read, dim=1, out=hidden_states[0])
    memory = None
    if plan.step.has_memory:
        memory = empty((steps + 1, batch, states[-1].shape[1]), x)
        memory[0] = states[-1]
    trajectory, slices = (
        Trajectory(hidden_states, memory),
        split_batch(steps, batch, hidden_states.shape[2]),
    )
    passes = _passes(plan, slices, x, trajectory, tensors)
    run_in_parallel([batch_pass.forward for batch_pass in passes], passes[0].multiplications)
    return trajectory, slices, [batch_pass.projection for batch_pass in passes]


def restart(
    plan: Plan, x: Tensor, tensors: list[Tensor], trajectory: Trajectory
) -> tuple[list[slice], list[ProjectionPass]]:
    """Return shards and projections for a backward pass from saved states alone."""
    slices = split_batch(len(x), x.shape[1], trajectory.hidden_states.shape[2])
    passes = _passes(plan, slices, x, trajectory, tensors)
    if plan.counts[1]:  # the projection has a state, which is needed at the start of every chunk
        run_in_parallel([batch_pass.project for batch_pass in passes], passes[0].multiplications)
    return slices, [batch_pass.projection for batch_pass in passes]


def final_states(
    plan: Plan, trajectory: Trajectory, widths: list[int], projections: list[ProjectionPass]
) -> list[Tensor]:
    """Return copies of the last state: hidden states, memory, state of the projection."""
    finals = [part.clone() for part in trajectory.hidden_states[-1].split(widths, dim=1)]
    if trajectory.memory is not None:
        finals.append(trajectory.memory[-1].clone())
    return finals + [
        torch.cat([projection.state[i] for projection in projections])
        for i in range(plan.counts[1])
    ]


def run_backward(
    plan: Plan,
    x: Tensor,
    tensors: list[Tensor],
    trajectory: Trajectory,
    slices: list[slice],
    projections: list[ProjectionPass],
    output_gradient: Tensor,
    final_gradients: Sequence[Tensor],
    input_gradient: Tensor | None,
) -> list[Tensor]:
    """Run the backward pass; fill the gradient of the input and return those of the tensors."""
    widths, (state_count, filter_count) = plan.widths(tensors), plan.counts[:2]
    state_gradient = torch.cat(tuple(final_gradients[: len(widths)]), dim=1)
    memory_gradient = None
    if trajectory.memory is not None:
        memory_gradient = final_gradients[state_count - 1].contiguous().clone()
    passes = _passes(plan, slices, x, trajectory, tensors, projections)
    for shard, batch_pass in zip(slices, passes, strict=True):
        batch_pass.projection.start_backward(
            [part[shard].contiguous().clone() for part in final_gradients[state_count:]]
        )
    run_in_parallel(
        [
            partial(
                batch_pass.backward,
                output_gradient[:, shard],
                state_gradient[shard],
                None if memory_gradient is None else memory_gradient[shard],
                None if input_gradient is None else input_gradient[:, shard],
            )
            for shard, batch_pass in zip(slices, passes, strict=True)
        ],
        passes[0].multiplications,
    )
    state_gradients = list(state_gradient.split(widths, dim=1))
    if memory_gradient is not None:
        state_gradients.append(memory_gradient)
    filter_gradients = [
        torch.cat([batch_pass.projection.state_gradient[i] for batch_pass in passes])
        for i in range(filter_count)
    ]
    return [
        *state_gradients,
        *filter_gradients,
        *_sums([batch_pass.projection.tensor_gradients for batch_pass in passes]),
        *_sums([batch_pass.linear_gradients for batch_pass in passes]),
        *_sums([batch_pass.weight_gradients for batch_pass in passes]),
    ]


class _CoupledScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: Plan, x: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        sequence, x, detached = x, x.detach(), [tensor.detach() for tensor in tensors]
        trajectory, ctx.slices, ctx.projections = run_forward(plan, x, detached)
        ctx.plan, widths = plan, plan.widths(detached)
        ctx.save_for_backward(sequence, trajectory.hidden_states, trajectory.memory, *tensors)
        output = trajectory.hidden_states[1:, :, : widths[0]]
        if plan.lengths is not None:
            time = torch.arange(len(x), device="cpu").unsqueeze(1)
            output = output.masked_fill((time >= plan.lengths.cpu()).unsqueeze(-1), 0)
        ctx.set_materialize_grads(False)
        results = output, *final_states(plan, trajectory, widths, ctx.projections)
        ctx.shapes = [result.shape for result in results]
        return results

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor | None) -> Any:  # type: ignore[override]
        x, hidden_states, memory, *tensors = ctx.saved_tensors
        if ctx.plan.reference is not None and torch.is_grad_enabled():
            return None, *_differentiable_gradients(ctx, x, tensors, grad_outputs)
        refuse_second_derivatives()
        x, tensors = x.detach(), [tensor.detach() for tensor in tensors]
        gradients = [
            _zeros(shape, hidden_states) if gradient is None else gradient
            for gradient, shape in zip(grad_outputs, ctx.shapes, strict=True)
        ]
        input_gradient = empty(x.shape, x) if ctx.needs_input_grad[1] else None
        grad_tensors = run_backward(
            ctx.plan,
            x,
            tensors,
            Trajectory(hidden_states, memory),
            ctx.slices,
            ctx.projections,
            gradients[0],
            gradients[1:],
            input_gradient,
        )
        return None, input_gradient, *grad_tensors


def _differentiable_gradients(
    ctx: Any, x: Tensor, tensors: list[Tensor], grad_outputs: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Return the gradients of input and tensors with a graph, through the plain recurrence."""
    output, finals = ctx.plan.reference(x, *ctx.plan.groups(tensors))
    pairs = zip((output, *finals), grad_outputs, strict=True)
    used = [(result, grad) for result, grad in pairs if grad is not None]
    inputs = [x, *tensors]
    needed = [
        tensor for tensor, needs in zip(inputs, ctx.needs_input_grad[1:], strict=True) if needs
    ]
    gradients = torch.autograd.grad(
        [result for result, _ in used],
        needed,
        [grad for _, grad in used],
        create_graph=True,
        allow_unused=True,
    )
    by_tensor = dict(zip(map(id, needed), gradients, strict=True))
    return [by_tensor.get(id(tensor)) for tensor in inputs]


def _zeros(shape: Sequence[int], like: Tensor) -> Tensor:
    """Return zeros for a missing gradient; of a sequence, one time expanded to all."""
    if len(shape) < 3:
        return like.new_zeros(shape)
    return like.new_zeros(1, *shape[1:]).expand(shape)


def _pass_class(step: Step, operator: Operator) -> type[Pass]:
    """Return the class of the pass for a step and an operator."""
    from undamped.kernels.coupled.compiled_pass import CompiledPass, StructuredPass

    if isinstance(operator, StructuredOperator):
        return StructuredPass
    return getattr(step.compiled, "PASS", CompiledPass)


def _passes(
    plan: Plan,
    slices: list[slice],
    x: Tensor,
    trajectory: Trajectory,
    tensors: Sequence[Tensor],
    projections: list[ProjectionPass] | None = None,
) -> list[Pass]:
    """Return the passes of all shards; the backward pass reuses the projections."""
    _, filters, input_tensors, linear, weights = plan.groups(tensors)
    hidden_states, memory = trajectory.hidden_states, trajectory.memory
    plan.operator.bind(linear)
    product = plan.operator.width or hidden_states.shape[2]
    projected = plan.projection.width(input_tensors)
    numbers = (slices[0].stop - slices[0].start) * (2 * product + projected)
    chunks = ranges(len(x), chunk_length(len(x), numbers * x.element_size(), COUPLED))
    make, passes = _pass_class(plan.step, plan.operator), []
    for at, shard in enumerate(slices):
        lengths = None if plan.lengths is None else plan.lengths.cpu()[shard]
        if projections is None:
            first = [part[shard].contiguous().clone() for part in filters]
            projection = plan.projection.begin(input_tensors, first, chunks, shard, lengths)
        else:
            projection = projections[at]
        arrays = Shard(
            x[:, shard],
            hidden_states[:, shard],
            None if memory is None else memory[:, shard],
            weights,
            lengths,
        )
        passes.append(
            make(plan.step, plan.operator, projection, arrays, (product, projected), chunks)
        )
    return passes


def _sums(parts: list[list[Tensor]]) -> list[Tensor]:
    """Sum the gradients of all shards."""
    if len(parts) == 1:
        return parts[0]
    return [torch.stack(same).sum(0) for same in zip(*parts, strict=True)]
