"""`memory_scan`: a recurrence that attends to remembered states, as one differentiable pass."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from undamped.kernels.memory.plan import TENSORS, Marks, Plan
from undamped.kernels.memory.share import Share
from undamped.kernels.shared.eager_function import refuse_second_derivatives
from undamped.kernels.shared.threads import run_in_parallel, split_batch

FINALS = ("mixed", "cell", "slots", "scores", "seen", "expected")
"""What is known after the last step; `slots` is (slots, batch, hidden), all else (batch, …)."""


def memory_scan(
    plan: Plan, x: Tensor, tensors: dict[str, Tensor], marks: Marks
) -> tuple[Tensor, dict[str, Tensor]]:
    """Run over (time, batch, input); return hidden states and what a state is made of.

    Args:
        plan: What is not a tensor.
        x: The input.
        tensors: By the names in `TENSORS`.
        marks: What the memory knows besides states.
    """
    given = [tensors.get(name, x.new_empty(0)) for name in TENSORS]
    output, *final = _MemoryScan.apply(plan, x, marks, *given)  # type: ignore[misc]
    return output, dict(zip(FINALS, final, strict=True))


class _MemoryScan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, plan: Plan, x: Tensor, marks: Marks, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        named = {name: tensor.detach() for name, tensor in zip(TENSORS, tensors, strict=True)}
        steps, batch, _ = x.shape
        parts = split_batch(steps, batch, 4 * named["key"].shape[0])
        shares = [Share(plan, part, x.detach(), marks, named) for part in parts]
        run_in_parallel([share.forward for share in shares])
        finals = [share.finals() for share in shares]
        output = _joined([share.states[share.slots :] for share in shares], 1)
        mixed, cell, slots, *known = (
            _joined(list(parts), int(name == "slots"))
            for name, parts in zip(FINALS, zip(*finals, strict=True), strict=True)
        )
        ctx.shares = shares
        # Kept so that changing them, or the outputs, before the backward pass is noticed.
        ctx.save_for_backward(x, *tensors, *(share.states for share in shares))
        ctx.mark_non_differentiable(*known)
        return output, mixed.clone(), cell.clone(), slots, *known

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # type: ignore[override]
        refuse_second_derivatives()
        _ = ctx.saved_tensors
        output, mixed, cell, slots, *_ = gradients
        shares: list[Share] = ctx.shares
        found = run_in_parallel(
            [partial(share.backward, output, mixed, cell, slots) for share in shares]
        )
        sums = {
            name: _summed([part[name] for part in found])
            for name in TENSORS
            if name in found[0] and name not in ("mixed", "cell", "slots")
        }
        for name, dim in (("mixed", 0), ("cell", 0), ("slots", 1), ("x", 1)):
            sums[name] = _joined([part[name] for part in found], dim)
        wanted = ctx.needs_input_grad[3:]
        return (
            None,
            sums["x"],
            None,
            *(sums.get(name) if want else None for name, want in zip(TENSORS, wanted, strict=True)),
        )


def _joined(parts: Sequence[Tensor], dim: int) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim)


def _summed(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.stack(list(parts)).sum(0)
