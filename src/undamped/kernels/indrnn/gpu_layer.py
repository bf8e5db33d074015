"""`independent_layer` on GPUs: one product, one scan, by the Triton kernels. Experimental."""

from __future__ import annotations

import torch
from torch import Tensor

from undamped.kernels.indrnn import gpu as kernels
from undamped.kernels.shared.allocate import contiguous_copy
from undamped.kernels.shared.chunks import ranges
from undamped.kernels.shared.gpu import launch, left, lengths_or

SUMMED_STEPS = 1024
"""Steps whose gradients are summed in the type of the inputs, before a sum in double precision."""


def forward(
    x: Tensor,
    input_weight: Tensor,
    bias: Tensor,
    weight: Tensor,
    state: Tensor,
    relu: bool,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return all hidden states, and the last one."""
    steps, batch, _ = x.shape
    hidden = len(weight)
    last = contiguous_copy(state)
    rows = _without_padding(x, lengths).reshape(steps * batch, -1)
    outputs = torch.addmm(bias.detach(), rows, input_weight.detach().t())
    outputs = outputs.view(steps, batch, hidden)
    if outputs.numel():
        masked, remaining = lengths_or(lengths, last)
        arguments = (outputs, weight.detach().contiguous(), last, remaining)
        sizes = (steps, hidden, batch * hidden)
        launch(
            kernels.independent_forward,
            (batch, hidden),
            (*arguments, *sizes),
            RELU=relu,
            LENGTHS=masked,
        )
    return outputs, last


def backward(
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
    """Return the gradients of input, its weight, bias, recurrent weight and first state."""
    steps, batch, hidden = outputs.shape
    h, grads, w = (t.detach().contiguous() for t in (outputs, grad_outputs, weight))
    flowing, gradient = contiguous_copy(grad_state), torch.empty_like(h)
    total = torch.zeros(batch, hidden, dtype=torch.float64, device=h.device)
    for start, stop in reversed(ranges(steps, SUMMED_STEPS) if h.numel() else []):
        masked, remaining = lengths_or(left(lengths, start, stop), flowing)
        sequences = (t[start:stop] for t in (h, grads, gradient))
        first = (h[start - 1] if start else state.detach()).contiguous()
        arguments = (*sequences, first, w, flowing, total, remaining)
        sizes = (stop - start, hidden, batch * hidden)
        launch(
            kernels.independent_backward,
            (batch, hidden),
            (*arguments, *sizes),
            RELU=relu,
            LENGTHS=masked,
        )
    rows = gradient.view(steps * batch, hidden)
    inputs = _without_padding(x, lengths).reshape(steps * batch, -1)
    grad_x = x.new_empty(0)
    if needs_x:
        grad_x = torch.mm(rows, input_weight.detach()).view(x.shape)
    return grad_x, rows.t() @ inputs, rows.sum(0), total.sum(0).to(w.dtype), flowing


def _without_padding(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Return the input with zeros where sequences are over."""
    if lengths is None:
        return x.detach()
    over = torch.arange(len(x), device=x.device).unsqueeze(1) >= lengths.to(x.device)
    return x.detach().masked_fill(over.unsqueeze(-1), 0)
