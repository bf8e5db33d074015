"""`light_scan`: SRU's recurrence on GPUs as one operator. Experimental.

On the CPU the recurrence is a step of `coupled`, products included. Here the product is torch's own
and the scan is what is left: memories are kept, gates are computed again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from undamped.kernels.shared.allocate import contiguous_copy
from undamped.kernels.shared.chunks import ranges
from undamped.kernels.shared.eager_function import eager_function

SUMMED_STEPS = 1024
"""Steps whose gradients are summed in the type of the inputs, before a sum in double precision."""


def light_scan(
    projected: Tensor, forget: Tensor, reset: Tensor, memory: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Iterate the light recurrence on a GPU; see `cells.sru` for its equation.

    Args:
        projected: (time, batch, 4 × hidden): candidate, forget gate, reset gate, what passes by.
        forget: (hidden,), recurrent weight of the forget gate.
        reset: (hidden,), recurrent weight of the reset gate.
        memory: (batch, hidden), before the first step.
        lengths: (batch,), where sequences end: their memories rest and their outputs are zero.

    Returns:
        Outputs (time, batch, hidden), and the memory after the last step.
    """
    run = _scan if torch.compiler.is_compiling() else _eager_scan
    outputs, last, _ = run(projected, forget, reset, memory, lengths)
    return outputs, last


def _forward(
    projected: Tensor, forget: Tensor, reset: Tensor, memory: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    from undamped.kernels.shared.gpu import launch, lengths_or
    from undamped.kernels.sru.gpu import light_forward

    given, last = projected.detach().contiguous(), contiguous_copy(memory)
    steps, (batch, hidden) = len(given), last.shape
    outputs = given.new_empty(steps, batch, hidden)
    memories = torch.empty_like(outputs)
    if outputs.numel():
        masked, remaining = lengths_or(lengths, last)
        weights = (forget.detach().contiguous(), reset.detach().contiguous())
        sizes = (steps, hidden, batch * hidden)
        arguments = (given, *weights, outputs, memories, last, remaining, *sizes)
        launch(light_forward, (batch, hidden), arguments, LENGTHS=masked)
    return outputs, last, memories  # the last for the backward pass alone


_scan = torch.library.custom_op(
    "undamped::light_scan", _forward, mutates_args=(), device_types="cuda"
)


@_scan.register_fake
def _scan_shapes(
    projected: Tensor, forget: Tensor, reset: Tensor, memory: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    shape = (projected.shape[0], *memory.shape)
    return projected.new_empty(shape), memory.new_empty(memory.shape), projected.new_empty(shape)


def _backward(
    grad_outputs: Tensor,
    grad_memory: Tensor,
    projected: Tensor,
    forget: Tensor,
    reset: Tensor,
    memory: Tensor,
    memories: Tensor,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from undamped.kernels.shared.gpu import launch, left, lengths_or
    from undamped.kernels.sru.gpu import light_backward

    given, seen, kept = (t.detach().contiguous() for t in (grad_outputs, projected, memories))
    weights = (forget.detach().contiguous(), reset.detach().contiguous())
    steps, batch, hidden = kept.shape
    flowing, grad_projected = contiguous_copy(grad_memory), torch.empty_like(seen)
    sums = torch.zeros(2, batch, hidden, dtype=torch.float64, device=seen.device)
    for start, stop in reversed(ranges(steps, SUMMED_STEPS) if kept.numel() else []):
        masked, remaining = lengths_or(left(lengths, start, stop), flowing)
        part = slice(start, stop)
        first = (kept[start - 1] if start else memory.detach()).contiguous()
        arguments = (seen[part], *weights, kept[part], first, given[part], grad_projected[part])
        sizes = (stop - start, hidden, batch * hidden)
        launch(
            light_backward,
            (batch, hidden),
            (*arguments, flowing, *sums, remaining, *sizes),
            LENGTHS=masked,
        )
    grad_forget, grad_reset = sums.sum(1).to(forget.dtype)
    return grad_projected, grad_forget.clone(), grad_reset.clone(), flowing


_scan_backward = torch.library.custom_op(
    "undamped::light_scan_backward", _backward, mutates_args=(), device_types="cuda"
)


@_scan_backward.register_fake
def _scan_backward_shapes(
    grad_outputs: Tensor,
    grad_memory: Tensor,
    projected: Tensor,
    forget: Tensor,
    reset: Tensor,
    memory: Tensor,
    memories: Tensor,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    a, b, c, d = (like.new_empty(like.shape) for like in (projected, forget, reset, memory))
    return a, b, c, d


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, lengths = inputs
    ctx.mark_non_differentiable(output[2])
    ctx.save_for_backward(*tensors, output[2], lengths)


def _differentiate(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    return (*_scan_backward(*grads[:2], *ctx.saved_tensors), None)


_scan.register_autograd(_differentiate, setup_context=_save)
_eager_scan = eager_function(
    _forward, _save, lambda ctx, *grads: (*_backward(*grads[:2], *ctx.saved_tensors), None)
)
