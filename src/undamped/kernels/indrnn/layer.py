"""A whole IndRNN layer as one operator: input product and scan, chunk by chunk in time.

The product of a chunk is written where its outputs belong, and the scan goes over it in place; on
the backward pass the gradient of what the product gave exists for one chunk only. So nothing of the
sequence's size is made but the outputs themselves.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from undamped.kernels.dispatch import implementation
from undamped.kernels.reference import reference_independent_scan
from undamped.kernels.shared.allocate import contiguous_copy, empty
from undamped.kernels.shared.call_checks import check_lengths, check_shapes
from undamped.kernels.shared.chunks import chunk_length, ranges, scan_bytes
from undamped.kernels.shared.eager_function import eager_function
from undamped.kernels.shared.lengths import remaining_by_column
from undamped.kernels.shared.row_stable_matmul import rows_times
from undamped.kernels.shared.threads import alone_if_small, over_columns

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
    run = {"operator": _layer, "numba": _eager_layer, "triton": _gpu_layer}[way]
    return run(x, input_weight, bias, weight, state, nonlinearity == "relu", lengths)


def _forward(
    x: Tensor,
    input_weight: Tensor,
    bias: Tensor,
    weight: Tensor,
    state: Tensor,
    relu: bool,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor]:
    with alone_if_small(_product(x, weight)):
        return _run_forward(x, input_weight, bias, weight, state, relu, lengths)


def _run_forward(
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
    for start, stop in _chunks(outputs):
        piece = outputs[start:stop]
        rows = piece.view(-1, piece.shape[2])
        rows_times(_input(x, lengths, start, stop), matrix, rows)
        rows.add_(bias.detach())
        masked, remaining = remaining_by_column(lengths, start, stop, outputs.shape[2], unused)
        over_columns(
            kernels.forward(relu, masked),
            stop - start,
            columns,
            piece.view(stop - start, columns).numpy(),
            recurrent,
            hidden.view(-1).numpy(),
            remaining,
        )
    return outputs, hidden


_layer = torch.library.custom_op(
    "undamped::independent_layer", _forward, mutates_args=(), device_types="cpu"
)


@_layer.register_fake
def _layer_shapes(
    x: Tensor,
    input_weight: Tensor,
    bias: Tensor,
    weight: Tensor,
    state: Tensor,
    relu: bool,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor]:
    return x.new_empty((*x.shape[:2], weight.shape[0])), state.new_empty(state.shape)


def _backward(
    grad_outputs: Tensor,
    grad_state: Tensor,
    outputs: Tensor,
    x: Tensor,
    input_weight: Tensor,
    weight: Tensor,
    state: Tensor,
    relu: bool,
    lengths: Tensor | None,
    input_wanted: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    with alone_if_small(_product(x, weight)):
        return _run_backward(
            grad_outputs,
            grad_state,
            outputs,
            x,
            input_weight,
            weight,
            state,
            relu,
            lengths,
            input_wanted,
        )


def _run_backward(
    grad_outputs: Tensor,
    grad_state: Tensor,
    outputs: Tensor,
    x: Tensor,
    input_weight: Tensor,
    weight: Tensor,
    state: Tensor,
    relu: bool,
    lengths: Tensor | None,
    input_wanted: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    from undamped.kernels.indrnn import compiled as kernels

    gh, columns = contiguous_copy(grad_state), state.numel()
    grad_x = empty(x.shape if input_wanted else (0,), x)
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
        for start, stop in reversed(chunks):
            steps = stop - start
            piece, gradient = outputs[start:stop], gradients[:steps]
            masked, remaining = remaining_by_column(lengths, start, stop, outputs.shape[2], unused)
            over_columns(
                kernels.backward(relu, masked),
                steps,
                columns,
                piece.view(steps, columns).numpy(),
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
            if input_wanted:
                torch.mm(rows, matrix, out=grad_x[start:stop].view(-1, x.shape[2]))
    elif input_wanted:
        grad_x.zero_()
    grad_weight = total.view(-1, weight.shape[0]).sum(0).to(weight.dtype)
    return grad_x, grad_matrix, grad_bias, grad_weight, gh


_layer_backward = torch.library.custom_op(
    "undamped::independent_layer_backward", _backward, mutates_args=(), device_types="cpu"
)


@_layer_backward.register_fake
def _layer_backward_shapes(
    grad_outputs: Tensor,
    grad_state: Tensor,
    outputs: Tensor,
    x: Tensor,
    input_weight: Tensor,
    weight: Tensor,
    state: Tensor,
    relu: bool,
    lengths: Tensor | None,
    input_wanted: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    grad_x = x.new_empty(x.shape if input_wanted else (0,))
    a, b, c, d = (like.new_empty(like.shape) for like in (input_weight, weight, weight, state))
    return grad_x, a, b, c, d


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
    piece = x.detach()[start:stop]
    if lengths is not None and int(lengths.min()) < stop:
        over = torch.arange(start, stop, device="cpu").unsqueeze(1) >= lengths
        piece = piece.masked_fill(over.unsqueeze(-1), 0)
    return piece.reshape(-1, x.shape[2])


def _before(start: int, outputs: Tensor, state: Tensor) -> Tensor:
    """Return the hidden state before a chunk; sequences that are over do not ask for theirs."""
    return contiguous_copy(outputs[start - 1] if start else state)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, input_weight, _, weight, state, ctx.relu, lengths = inputs
    ctx.save_for_backward(output[0], x, input_weight, weight, state, lengths)


def _differentiate(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    return _gradients(_layer_backward, ctx, grads)


def _gradients(run: Any, ctx: Any, grads: tuple[Tensor, ...]) -> tuple[Tensor | None, ...]:
    outputs, x, input_weight, weight, state, lengths = ctx.saved_tensors
    wanted = ctx.needs_input_grad[0]
    grad_x, *others = run(
        *grads, outputs, x, input_weight, weight, state, ctx.relu, lengths, wanted
    )
    return (grad_x if wanted else None, *others, None, None)


_layer.register_autograd(_differentiate, setup_context=_save)
_eager_layer = eager_function(
    _forward, _save, lambda ctx, *grads: _gradients(_backward, ctx, grads)
)


@_layer.register_kernel("cuda")
def _gpu_forward(*arguments: Any) -> tuple[Tensor, Tensor]:
    from undamped.kernels.indrnn import gpu_layer

    return gpu_layer.forward(*arguments)


@_layer_backward.register_kernel("cuda")
def _gpu_backward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    from undamped.kernels.indrnn import gpu_layer

    return gpu_layer.backward(*arguments)


_gpu_layer = eager_function(
    _gpu_forward, _save, lambda ctx, *grads: _gradients(_gpu_backward, ctx, grads)
)
