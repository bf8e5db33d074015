"""A whole IndRNN layer as one operator: input product and scan, chunk by chunk in time.

The product of a chunk is written to the memory of its outputs, and the scan works in place; in the
backward pass the gradient of the product exists for one chunk only. So nothing of the sequence's
size is allocated except the outputs.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from undamped.kernels.dispatch import implementation, runs_triton
from undamped.kernels.reference import reference_independent_scan
from undamped.kernels.shared.allocate import contiguous_copy, empty
from undamped.kernels.shared.call_checks import check_lengths, check_shapes
from undamped.kernels.shared.chunks import ranges
from undamped.kernels.shared.columns import Columns, columns_for, input_rows
from undamped.kernels.shared.operator import ScanOperator
from undamped.kernels.shared.row_stable_matmul import rows_times
from undamped.kernels.shared.threads import single_threaded_if_small

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
        lengths: (batch,), where sequences end: after that their states stay, their outputs are zero
            and their inputs are not read.

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
    outputs, hidden = empty((*x.shape[:2], weight.shape[0]), x), contiguous_copy(state)
    if not outputs.numel():
        return outputs, hidden
    columns = columns_for(x)
    kernel = columns.kernels("indrnn")["relu_forward" if relu else "tanh_forward"]
    matrix, recurrent = input_weight.detach().t(), weight.detach().contiguous().unsqueeze(0)
    shortest = columns.shortest(lengths, len(x))
    chunks, product = _chunks(columns, x, weight.shape[0])
    with single_threaded_if_small(product):
        for start, stop in chunks:
            chunk = outputs[start:stop]
            rows = chunk.view(-1, chunk.shape[2])
            rows_times(input_rows(x, lengths, shortest, start, stop), matrix, rows)
            rows.add_(bias.detach())
            remaining = columns.remaining(lengths, start, stop)
            columns.run(kernel, [chunk], recurrent, hidden.unsqueeze(0), remaining=remaining)
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
    grad_hidden, grad_x = contiguous_copy(grad_state), empty(x.shape if needs_x else (0,), x)
    grad_matrix, grad_bias = torch.zeros_like(input_weight), torch.zeros_like(weight)
    sums = torch.zeros(1, *state.shape, dtype=torch.float64, device=state.device)
    if outputs.numel():
        columns = columns_for(x)
        kernel = columns.kernels("indrnn")["relu_backward" if relu else "tanh_backward"]
        chunks, product = _chunks(columns, x, weight.shape[0])
        outputs = outputs.contiguous()
        matrix, recurrent = input_weight.detach(), weight.detach().contiguous().unsqueeze(0)
        grad_rows, gradients = (
            empty((chunks[0][1], *outputs.shape[1:]), outputs) for _ in range(2)
        )
        shortest = columns.shortest(lengths, len(x))
        # The compiled loop reads the outputs as two sequences, one of them delayed by a step.
        copies = 1 if runs_triton(x) else 2
        with single_threaded_if_small(product):
            for start, stop in reversed(chunks):
                chunk, gradient = outputs[start:stop], gradients[: stop - start]
                grad_chunk = grad_rows[: stop - start].copy_(grad_outputs[start:stop])
                columns.run(
                    kernel,
                    [*[chunk] * copies, grad_chunk, gradient],
                    recurrent,
                    grad_hidden.unsqueeze(0),
                    sums=sums,
                    # Where a sequence has ended, the zeros before a chunk are not read.
                    first=outputs[start - 1] if start else state.detach().contiguous(),
                    remaining=columns.remaining(lengths, start, stop),
                )
                rows = gradient.view(-1, gradient.shape[2])
                grad_matrix.addmm_(rows.t(), input_rows(x, lengths, shortest, start, stop))
                grad_bias.add_(rows.sum(0))
                if needs_x:
                    torch.mm(rows, matrix, out=grad_x[start:stop].view(-1, x.shape[2]))
    elif needs_x:
        grad_x.zero_()
    return grad_x, grad_matrix, grad_bias, sums[0].sum(0).to(weight.dtype), grad_hidden


def _chunks(columns: Columns, x: Tensor, hidden: int) -> tuple[list[tuple[int, int]], int]:
    """Return the chunks of time, and the multiplications of the product of one."""
    steps, batch, size = x.shape
    chunk = columns.chunk(steps, batch * hidden, 1, x.element_size())
    return ranges(steps, chunk), chunk * batch * size * hidden


_layer = ScanOperator(
    "independent_layer",
    _forward,
    _backward,
    outputs={
        "outputs": lambda inputs: inputs.x.new_empty((*inputs.x.shape[:2], inputs.weight.shape[0])),
        "last": "state",
    },
    gradients=("x", "input_weight", "bias", "weight", "state"),
    devices=("cpu", "cuda"),
)
