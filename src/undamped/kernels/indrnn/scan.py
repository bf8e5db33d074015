"""`independent_scan`: IndRNN's loop over time as one operator, like `oscillator_scan`."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from undamped.kernels.dispatch import implementation
from undamped.kernels.reference import reference_independent_scan
from undamped.kernels.shared.allocate import contiguous_copy, room
from undamped.kernels.shared.columns import alive_columns, over_columns

Nonlinearity = Literal["relu", "tanh"]


def independent_scan(
    projected: Tensor,
    weight: Tensor,
    state: Tensor,
    nonlinearity: Nonlinearity = "relu",
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Walk through h' = φ(w ⊙ h + p).

    Args:
        projected: (time, batch, hidden), the input as the neurons feel it, bias included.
        weight: (hidden,), w.
        state: Hidden state before the first step, (batch, hidden).
        nonlinearity: The function φ.
        lengths: (batch,), where sequences end: their states rest and their outputs are zero
            from there on.

    Returns:
        All hidden states (time, batch, hidden), and the last one (batch, hidden).
    """
    if implementation(projected, weight, state) == "reference":
        return reference_independent_scan(projected, weight, state, nonlinearity, lengths)
    return _scan(projected, weight, state, nonlinearity == "relu", lengths)


@torch.library.custom_op("undamped::independent_scan", mutates_args=(), device_types="cpu")
def _scan(
    projected: Tensor, weight: Tensor, state: Tensor, relu: bool, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    from undamped.kernels.indrnn import compiled as kernels

    outputs, hidden = contiguous_copy(projected), contiguous_copy(state)
    if outputs.numel():
        steps, columns = outputs.shape[0], hidden.numel()
        over_columns(
            kernels.forward(relu, lengths is not None),
            steps,
            columns,
            outputs.view(steps, columns).numpy(),
            weight.detach().contiguous().numpy(),
            hidden.view(-1).numpy(),
            alive_columns(lengths, 0, steps, projected),
        )
    return outputs, hidden


@_scan.register_fake
def _scan_shapes(
    projected: Tensor, weight: Tensor, state: Tensor, relu: bool, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    return projected.new_empty(projected.shape), state.new_empty(state.shape)


@torch.library.custom_op("undamped::independent_scan_backward", mutates_args=(), device_types="cpu")
def _scan_backward(
    grad_outputs: Tensor,
    grad_state: Tensor,
    outputs: Tensor,
    weight: Tensor,
    state: Tensor,
    relu: bool,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    from undamped.kernels.indrnn import compiled as kernels

    gh = contiguous_copy(grad_state)
    grad_projected = room(outputs.shape, outputs)
    if not outputs.numel():
        return grad_projected, torch.zeros_like(weight), gh
    steps, columns = outputs.shape[0], gh.numel()
    total = torch.zeros(columns, dtype=torch.float64, device="cpu")
    over_columns(
        kernels.backward(relu, lengths is not None),
        steps,
        columns,
        outputs.contiguous().view(steps, columns).numpy(),
        grad_outputs.contiguous().view(steps, columns).numpy(),
        grad_projected.view(steps, columns).numpy(),
        contiguous_copy(state).view(-1).numpy(),
        weight.detach().contiguous().numpy(),
        gh.view(-1).numpy(),
        total.numpy(),
        alive_columns(lengths, 0, steps, outputs),
    )
    return grad_projected, total.view(-1, weight.shape[0]).sum(0).to(weight.dtype), gh


@_scan_backward.register_fake
def _scan_backward_shapes(
    grad_outputs: Tensor,
    grad_state: Tensor,
    outputs: Tensor,
    weight: Tensor,
    state: Tensor,
    relu: bool,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    a, b, c = (like.new_empty(like.shape) for like in (outputs, weight, state))
    return a, b, c


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, weight, state, ctx.relu, lengths = inputs
    ctx.save_for_backward(output[0], weight, state, lengths)


def _differentiate(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    outputs, weight, state, lengths = ctx.saved_tensors
    gradients = _scan_backward(*grads, outputs, weight, state, ctx.relu, lengths)
    return (*gradients, None, None)


_scan.register_autograd(_differentiate, setup_context=_save)
