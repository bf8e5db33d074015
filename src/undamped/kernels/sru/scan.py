"""`light_scan`: SRU's recurrence on GPUs as one operator. Experimental.

On the CPU the recurrence is a step of `coupled`, products included. Here the product is torch's,
and the scan saves memories and recomputes gates.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from undamped.kernels.shared.allocate import contiguous_copy
from undamped.kernels.shared.chunks import ranges
from undamped.kernels.shared.columns import GPUColumns
from undamped.kernels.shared.operator import ScanOperator

SUMMED_STEPS = 1024
"""Steps whose gradients are summed in the dtype of the inputs before they are added in double."""


def light_scan(
    projected: Tensor, forget: Tensor, reset: Tensor, memory: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Iterate the light recurrence on a GPU; see `cells.sru` for its equation.

    Args:
        projected: (time, batch, 4 × hidden): candidate, forget gate, reset gate, highway
            connection.
        forget: (hidden,), recurrent weight of the forget gate.
        reset: (hidden,), recurrent weight of the reset gate.
        memory: (batch, hidden), before the first step.
        lengths: (batch,), where sequences end: after that their memories stay and their outputs are
            zero.

    Returns:
        Outputs (time, batch, hidden), and the memory after the last step.
    """
    way = "operator" if torch.compiler.is_compiling() else "triton"
    outputs, last, _ = _scan(way, projected, forget, reset, memory, lengths)
    return outputs, last


def _forward(
    projected: Tensor, forget: Tensor, reset: Tensor, memory: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    inputs, last = projected.detach().contiguous(), contiguous_copy(memory)
    outputs = inputs.new_empty(len(inputs), *memory.shape)
    memories, columns = torch.empty_like(outputs), GPUColumns()
    if outputs.numel():
        columns.run(
            columns.kernels("sru")["forward"],
            [inputs, memories, outputs],
            torch.stack([forget.detach(), reset.detach()]),
            last.unsqueeze(0),
            remaining=columns.remaining(lengths, 0, len(inputs)),
        )
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
    tensors = (memories, projected, grad_outputs, memory)
    states, inputs, grads, begin = (tensor.detach().contiguous() for tensor in tensors)
    grad_state, grad_projected = contiguous_copy(grad_memory), torch.empty_like(inputs)
    sums = torch.zeros(2, *memory.shape, dtype=torch.float64, device=inputs.device)
    columns = GPUColumns()
    for start, stop in reversed(ranges(len(states), SUMMED_STEPS) if states.numel() else []):
        columns.run(
            columns.kernels("sru")["backward"],
            [sequence[start:stop] for sequence in (states, inputs, grads, grad_projected)],
            torch.stack([forget.detach(), reset.detach()]),
            grad_state.unsqueeze(0),
            sums=sums,
            first=states[start - 1] if start else begin,
            remaining=columns.remaining(lengths, start, stop),
        )
    grad_forget, grad_reset = sums.sum(1).to(forget.dtype)
    return grad_projected, grad_forget.clone(), grad_reset.clone(), grad_state


_scan = ScanOperator(
    "light_scan",
    _forward,
    _backward,
    outputs={"outputs": _outputs, "last": "memory", "memories": _outputs},
    gradients=("projected", "forget", "reset", "memory"),
    devices=("cuda",),
)
