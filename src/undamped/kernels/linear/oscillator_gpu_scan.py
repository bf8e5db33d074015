"""`linear_oscillator_scan` on GPUs: chunks of time side by side. Experimental."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from undamped.kernels.linear import oscillator_gpu as kernels
from undamped.kernels.linear.gpu_scan import CHUNK, from_chunk_to_chunk, summaries
from undamped.kernels.shared.allocate import contiguous_copy
from undamped.kernels.shared.gpu import launch, lengths_or


def forward(
    inputs: Tensor,
    coefficients: Tensor,
    position: Tensor,
    velocity: Tensor,
    reversible: bool,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return positions, the state after the last step, and position and velocity at every chunk.

    The last, (chunks, batch, hidden, 2), is for the backward pass, which is the same whether or
    not something is damped.
    """
    u, constants = inputs.detach().contiguous(), coefficients.detach().contiguous()
    first = torch.stack([position.detach(), velocity.detach()], -1)
    if not u.numel():
        return torch.empty_like(u), first[..., 0].clone(), first[..., 1].clone(), first[None][:0]
    outputs, final = torch.empty_like(u), torch.empty_like(first)
    masked, ends = lengths_or(lengths, first)
    arguments, grid, sizes = (u, constants, outputs), *_sizes(u)
    choices = {"LENGTHS": masked, "VELOCITIES": False}
    starts = first.unsqueeze(0)
    if grid[2] > 1:
        summands, factors = summaries(first, grid[2], True)
        rest = (first, final, summands, factors, ends, *sizes)
        launch(kernels.forced_forward, grid, (*arguments, *rest), SUMMARY=True, **choices)
        starts = from_chunk_to_chunk(summands[:-1], factors[:-1], first)
    rest = (starts, final, starts, starts, ends, *sizes)
    launch(kernels.forced_forward, grid, (*arguments, *rest), SUMMARY=False, **choices)
    x, z = (contiguous_copy(part) for part in final.unbind(-1))
    return outputs, x, z, starts


def backward(
    grad_outputs: Tensor,
    grad_position: Tensor,
    grad_velocity: Tensor,
    inputs: Tensor,
    outputs: Tensor,
    coefficients: Tensor,
    position: Tensor,
    velocity: Tensor,
    borders: Tensor | None,
    reversible: bool,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of inputs, coefficients and first state."""
    incoming = torch.stack([grad_position, grad_velocity], -1)
    if not inputs.numel():
        x, z = (contiguous_copy(part) for part in incoming.unbind(-1))
        return torch.empty_like(inputs), torch.zeros_like(coefficients), x, z
    if borders is None:
        borders = forward(inputs, coefficients, position, velocity, reversible, lengths)[3]
    u, constants = inputs.detach().contiguous(), coefficients.detach().contiguous()
    velocities, grad_inputs, final = (
        torch.empty_like(u),
        torch.empty_like(u),
        torch.empty_like(incoming),
    )
    masked, ends = lengths_or(lengths, incoming)
    grid, sizes = _sizes(u)
    rest: tuple[Any, ...] = (
        u,
        constants,
        velocities,
        borders,
        final,
        borders,
        borders,
        ends,
        *sizes,
    )
    launch(kernels.forced_forward, grid, rest, SUMMARY=False, VELOCITIES=True, LENGTHS=masked)
    begin, grads = position.detach().contiguous(), grad_outputs.contiguous()
    arguments = (u, outputs.detach().contiguous(), velocities, grads, grad_inputs, begin, constants)
    sums = u.new_empty(grid[2], 4, *u.shape[1:])
    starts = incoming.unsqueeze(0)
    if grid[2] > 1:
        summands, factors = summaries(incoming, grid[2], True)
        rest = (incoming, final, sums, summands, factors, ends, *sizes)
        launch(kernels.forced_backward, grid, (*arguments, *rest), SUMMARY=True, LENGTHS=masked)
        backwards = summands[1:].flip(0), factors[1:].flip(0)
        starts = from_chunk_to_chunk(*backwards, incoming).flip(0)
    rest = (starts, final, sums, starts, starts, ends, *sizes)
    launch(kernels.forced_backward, grid, (*arguments, *rest), SUMMARY=False, LENGTHS=masked)
    grad = sums.sum((0, 2), dtype=torch.float64).to(coefficients.dtype)
    x, z = (contiguous_copy(part) for part in final.unbind(-1))
    return grad_inputs, grad, x, z


def _sizes(inputs: Tensor) -> tuple[tuple[int, int, int], tuple[int, ...]]:
    """Return the grid, and the sizes that a kernel is told."""
    steps, batch, hidden = inputs.shape
    return (batch, hidden, -(-steps // CHUNK)), (steps, CHUNK, hidden, batch * hidden)
