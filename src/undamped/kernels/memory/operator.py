"""`memory_scan` as an operator of `torch.library`: one node for a compiler, with known shapes.

Eager calls do not come here (`scan`). Only outputs and the final memory leave the operator; its
gradient runs the pass again for what else it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, List  # noqa: UP035

import torch
from torch import Tensor

from undamped.kernels.memory.plan import TENSORS, Marks, Plan
from undamped.kernels.memory.scan import run_shares, summed_gradients
from undamped.kernels.memory.share import Share


def scan_by_operator(
    plan: Plan, x: Tensor, tensors: dict[str, Tensor], marks: Marks
) -> tuple[Tensor, dict[str, Tensor]]:
    """Run a plan through the operator; return outputs and what a state is made of."""
    choices = [plan.step, plan.alignment, plan.mix, plan.screening, plan.recent, plan.kept]
    given = [tensors.get(name, x.new_empty(0)) for name in TENSORS]
    # Nothing is differentiated through marks.
    known = [tensor.detach() for tensor in (marks.scores, marks.seen, marks.expected)]
    output, *final = _memory_scan(choices, x, given, known, plan.lengths)
    return output, dict(zip(Share.finals, final, strict=True))


def _shares(
    choices: Sequence[int],
    x: Tensor,
    tensors: Sequence[Tensor],
    marks: Sequence[Tensor],
    lengths: Tensor | None,
) -> tuple[list[Any], Tensor, list[Tensor]]:
    """Run the forward pass that names, numbers and tensors describe."""
    named = {name: tensor.detach() for name, tensor in zip(TENSORS, tensors, strict=True)}
    step, alignment, mix, screening, recent, kept = choices
    plan = Plan(step, alignment, mix, screening, recent, kept, lengths)
    with torch.no_grad():
        return run_shares(Share, plan, x.detach(), Marks(*marks), named)


@torch.library.custom_op("undamped::memory_scan", mutates_args=(), device_types="cpu")
def _memory_scan(
    choices: Sequence[int],
    x: Tensor,
    tensors: Sequence[Tensor],
    marks: Sequence[Tensor],
    lengths: Tensor | None,
) -> List[Tensor]:  # noqa: UP006 (torch 2.6 reads no other spelling)
    _, output, final = _shares(choices, x, tensors, marks, lengths)
    # An operator's answers share no memory, which outputs and a memory of all states do.
    return [output.contiguous().clone(), *final]


@_memory_scan.register_fake
def _memory_scan_shapes(
    choices: Sequence[int],
    x: Tensor,
    tensors: Sequence[Tensor],
    marks: Sequence[Tensor],
    lengths: Tensor | None,
) -> list[Tensor]:
    steps, batch = x.shape[:2]
    mixed, cell, slots = tensors[:3]
    scores, _, expected = marks
    hidden, grows = mixed.shape[1], choices[3] < 0
    count = slots.shape[0] + steps if grows else choices[4] + choices[5]
    return [
        x.new_empty(steps, batch, hidden),
        mixed.new_empty(mixed.shape),
        cell.new_empty(cell.shape),
        x.new_empty(count, batch, hidden),
        scores.new_empty(scores.shape if grows else (batch, count)),
        x.new_empty(batch, count),
        expected.new_empty(expected.shape),
    ]


@torch.library.custom_op("undamped::memory_scan_backward", mutates_args=(), device_types="cpu")
def _memory_scan_backward(
    choices: Sequence[int],
    x: Tensor,
    tensors: Sequence[Tensor],
    marks: Sequence[Tensor],
    lengths: Tensor | None,
    gradients: Sequence[Tensor],
) -> List[Tensor]:  # noqa: UP006 (torch 2.6 reads no other spelling)
    shares, _, _ = _shares(choices, x, tensors, marks, lengths)
    with torch.no_grad():
        sums = summed_gradients(shares, [part.detach() for part in gradients])
    found = [sums.get(name) for name in TENSORS]
    return [
        sums["x"].contiguous().clone(),
        *(
            torch.zeros_like(tensor) if part is None else part.contiguous().clone()
            for tensor, part in zip(tensors, found, strict=True)
        ),
    ]


@_memory_scan_backward.register_fake
def _memory_scan_backward_shapes(
    choices: Sequence[int],
    x: Tensor,
    tensors: Sequence[Tensor],
    marks: Sequence[Tensor],
    lengths: Tensor | None,
    gradients: Sequence[Tensor],
) -> list[Tensor]:
    return [x.new_empty(x.shape), *(tensor.new_empty(tensor.shape) for tensor in tensors)]


def _save(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    choices, x, tensors, marks, lengths = inputs
    ctx.choices, ctx.sizes = choices, (len(tensors), len(marks))
    ctx.save_for_backward(x, lengths, *tensors, *marks)


def _differentiate(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    x, lengths, *rest = ctx.saved_tensors
    tensors, marks = rest[: ctx.sizes[0]], rest[ctx.sizes[0] :]
    x_gradient, *gradients = _memory_scan_backward(
        ctx.choices, x, tensors, marks, lengths, grads[: 1 + Share.carried]
    )
    return None, x_gradient, gradients, [None] * len(marks), None


_memory_scan.register_autograd(_differentiate, setup_context=_save)
