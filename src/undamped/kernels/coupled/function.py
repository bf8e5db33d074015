"""The autograd function of `coupled_scan`: shares of the batch go out, their gradients meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from undamped.errors import OptionError, explain
from undamped.kernels.coupled.contract import Operator, Step
from undamped.kernels.coupled.passes import Share, Walk, chunk_steps
from undamped.kernels.coupled.projections.linear import Projection
from undamped.kernels.shared.allocate import room
from undamped.kernels.shared.chunks import ranges
from undamped.kernels.shared.threads import batch_parts, in_parallel


@dataclass(frozen=True)
class Plan:
    """What is not a tensor.

    Args:
        step: The elementwise part.
        operator: The linear part.
        projection: What turns the input into what the step reads.
        counts: How many tensors are the first state, the projection's first state, the
            projection's, the operator's, the step's.
        lengths: (batch,) where sequences are over, or None.
    """

    step: Step
    operator: Operator
    projection: Projection
    counts: tuple[int, ...]
    lengths: Tensor | None

    def groups(self, tensors: Sequence[Any]) -> list[list[Any]]:
        """Split tensors, or their gradients, by what they belong to."""
        parts, start = [], 0
        for count in self.counts:
            parts.append(list(tensors[start : start + count]))
            start += count
        return parts


def walk_through(
    plan: Plan, x: Tensor, tensors: Sequence[Tensor]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Run the scan; return outputs and final state."""
    output, *finals = _CoupledScan.apply(plan, x, *tensors)  # type: ignore[misc]
    return output, tuple(finals)


class _CoupledScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: Plan, x: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        x = x.detach()
        detached = [tensor.detach() for tensor in tensors]
        states, filters, *_ = plan.groups(detached)
        steps, batch = x.shape[:2]
        read = states[:-1] if plan.step.has_memory else states
        widths = [part.shape[1] for part in read]
        carried = room((steps + 1, batch, sum(widths)), x)
        torch.cat(read, dim=1, out=carried[0])
        memory = None
        if plan.step.has_memory:
            memory = room((steps + 1, batch, states[-1].shape[1]), x)
            memory[0] = states[-1]
        slices = batch_parts(steps, batch, carried.shape[2])
        walks = _walks(plan, slices, x, carried, memory, detached)
        in_parallel([walk.forward for walk in walks])
        ctx.plan, ctx.widths = plan, widths
        # Where the filters stood at the start of each chunk, which the way back begins from.
        ctx.slices, ctx.projections = slices, [walk.projection for walk in walks]
        ctx.save_for_backward(x, carried, memory, *detached)
        finals = [part.clone() for part in carried[-1].split(widths, dim=1)]
        if memory is not None:
            finals.append(memory[-1].clone())
        finals += [
            torch.cat([walk.projection.state[i] for walk in walks]) for i in range(len(filters))
        ]
        output = carried[1:, :, : widths[0]]
        if plan.lengths is not None:
            time = torch.arange(steps, device="cpu").unsqueeze(1)
            output = output.masked_fill((time >= plan.lengths.cpu()).unsqueeze(-1), 0)
        return output, *finals

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # type: ignore[override]
        if torch.is_grad_enabled():
            raise OptionError(
                explain(
                    "second derivatives of a recurrent network",
                    expected="a forward pass inside `with undamped.plain_loops():`",
                    got="one by the compiled kernels, which have first derivatives only",
                    remedy="Wrap the forward pass, or leave create_graph=True out.",
                )
            )
        output_gradient, *final_gradients = gradients
        plan = ctx.plan
        x, carried, memory, *tensors = ctx.saved_tensors
        state_count, filter_count = plan.counts[:2]
        flow = torch.cat(final_gradients[: len(ctx.widths)], dim=1)
        memory_flow = None
        if memory is not None:
            memory_flow = final_gradients[state_count - 1].contiguous().clone()
        input_gradient = room(x.shape, x) if ctx.needs_input_grad[1] else None
        slices = ctx.slices
        walks = _walks(plan, slices, x, carried, memory, tensors, ctx.projections)
        for share, walk in zip(slices, walks, strict=True):
            walk.projection.turn(
                [part[share].contiguous().clone() for part in final_gradients[state_count:]]
            )
        in_parallel(
            [
                partial(
                    walk.backward,
                    output_gradient[:, share],
                    flow[share],
                    None if memory_flow is None else memory_flow[share],
                    None if input_gradient is None else input_gradient[:, share],
                )
                for share, walk in zip(slices, walks, strict=True)
            ]
        )
        state_gradients = list(flow.split(ctx.widths, dim=1))
        if memory_flow is not None:
            state_gradients.append(memory_flow)
        filter_gradients = [
            torch.cat([walk.projection.state_flow[i] for walk in walks])
            for i in range(filter_count)
        ]
        return (
            None,
            input_gradient,
            *state_gradients,
            *filter_gradients,
            *_sums([walk.projection.tensor_gradients for walk in walks]),
            *_sums([walk.linear_gradients for walk in walks]),
            *_sums([walk.parameter_gradients for walk in walks]),
        )


def _walks(
    plan: Plan,
    slices: list[slice],
    x: Tensor,
    carried: Tensor,
    memory: Tensor | None,
    tensors: Sequence[Tensor],
    projections: list[Any] | None = None,
) -> list[Walk]:
    """Give each thread its share of the batch; the way back has the projections of that there."""
    _, filters, input_tensors, linear, parameters = plan.groups(tensors)
    steps = x.shape[0]
    plan.operator.bind(linear)
    product = plan.operator.width or carried.shape[2]
    projected = plan.projection.width(input_tensors)
    numbers = (slices[0].stop - slices[0].start) * (2 * product + projected)
    chunks = ranges(steps, chunk_steps(steps, numbers * x.element_size()))
    walks = []
    for at, share in enumerate(slices):
        lengths = None if plan.lengths is None else plan.lengths.cpu()[share]
        if projections is None:
            first = [part[share].contiguous().clone() for part in filters]
            projection = plan.projection.walk(input_tensors, first, chunks, share, lengths)
        else:
            projection = projections[at]
        arrays = Share(
            x[:, share],
            carried[:, share],
            None if memory is None else memory[:, share],
            parameters,
            lengths,
        )
        walk = plan.step.walk(plan.operator)
        walks.append(
            walk(plan.step, plan.operator, projection, arrays, (product, projected), chunks)
        )
    return walks


def _sums(parts: list[list[Tensor]]) -> list[Tensor]:
    """Add up the gradients of all shares."""
    if len(parts) == 1:
        return parts[0]
    return [torch.stack(same).sum(0) for same in zip(*parts, strict=True)]
