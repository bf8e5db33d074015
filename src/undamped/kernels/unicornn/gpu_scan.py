"""`oscillator_scan` on GPUs: forward and backward pass by the Triton kernels. Experimental.

As on the CPU the backward pass needs nothing but the inputs: it runs the scan again, some steps at
a time, so that velocities start afresh and sums in single precision stay short.
"""

from __future__ import annotations

import torch
from torch import Tensor

from undamped.kernels.shared.allocate import contiguous_copy
from undamped.kernels.shared.chunks import ranges
from undamped.kernels.shared.gpu import left, lengths_or, number
from undamped.kernels.unicornn import gpu as kernels

CHECKPOINT_EVERY = 512


def forward(
    projected: Tensor,
    weight: Tensor,
    step: Tensor,
    alpha: float,
    position: Tensor,
    velocity: Tensor,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return positions, and the state after the last step."""
    given = projected.detach().contiguous()
    positions = torch.empty_like(given)
    y, z = contiguous_copy(position), contiguous_copy(velocity)
    if given.numel():
        w, s = weight.detach().contiguous(), step.detach().contiguous()
        masked, remaining = lengths_or(lengths, y)
        kernels.forward_to(masked)(
            given, positions, w, s, torch.zeros_like(w), number(alpha, w), y, z, remaining
        )
    return positions, y, z


def backward(
    grad_positions: Tensor,
    grad_position: Tensor,
    grad_velocity: Tensor,
    projected: Tensor,
    weight: Tensor,
    step: Tensor,
    alpha: float,
    position: Tensor,
    velocity: Tensor,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of the projection, weight, step and first state."""
    states = (grad_position, grad_velocity, position, velocity)
    gy, gz, y, z = (contiguous_copy(part) for part in states)
    values = contiguous_copy(projected)
    grad_projected = torch.empty_like(values)
    if not values.numel():
        return grad_projected, torch.zeros_like(weight), torch.zeros_like(step), gy, gz
    w, s = weight.detach().contiguous(), step.detach().contiguous()
    pull, bias, given = number(alpha, w), torch.zeros_like(w), grad_positions.contiguous()
    positions = torch.empty_like(values)
    sums = torch.zeros(3, y.numel(), dtype=torch.float64, device=y.device)
    chunks = []
    for start, stop in ranges(len(values), CHECKPOINT_EVERY):
        masked, remaining = lengths_or(left(lengths, start, stop), y)
        first = y.clone()
        kernels.forward_keep(masked)(
            values[start:stop], positions[start:stop], w, s, bias, pull, y, z, remaining
        )
        chunks.append((slice(start, stop), first, z.clone(), masked, remaining))
    for part, first, end, masked, remaining in reversed(chunks):
        sequences = (sequence[part] for sequence in (positions, values, given, grad_projected))
        kernels.backward(masked)(*sequences, first, w, s, pull, end, gy, gz, *sums, remaining)
    grad_weight, grad_step = (t.view(-1, len(w)).sum(0).to(w.dtype) for t in sums[:2])
    return grad_projected, grad_weight, grad_step, gy, gz
