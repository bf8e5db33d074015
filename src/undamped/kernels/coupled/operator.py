"""`coupled_scan` as an operator of `torch.library`: one node for a compiler, with known shapes.

Eager calls do not come here (`scan`). What is not a tensor is handed over as names and numbers,
from which the plan is made again. The operator returns all states, which its gradient needs, and
leaves cutting out the outputs to what is traced around it. Where a projection filters in time, the
gradient runs it once more: how many chunks there are is not known while a length is a symbol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, List  # noqa: UP035

import torch
from torch import Tensor

from undamped.kernels.coupled import operators, projections, steps
from undamped.kernels.coupled.scan import (
    Plan,
    Trajectory,
    final_states,
    restart,
    run_backward,
    run_forward,
)
from undamped.kernels.shared.allocate import empty

ROOMS = (steps, operators, projections)


def scan_by_operator(
    plan: Plan, x: Tensor, tensors: list[Tensor]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Run a plan through the operator; return outputs and final state."""
    parts = (plan.step, plan.operator, plan.projection)
    described = [part.describe() for part in parts]
    states = _coupled_scan(
        " ".join([type(part).__name__ for part in parts]),
        [number for numbers, _ in described for number in numbers],
        [*plan.counts, *[len(part) for pair in described for part in pair]],
        x,
        tensors,
        [tensor for _, given in described for tensor in given],
        plan.lengths,
        plan.widths(tensors),
        plan.step.has_memory,
    )
    carried, _, *finals = states
    output = carried[1:, :, : plan.widths(tensors)[0]]
    if plan.lengths is not None:
        time = torch.arange(x.shape[0], device=x.device).unsqueeze(1)
        output = output.masked_fill((time >= plan.lengths).unsqueeze(-1), 0)
    return output, tuple(finals)


def _restored(
    kinds: str,
    numbers: Sequence[float],
    counts: Sequence[int],
    extras: Sequence[Tensor],
    lengths: Tensor | None,
) -> Plan:
    """Make the plan that names, numbers and tensors describe."""
    parts: list[Any] = []
    numbers, extras = list(numbers), list(extras)
    for at, (room, name) in enumerate(zip(ROOMS, kinds.split(), strict=True)):
        count, tensors = counts[5 + 2 * at : 7 + 2 * at]
        parts.append(getattr(room, name).restore(numbers[:count], extras[:tensors]))
        del numbers[:count], extras[:tensors]
    step, operator, projection = parts
    return Plan(step, operator, projection, tuple(counts[:5]), lengths)


@torch.library.custom_op("undamped::coupled_scan", mutates_args=(), device_types="cpu")
def _coupled_scan(
    kinds: str,
    numbers: Sequence[float],
    counts: Sequence[int],
    x: Tensor,
    tensors: Sequence[Tensor],
    extras: Sequence[Tensor],
    lengths: Tensor | None,
    widths: Sequence[int],
    has_memory: bool,
) -> List[Tensor]:  # noqa: UP006 (torch 2.6 reads no other spelling)
    plan = _restored(kinds, numbers, counts, extras, lengths)
    plain = [tensor.detach() for tensor in tensors]
    with torch.no_grad():
        trajectory, _, passes = run_forward(plan, x.detach(), plain)
        finals = final_states(plan, trajectory, list(widths), passes)
    memory = trajectory.memory
    return [trajectory.carried, x.new_empty(0) if memory is None else memory, *finals]


@_coupled_scan.register_fake
def _coupled_scan_shapes(
    kinds: str,
    numbers: Sequence[float],
    counts: Sequence[int],
    x: Tensor,
    tensors: Sequence[Tensor],
    extras: Sequence[Tensor],
    lengths: Tensor | None,
    widths: Sequence[int],
    has_memory: bool,
) -> list[Tensor]:
    steps, batch = x.shape[:2]
    states = tensors[: counts[0] + counts[1]]
    memory = x.new_empty(0)
    if has_memory:
        memory = x.new_empty(steps + 1, batch, tensors[counts[0] - 1].shape[1])
    finals = [part.new_empty(part.shape) for part in states]
    return [x.new_empty(steps + 1, batch, sum(widths)), memory, *finals]


@torch.library.custom_op("undamped::coupled_scan_backward", mutates_args=(), device_types="cpu")
def _coupled_scan_backward(
    kinds: str,
    numbers: Sequence[float],
    counts: Sequence[int],
    x: Tensor,
    tensors: Sequence[Tensor],
    extras: Sequence[Tensor],
    lengths: Tensor | None,
    widths: Sequence[int],
    carried: Tensor,
    memory: Tensor,
    output_gradient: Tensor,
    final_gradients: Sequence[Tensor],
    input_wanted: bool,
) -> List[Tensor]:  # noqa: UP006 (torch 2.6 reads no other spelling)
    plan = _restored(kinds, numbers, counts, extras, lengths)
    x, plain = x.detach(), [tensor.detach() for tensor in tensors]
    input_gradient = empty(x.shape if input_wanted else (0,), x)
    with torch.no_grad():
        trajectory = Trajectory(carried.detach(), memory.detach() if plan.step.has_memory else None)
        slices, passes = restart(plan, x, plain, trajectory)
        found = run_backward(
            plan,
            x,
            plain,
            trajectory,
            slices,
            passes,
            output_gradient[1:, :, : widths[0]].detach(),
            [part.detach() for part in final_gradients],
            input_gradient if input_wanted else None,
        )
    # An operator's answers share no memory, which parts of a state do.
    return [input_gradient, *[part.contiguous().clone() for part in found]]


@_coupled_scan_backward.register_fake
def _coupled_scan_backward_shapes(
    kinds: str,
    numbers: Sequence[float],
    counts: Sequence[int],
    x: Tensor,
    tensors: Sequence[Tensor],
    extras: Sequence[Tensor],
    lengths: Tensor | None,
    widths: Sequence[int],
    carried: Tensor,
    memory: Tensor,
    output_gradient: Tensor,
    final_gradients: Sequence[Tensor],
    input_wanted: bool,
) -> list[Tensor]:
    first = x.new_empty(x.shape) if input_wanted else x.new_empty(0)
    return [first, *[tensor.new_empty(tensor.shape) for tensor in tensors]]


def _save(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    kinds, numbers, counts, x, tensors, extras, lengths, widths, _ = inputs
    ctx.described, ctx.widths, ctx.sizes = (
        (kinds, numbers, counts),
        widths,
        (
            len(tensors),
            len(extras),
        ),
    )
    ctx.save_for_backward(x, lengths, output[0], output[1], *tensors, *extras)


def _differentiate(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    x, lengths, carried, memory, *rest = ctx.saved_tensors
    tensors, extras = rest[: ctx.sizes[0]], rest[ctx.sizes[0] :]
    wanted = ctx.needs_input_grad[3]
    input_gradient, *gradients = _coupled_scan_backward(
        *ctx.described,
        x,
        tensors,
        extras,
        lengths,
        ctx.widths,
        carried,
        memory,
        grads[0],
        grads[2:],
        wanted,
    )
    given = input_gradient if wanted else None
    none = None if ctx.described[1] else []  # torch takes an empty list for one of tensors
    return None, none, None, given, gradients, [None] * len(extras), None, None, None


_coupled_scan.register_autograd(_differentiate, setup_context=_save)
