"""`linear_scan` on GPUs: chunks of time side by side, by the Triton kernels. Experimental."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from undamped.kernels.linear import gpu as kernels
from undamped.kernels.shared.allocate import contiguous_copy
from undamped.kernels.shared.gpu import launch, lengths_or

CHUNK = 256
"""Steps of a chunk: sums over one are in the type of the inputs, sums of those in double."""


def forward(
    inputs: Tensor, coefficients: Tensor, state: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return all states, and the last one."""
    u, a = inputs.detach().contiguous(), coefficients.detach().contiguous()
    first = contiguous_copy(state)
    if not u.numel():
        return torch.empty_like(u), first
    outputs, final = torch.empty_like(u), torch.empty_like(first)
    masked, ends = lengths_or(lengths, first)
    chunks, pairs = -(-len(u) // CHUNK), u.dim() == 4
    kernel, choices, sizes = _kernel(u, a, "forward")
    arguments = (u, a, a, outputs)
    grid = (u.shape[1], u.shape[2], chunks)
    starts = first.unsqueeze(0)
    if chunks > 1:
        summands, factors = summaries(first, chunks, pairs)
        rest = (first, final, summands, factors, ends)
        launch(kernel, grid, (*arguments, *rest, *sizes), SUMMARY=True, LENGTHS=masked, **choices)
        starts = from_chunk_to_chunk(summands[:-1], factors[:-1], first)
    rest = (starts, final, starts, starts, ends)
    launch(kernel, grid, (*arguments, *rest, *sizes), SUMMARY=False, LENGTHS=masked, **choices)
    return outputs, final


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
    grads, incoming = grad_outputs.contiguous(), contiguous_copy(grad_state)
    if not h.numel():
        return torch.empty_like(h), torch.zeros_like(coefficients), incoming
    grad_inputs, final = torch.empty_like(h), torch.empty_like(incoming)
    masked, ends = lengths_or(lengths, incoming)
    chunks, pairs = -(-len(h) // CHUNK), h.dim() == 4
    kernel, choices, sizes = _kernel(h, a, "backward")
    per_step = choices["PER_STEP"]
    grad_coefficients = torch.empty_like(a) if per_step else a
    tail = (4,) if pairs else ()
    sums = a if per_step else a.new_empty(chunks, *h.shape[1:3], *tail)
    arguments = (h, grads, grad_inputs, state.detach().contiguous(), a, a)
    grid = (h.shape[1], h.shape[2], chunks)
    starts = incoming.unsqueeze(0)
    if chunks > 1:
        summands, factors = summaries(incoming, chunks, pairs)
        rest = (incoming, final, sums, grad_coefficients, summands, factors, ends)
        launch(kernel, grid, (*arguments, *rest, *sizes), SUMMARY=True, LENGTHS=masked, **choices)
        backwards = summands[1:].flip(0), factors[1:].flip(0)
        starts = from_chunk_to_chunk(*backwards, incoming).flip(0)
    rest = (starts, final, sums, grad_coefficients, starts, starts, ends)
    launch(kernel, grid, (*arguments, *rest, *sizes), SUMMARY=False, LENGTHS=masked, **choices)
    if not per_step:
        grad_coefficients = _summed(sums, coefficients, pairs)
    return grad_inputs, grad_coefficients, final


def summaries(state: Tensor, chunks: int, pairs: bool) -> tuple[Tensor, Tensor]:
    """Return room for what each chunk does to a state (batch, hidden[, 2])."""
    tail = (2, 2) if pairs else ()
    return (
        state.new_empty(chunks, *state.shape),
        state.new_empty(chunks, *state.shape[:2], *tail),
    )


def from_chunk_to_chunk(summands: Tensor, factors: Tensor, first: Tensor) -> Tensor:
    """Return the states before all chunks, (chunks, …): the recurrence of the summaries."""
    return torch.cat([first.unsqueeze(0), forward(summands, factors, first, None)[0]])


def _kernel(
    sequence: Tensor, coefficients: Tensor, name: str
) -> tuple[Any, dict[str, bool], tuple[int, ...]]:
    """Return the kernel, what it is compiled for and the sizes it is told."""
    steps, batch, hidden = sequence.shape[:3]
    sizes = (steps, CHUNK, hidden, batch * hidden)
    choices = {"PER_STEP": coefficients.dim() >= sequence.dim()}
    if sequence.dim() == 3:
        return getattr(kernels, f"linear_{name}"), choices, sizes
    dimensions = coefficients.dim() - 2 * choices["PER_STEP"]
    return getattr(kernels, f"pair_{name}"), {**choices, "COMPLEX": dimensions == 2}, sizes


def _summed(sums: Tensor, coefficients: Tensor, pairs: bool) -> Tensor:
    """Return the gradient of coefficients that are the same at every step and in every sequence."""
    total = sums.sum((0, 1), dtype=torch.float64)
    if pairs and coefficients.dim() == 2:
        total = torch.stack([total[:, 0] + total[:, 3], total[:, 2] - total[:, 1]], -1)
    return total.view(coefficients.shape).to(coefficients.dtype)
