"""A whole IndRNN layer as one operator: input product and scan, chunk by chunk in time.

The product of a chunk is written where its outputs belong, and the scan goes over it in place; on
the backward pass the gradient of what the product gave exists for one chunk only. So nothing of the
sequence's size is made but the outputs themselves.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from undamped.kernels.dispatch import implementation
from undamped.kernels.reference import reference_independent_scan
from undamped.kernels.shared.allocate import contiguous_copy, empty
from undamped.kernels.shared.call_checks import check_lengths, check_shapes
from undamped.kernels.shared.chunks import chunk_length, ranges, scan_bytes
from undamped.kernels.shared.lengths import remaining_by_column
from undamped.kernels.shared.operator import ScanOperator
from undamped.kernels.shared.row_stable_matmul import rows_times
from undamped.kernels.shared.threads import over_columns, single_threaded_if_small

Nonlinearity = Literal["relu", "tanh"]


def independent_layer(
    x: Tensor,
    input_weight: Tensor,
    bias: Tensor,
    weight: Tensor,
    state: Tensor,
    nonlinearity: Nonlinearity = "relu",
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Iterate h' = φ(w ⊙ h + V x + b).

    Args:
        x: (time, batch, input).
        input_weight: (hidden, input), V.
        bias: (hidden,), b.
        weight: (hidden,), w.
        state: Hidden state before the first step, (batch, hidden).
        nonlinearity: The function φ.
        lengths: (batch,), where sequences end: their states rest, their outputs are zero and
            their inputs are not looked at from there on.

    Returns:
        All hidden states (time, batch, hidden), and the last one (batch, hidden).
    """
    steps, batch, size = x.shape
    hidden = len(weight)
    check_shapes(
        "independent_layer",
        input_weight=(input_weight, (hidden, size)),
        bias=(bias, (hidden,)),
        weight=(weight, (hidden,)),
        state=(state, (batch, hidden)),
    )
    check_lengths("independent_layer", lengths, steps, batch)
    way = implementation(x, input_weight, bias, weight, state, gpu=True)
    if way == "reference":
        projected = torch.nn.functional.linear(x, input_weight, bias)
        return reference_independent_scan(projected, weight, state, nonlinearity, lengths)
    return _layer(way, x, input_weight, bias, weight, state, nonlinearity == "relu", lengths)


def _forward(
    x: Tensor,
    input_weight: Tensor,
    bias: Tensor,
    weight: Tensor,
    state: Tensor,
    relu: bool,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor]:
    from undamped.kernels.indrnn import compiled as kernels

    outputs, hidden = empty((*x.shape[:2], weight.shape[0]), x), contiguous_copy(state)
    if not outputs.numel():
        return outputs, hidden
    columns = hidden.numel()
    unused = np.zeros(columns, outputs.numpy().dtype)
    matrix, recurrent = input_weight.detach().t(), weight.detach().contiguous().numpy()
    with single_threaded_if_small(_product(x, weight)):
        for start, stop in _chunks(outputs):
            chunk = outputs[start:stop]
            rows = chunk.view(-1, chunk.shape[2])
            rows_times(_input(x, lengths, start, stop), matrix, rows)
            rows.add_(bias.detach())
            masked, remaining = remaining_by_column(lengths, start, stop, outputs.shape[2], unused)
            over_columns(
                kernels.forward(relu, masked),
                stop - start,
                columns,
                chunk.view(stop - start, columns).numpy(),
                recurrent,
                hidden.view(-1).numpy(),
                remaining,
            )
    return outputs, hidden


def _backward(
    grad_outputs: Tensor,
    grad_state: Tensor,
    outputs: Tensor,
    x: Tensor,
    input_weight: Tensor,
    bias: Tensor,
    weight: Tensor,
    state: Tensor,
    relu: bool,
    lengths: Tensor | None,
    needs_x: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    from undamped.kernels.indrnn import compiled as kernels

    gh, columns = contiguous_copy(grad_state), state.numel()
    grad_x = empty(x.shape if needs_x else (0,), x)
    grad_matrix, matrix = torch.zeros_like(input_weight), input_weight.detach()
    total, grad_bias = (
        torch.zeros(columns, dtype=torch.float64, device="cpu"),
        torch.zeros_like(weight),
    )
    if outputs.numel():
        chunks = _chunks(outputs)
        unused = np.zeros(columns, outputs.numpy().dtype)
        recurrent, outputs = weight.detach().contiguous().numpy(), outputs.contiguous()
        incoming = empty((chunks[0][1], *outputs.shape[1:]), outputs)
        gradients = empty(incoming.shape, outputs)
        with single_threaded_if_small(_product(x, weight)):
            for start, stop in reversed(chunks):
                steps = stop - start
                chunk, gradient = outputs[start:stop], gradients[:steps]
                masked, remaining = remaining_by_column(
                    lengths, start, stop, outputs.shape[2], unused
                )
                over_columns(
                    kernels.backward(relu, masked),
                    steps,
                    columns,
                    chunk.view(steps, columns).numpy(),
                    incoming[:steps].copy_(grad_outputs[start:stop]).view(steps, columns).numpy(),
                    gradient.view(steps, columns).numpy(),
                    _before(start, outputs, state).view(-1).numpy(),
                    recurrent,
                    gh.view(-1).numpy(),
                    total.numpy(),
                    remaining,
                )
                rows = gradient.view(-1, gradient.shape[2])
                grad_matrix.addmm_(rows.t(), _input(x, lengths, start, stop))
                grad_bias.add_(rows.sum(0))
                if needs_x:
                    torch.mm(rows, matrix, out=grad_x[start:stop].view(-1, x.shape[2]))
    elif needs_x:
        grad_x.zero_()
    grad_weight = total.view(-1, weight.shape[0]).sum(0).to(weight.dtype)
    return grad_x, grad_matrix, grad_bias, grad_weight, gh


def _product(x: Tensor, weight: Tensor) -> int:
    """How many multiplications the product of a chunk makes."""
    hidden = weight.shape[0]
    step_bytes = scan_bytes(x.shape[1] * hidden, 1, x.element_size())
    return chunk_length(x.shape[0], step_bytes) * x.shape[1] * x.shape[2] * hidden


def _chunks(outputs: Tensor) -> list[tuple[int, int]]:
    steps, batch, hidden = outputs.shape
    step_bytes = scan_bytes(batch * hidden, 1, outputs.element_size())
    return ranges(steps, chunk_length(steps, step_bytes))


def _input(x: Tensor, lengths: Tensor | None, start: int, stop: int) -> Tensor:
    """Return the input of a chunk as rows, with zeros where sequences are over."""
    chunk = x.detach()[start:stop]
    if lengths is not None and int(lengths.min()) < stop:
        over = torch.arange(start, stop, device="cpu").unsqueeze(1) >= lengths
        chunk = chunk.masked_fill(over.unsqueeze(-1), 0)
    return chunk.reshape(-1, x.shape[2])


def _before(start: int, outputs: Tensor, state: Tensor) -> Tensor:
    """Return the hidden state before a chunk; sequences that are over do not ask for theirs."""
    return contiguous_copy(outputs[start - 1] if start else state)


_layer = ScanOperator(
    "independent_layer",
    _forward,
    _backward,
    outputs={
        "outputs": lambda inputs: inputs.x.new_empty((*inputs.x.shape[:2], inputs.weight.shape[0])),
        "last": "state",
    },
    gradients=("x", "input_weight", "bias", "weight", "state"),
    gpu="undamped.kernels.indrnn.gpu_layer",
)
