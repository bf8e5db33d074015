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
from undamped.kernels.shared.operator import ScanOperator

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
    way = "operator" if torch.compiler.is_compiling() else "triton"
    outputs, last, _ = _scan(way, projected, forget, reset, memory, lengths)
    return outputs, last


def _forward(
    projected: Tensor, forget: Tensor, reset: Tensor, memory: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    from undamped.kernels.shared.gpu import launch, lengths_or
    from undamped.kernels.sru.gpu import light_forward

    inputs, last = projected.detach().contiguous(), contiguous_copy(memory)
    steps, (batch, hidden) = len(inputs), last.shape
    outputs = inputs.new_empty(steps, batch, hidden)
    memories = torch.empty_like(outputs)
    if outputs.numel():
        masked, remaining = lengths_or(lengths, last)
        weights = (forget.detach().contiguous(), reset.detach().contiguous())
        sizes = (steps, hidden, batch * hidden)
        arguments = (inputs, *weights, outputs, memories, last, remaining, *sizes)
        launch(light_forward, (batch, hidden), arguments, LENGTHS=masked)
    return outputs, last, memories  # the last for the backward pass alone


def _outputs(inputs: Any) -> Tensor:
    return inputs.projected.new_empty(len(inputs.projected), *inputs.memory.shape)


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

    grads, inputs, states = (t.detach().contiguous() for t in (grad_outputs, projected, memories))
    weights = (forget.detach().contiguous(), reset.detach().contiguous())
    steps, batch, hidden = states.shape
    flowing, grad_projected = contiguous_copy(grad_memory), torch.empty_like(inputs)
    sums = torch.zeros(2, batch, hidden, dtype=torch.float64, device=inputs.device)
    for start, stop in reversed(ranges(steps, SUMMED_STEPS) if states.numel() else []):
        masked, remaining = lengths_or(left(lengths, start, stop), flowing)
        part = slice(start, stop)
        first = (states[start - 1] if start else memory.detach()).contiguous()
        arguments = (inputs[part], *weights, states[part], first, grads[part], grad_projected[part])
        sizes = (stop - start, hidden, batch * hidden)
        launch(
            light_backward,
            (batch, hidden),
            (*arguments, flowing, *sums, remaining, *sizes),
            LENGTHS=masked,
        )
    grad_forget, grad_reset = sums.sum(1).to(forget.dtype)
    return grad_projected, grad_forget.clone(), grad_reset.clone(), flowing


_scan = ScanOperator(
    "light_scan",
    _forward,
    _backward,
    outputs={"outputs": _outputs, "last": "memory", "memories": _outputs},
    gradients=("projected", "forget", "reset", "memory"),
    device="cuda",
)
