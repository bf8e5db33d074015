"""`linear_scan` and `linear_oscillator_scan` on GPUs, with chunks in parallel. Experimental."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from undamped.kernels.linear import gpu as kernels
from undamped.kernels.shared.gpu import launch


def forward(
    inputs: Tensor, coefficients: Tensor, state: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return all states, and the last one."""
    u, a = inputs.detach().contiguous(), coefficients.detach().contiguous()
    outputs, first = torch.empty_like(u), state.detach()
    if not u.numel():
        return outputs, first.clone()
    flags = _flags(u, a)
    starts = _starts(kernels.linear_summary, (u, a), first, lengths, len(u), **flags)
    _launch(kernels.linear_forward, (u, a, outputs, starts), lengths, len(u), **flags)
    return outputs, starts[-1].clone()


def backward(
    grad_outputs: Tensor,
    grad_state: Tensor,
    outputs: Tensor,
    coefficients: Tensor,
    state: Tensor,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of inputs, coefficients and first state."""
    h, a = outputs.detach().contiguous(), coefficients.detach().contiguous()
    grads, grad_inputs = grad_outputs.contiguous(), torch.empty_like(h)
    if not h.numel():
        return grad_inputs, torch.zeros_like(coefficients), grad_state.clone()
    flags = _flags(h, a)
    starts = _starts(
        kernels.linear_summary, (grads, a), grad_state, lengths, len(h), backward=True, **flags
    )
    per_step, count = flags["PER_STEP"], 1 if h.dim() == 3 else 4
    sums = torch.empty_like(a) if per_step else a.new_empty(len(starts), *h.shape[1:3], count)
    tensors = (h, grads, grad_inputs, a, sums, starts)
    _launch(kernels.linear_backward, tensors, lengths, len(h), **flags)
    # The kernel has no state before the first step, which contributes here.
    first = _products(grad_inputs[0], state.detach())
    if per_step:
        sums[0] = _coefficients(first, flags["SIZE"])
        return grad_inputs, sums, starts[0].clone()
    total = sums.sum((0, 1), dtype=torch.float64) + first.sum(0, dtype=torch.float64)
    grad_coefficients = _coefficients(total, flags["SIZE"]).to(coefficients.dtype)
    return grad_inputs, grad_coefficients, starts[0].clone()


def forced_forward(
    inputs: Tensor, coefficients: Tensor, position: Tensor, velocity: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return positions, the state after the last step, and position and velocity at every chunk.

    The last, (chunks, batch, hidden, 2), is for the backward pass, which is the same with and
    without damping.
    """
    u, constants = inputs.detach().contiguous(), coefficients.detach().contiguous()
    outputs, first = torch.empty_like(u), torch.stack([position.detach(), velocity.detach()], -1)
    checkpoints = final = first[None]
    if u.numel():
        checkpoints = _starts(kernels.forced_summary, (u, constants), first, lengths, len(u))
        final = checkpoints.clone()
        tensors = (u, constants, outputs, final)
        _launch(kernels.forced_forward, tensors, lengths, len(u), VELOCITIES=False)
    return outputs, final[-1, ..., 0].clone(), final[-1, ..., 1].clone(), checkpoints


def forced_backward(
    grads: tuple[Tensor, Tensor, Tensor],
    inputs: Tensor,
    outputs: Tensor,
    coefficients: Tensor,
    position: Tensor,
    checkpoints: Tensor | None,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of inputs, coefficients and first state.

    Args:
        grads: Of outputs, final position and final velocity.
        inputs: As in the forward pass, like the other arguments.
        outputs: The positions.
        coefficients: (a, k, f, s; hidden).
        position: Before the first step.
        checkpoints: Position and velocity at every chunk.
        lengths: Where sequences end.
    """
    tensors = (inputs, outputs, grads[0], coefficients)
    u, x, grad, constants = (tensor.detach().contiguous() for tensor in tensors)
    grad_inputs, grad_state = torch.empty_like(u), torch.stack(grads[1:], -1)
    if not u.numel() or checkpoints is None:
        return grad_inputs, torch.zeros_like(constants), grads[1].clone(), grads[2].clone()
    velocities, steps = torch.empty_like(u), len(u)
    tensors = (u, constants, velocities, checkpoints.contiguous())
    _launch(kernels.forced_forward, tensors, lengths, steps, VELOCITIES=True)
    starts = _starts(
        kernels.forced_summary, (grad, constants), grad_state, lengths, steps, backward=True
    )
    sums = u.new_empty(len(starts), 4, *u.shape[1:])
    with_first = torch.cat([constants.flatten(), position.detach().flatten()])
    tensors = (u, x, velocities, grad, grad_inputs, with_first, sums, starts)
    _launch(kernels.forced_backward, tensors, lengths, steps)
    grad_coefficients = sums.sum((0, 2), dtype=torch.float64).to(coefficients.dtype)
    return grad_inputs, grad_coefficients, starts[0, ..., 0].clone(), starts[0, ..., 1].clone()


def _launch(
    kernel: Any, tensors: tuple[Tensor, ...], lengths: Tensor | None, steps: int, **flags: Any
) -> None:
    """Start a kernel with a program for each chunk."""
    chunks = -(-steps // kernels.CHUNK.value)
    _, batch, hidden = tensors[0].shape[:3]
    launch(kernel, tensors, lengths, (steps, batch, hidden), chunks, **flags)


def _starts(
    kernel: Any,
    tensors: tuple[Tensor, ...],
    first: Tensor,
    lengths: Tensor | None,
    steps: int,
    *,
    backward: bool = False,
    **flags: Any,
) -> Tensor:
    """Return the state from which each chunk starts, (chunks, …), in the order of chunks.

    Args:
        kernel: The kernel that summarises a chunk.
        tensors: Its first arguments.
        first: The state before the first chunk, or the gradient after the last.
        lengths: Where sequences end.
        steps: The number of steps.
        backward: Whether chunks follow each other from the last to the first.
        flags: The compile-time constants of the kernel.
    """
    chunks = -(-steps // kernels.CHUNK.value)
    if chunks == 1:
        return first.unsqueeze(0).contiguous().clone()
    summands = first.new_empty(chunks, *first.shape)
    products = first.new_empty(chunks, *first.shape, *first.shape[2:])
    _launch(kernel, (*tensors, summands, products), lengths, steps, BACKWARD=backward, **flags)
    if backward:
        summands, products = summands.flip(0), products.flip(0)
    # The recurrence over summaries is linear itself.
    states = forward(summands[:-1], products[:-1], first, None)[0]
    states = torch.cat([first.unsqueeze(0), states])
    return states.flip(0) if backward else states


def _flags(sequence: Tensor, coefficients: Tensor) -> dict[str, Any]:
    """Return the compile-time constants of the kernels."""
    per_step = coefficients.dim() >= sequence.dim()
    units = sequence.shape[:3].numel() if per_step else sequence.shape[2]
    return {"PER_STEP": per_step, "SIZE": coefficients.numel() // units}


def _products(grad: Tensor, state: Tensor) -> Tensor:
    """Return the products of a gradient (batch, hidden[, 2]) with the state before it."""
    if grad.dim() == 2:
        return (grad * state).unsqueeze(-1)
    return (grad.unsqueeze(-1) * state.unsqueeze(-2)).flatten(-2)


def _coefficients(products: Tensor, size: int) -> Tensor:
    """Return the gradient of coefficients from sums of products, (…, hidden, 1 or 4)."""
    if size == 1:
        return products.squeeze(-1)
    if size == 2:
        m0, m1, m2, m3 = products.unbind(-1)
        return torch.stack([m0 + m3, m2 - m1], -1)
    return products.unflatten(-1, (2, 2))
