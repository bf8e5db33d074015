"""`coupled_scan` as an operator of `torch.library`: one node for a compiler, with known shapes.

Eager calls use `scan` instead. Arguments other than tensors are passed as names and numbers, from
which the plan is restored. The operator returns all states, which its gradient needs; slicing the
outputs is part of the traced graph. Where a projection filters in time, the backward pass runs it
again: the number of chunks is unknown while a length is a symbol.
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
from undamped.kernels.shared.operator import ScanOperator

PACKAGES = (steps, operators, projections)


def scan_by_operator(
    plan: Plan, x: Tensor, tensors: list[Tensor]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Run a plan through the operator; return outputs and final state."""
    parts = (plan.step, plan.operator, plan.projection)
    described = [part.describe() for part in parts]
    states = _coupled_scan(
        "operator",
        " ".join([type(part).__name__ for part in parts]),
        [number for numbers, _ in described for number in numbers],
        [*plan.counts, *[len(part) for pair in described for part in pair]],
        x,
        tensors,
        [tensor for _, constants in described for tensor in constants],
        plan.lengths,
        plan.widths(tensors),
        plan.step.has_memory,
    )
    hidden_states, _, *finals = states
    output = hidden_states[1:, :, : plan.widths(tensors)[0]]
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
    """Restore the plan that names, numbers and tensors describe."""
    parts: list[Any] = []
    numbers, extras = list(numbers), list(extras)
    for at, (package, name) in enumerate(zip(PACKAGES, kinds.split(), strict=True)):
        count, tensors = counts[5 + 2 * at : 7 + 2 * at]
        parts.append(getattr(package, name).restore(numbers[:count], extras[:tensors]))
        del numbers[:count], extras[:tensors]
    step, operator, projection = parts
    return Plan(step, operator, projection, tuple(counts[:5]), lengths)


def _forward(
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
    return [trajectory.hidden_states, x.new_empty(0) if memory is None else memory, *finals]


def _outputs(inputs: Any) -> list[Tensor]:
    x, tensors, counts = inputs.x, inputs.tensors, inputs.counts
    steps, batch = x.shape[:2]
    memory = x.new_empty(0)
    if inputs.has_memory:
        memory = x.new_empty(steps + 1, batch, tensors[counts[0] - 1].shape[1])
    finals = [part.new_empty(part.shape) for part in tensors[: counts[0] + counts[1]]]
    return [x.new_empty(steps + 1, batch, sum(inputs.widths)), memory, *finals]


def _backward(
    grad_results: Sequence[Tensor],
    kinds: str,
    numbers: Sequence[float],
    counts: Sequence[int],
    x: Tensor,
    tensors: Sequence[Tensor],
    extras: Sequence[Tensor],
    lengths: Tensor | None,
    widths: Sequence[int],
    results: Sequence[Tensor],
    needs_x: bool,
) -> List[Tensor]:  # noqa: UP006 (torch 2.6 reads no other spelling)
    plan = _restored(kinds, numbers, counts, extras, lengths)
    x, plain = x.detach(), [tensor.detach() for tensor in tensors]
    grad_states, _, *grad_finals = (gradient.detach() for gradient in grad_results)
    grad_x = empty(x.shape if needs_x else (0,), x)
    hidden_states, memory = (states.detach() for states in results[:2])
    with torch.no_grad():
        trajectory = Trajectory(hidden_states, memory if plan.step.has_memory else None)
        slices, passes = restart(plan, x, plain, trajectory)
        gradients = run_backward(
            plan,
            x,
            plain,
            trajectory,
            slices,
            passes,
            grad_states[1:, :, : widths[0]],
            grad_finals,
            grad_x if needs_x else None,
        )
    # The results of an operator must not share memory; parts of a state do.
    return [grad_x, *[gradient.contiguous().clone() for gradient in gradients]]


_coupled_scan = ScanOperator(
    "coupled_scan", _forward, _backward, outputs=_outputs, gradients=("x", "tensors")
)
