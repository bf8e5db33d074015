"""A pass of a network with memory as one differentiable function.

The batch is shared among threads; a share (`BatchShare`) knows how to run through time, what to
keep and how to go back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from undamped.kernels.dispatch import through_operator
from undamped.kernels.memory.chunks import BatchShare
from undamped.kernels.shared.operator import refuse_second_derivatives
from undamped.kernels.shared.threads import run_in_parallel, split_batch


def memory_scan(
    kind: type[BatchShare], plan: Any, x: Tensor, tensors: dict[str, Tensor], marks: Any
) -> tuple[Tensor, dict[str, Tensor]]:
    """Run over (time, batch, input); return outputs and what a state is made of.

    Args:
        kind: What to run: `Share` or `SparseShare`.
        plan: What is not a tensor.
        x: The input.
        tensors: By the names in `kind.names`; those that are not there are empty.
        marks: What the memory knows besides states.
    """
    if through_operator(x):
        from undamped.kernels.memory.operator import scan_by_operator

        return scan_by_operator(plan, x, tensors, marks)
    given = [tensors.get(name, x.new_empty(0)) for name in kind.names]
    output, *final = _MemoryScan.apply(kind, plan, x, marks, *given)  # type: ignore[misc]
    return output, dict(zip(kind.finals, final, strict=True))


def run_shares(
    kind: type[BatchShare], plan: Any, x: Tensor, marks: Any, named: dict[str, Tensor]
) -> tuple[list[BatchShare], Tensor, list[Tensor]]:
    """Run the forward pass; return what the backward pass needs, outputs and final memory."""
    steps, batch, _ = x.shape
    parts = split_batch(steps, batch, 4 * named["key"].shape[0])
    shares = [kind(plan, part, x, marks, named) for part in parts]
    run_in_parallel([share.forward for share in shares], shares[0].multiplications)
    output = _joined([share.output for share in shares], 1)
    ends = zip(*(share.final() for share in shares), strict=True)
    final = [_joined(part, dim) for part, dim in zip(ends, kind.finals.values(), strict=True)]
    return shares, output, final


def summed_gradients(shares: list[BatchShare], gradients: Sequence[Tensor]) -> dict[str, Tensor]:
    """Run the backward pass; return the gradients by name, that of the input under "x"."""
    works = [partial(share.backward, *gradients) for share in shares]
    found = run_in_parallel(works, shares[0].multiplications)
    joined = {**type(shares[0]).batched, "x": 1}
    return {
        name: _joined(parts, joined[name]) if name in joined else _summed(parts)
        for name in found[0]
        for parts in [[part[name] for part in found]]
    }


class _MemoryScan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, kind: type[BatchShare], plan: Any, x: Tensor, marks: Any, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        named = {name: tensor.detach() for name, tensor in zip(kind.names, tensors, strict=True)}
        ctx.shares, output, final = run_shares(kind, plan, x.detach(), marks, named)
        # Kept so that changing them, or the outputs, before the backward pass is noticed.
        ctx.save_for_backward(x, *tensors, *(share.guarded for share in ctx.shares))
        ctx.mark_non_differentiable(*final[kind.carried :])
        return output, *final

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # type: ignore[override]
        refuse_second_derivatives()
        _ = ctx.saved_tensors
        kind = type(ctx.shares[0])
        sums = summed_gradients(ctx.shares, gradients[: 1 + kind.carried])
        wanted = zip(kind.names, ctx.needs_input_grad[4:], strict=True)
        return None, None, sums["x"], None, *(sums.get(n) if want else None for n, want in wanted)


def _joined(parts: Sequence[Tensor], dim: int) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim)


def _summed(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.stack(list(parts)).sum(0)
