"""`memory_scan` as an operator of `torch.library`: one node for a compiler, with known shapes.

Eager calls use `scan` instead. The operator returns outputs and the final memory only; its gradient
runs the pass again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, List  # noqa: UP035

import torch
from torch import Tensor

from undamped.kernels.memory.scan import run_shards, summed_gradients
from undamped.kernels.memory.shard import Marks, Plan, Shard
from undamped.kernels.shared.operator import ScanOperator


def scan_by_operator(
    plan: Plan, x: Tensor, tensors: dict[str, Tensor], marks: Marks
) -> tuple[Tensor, dict[str, Tensor]]:
    """Run a plan through the operator; return outputs and the parts of the final state."""
    choices = [plan.step, plan.alignment, plan.mix, plan.screening, plan.recent, plan.relevant]
    inputs = [tensors.get(name, x.new_empty(0)) for name in Shard.names]
    # Marks have no gradient.
    constants = [tensor.detach() for tensor in (marks.scores, marks.flags, marks.expected)]
    output, *final = _memory_scan("operator", choices, x, inputs, constants, plan.lengths)
    return output, dict(zip(Shard.finals, final, strict=True))


def _run(
    choices: Any, x: Tensor, tensors: Any, marks: Any, lengths: Tensor | None
) -> tuple[list[Any], Tensor, list[Tensor]]:
    """Run the forward pass that names, numbers and tensors describe."""
    named = {name: tensor.detach() for name, tensor in zip(Shard.names, tensors, strict=True)}
    with torch.no_grad():
        return run_shards(Shard, Plan(*choices, lengths=lengths), x.detach(), Marks(*marks), named)


def _forward(
    choices: Sequence[int],
    x: Tensor,
    tensors: Sequence[Tensor],
    marks: Sequence[Tensor],
    lengths: Tensor | None,
) -> List[Tensor]:  # noqa: UP006 (torch 2.6 reads no other spelling)
    _, output, final = _run(choices, x, tensors, marks, lengths)
    # The results of an operator must not share memory; outputs and a memory of all states do.
    return [output.contiguous().clone(), *final]


def _outputs(inputs: Any) -> list[Tensor]:
    x, (mixed, cell, slots, *_) = inputs.x, inputs.tensors
    scores, _, expected = inputs.marks
    steps, batch = x.shape[:2]
    hidden, grows = mixed.shape[1], inputs.choices[3] < 0
    count = slots.shape[0] + steps if grows else inputs.choices[4] + inputs.choices[5]
    return [
        x.new_empty(steps, batch, hidden),
        mixed.new_empty(mixed.shape),
        cell.new_empty(cell.shape),
        x.new_empty(count, batch, hidden),
        scores.new_empty(scores.shape if grows else (batch, count)),
        x.new_empty(batch, count),
        expected.new_empty(expected.shape),
    ]


def _backward(
    grad_results: Sequence[Tensor],
    choices: Sequence[int],
    x: Tensor,
    tensors: Sequence[Tensor],
    marks: Sequence[Tensor],
    lengths: Tensor | None,
) -> List[Tensor]:  # noqa: UP006 (torch 2.6 reads no other spelling)
    shards, _, _ = _run(choices, x, tensors, marks, lengths)
    with torch.no_grad():
        sums = summed_gradients(shards, [g.detach() for g in grad_results[: 1 + Shard.carried]])
    gradients = [
        sums.get(name, torch.zeros_like(tensor))
        for name, tensor in zip(Shard.names, tensors, strict=True)
    ]
    return [gradient.contiguous().clone() for gradient in (sums["x"], *gradients)]


_memory_scan = ScanOperator(
    "memory_scan", _forward, _backward, outputs=_outputs, gradients=("x", "tensors")
)
