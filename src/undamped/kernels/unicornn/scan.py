"""`oscillator_scan`: UnICORNN's loop over time as one operator.

Registered with `torch.library`, so that `torch.compile` and `torch.export` see a single node
with known shapes and a gradient. The backward pass needs nothing but the inputs: it runs the
scan again, some steps at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from undamped.kernels.dispatch import implementation
from undamped.kernels.reference import PositionVelocity, reference_oscillator_scan
from undamped.kernels.shared.allocate import contiguous_copy, empty
from undamped.kernels.shared.call_checks import check_lengths, check_shapes
from undamped.kernels.shared.chunks import ranges
from undamped.kernels.shared.lengths import remaining_by_column
from undamped.kernels.shared.operator import ScanOperator
from undamped.kernels.shared.threads import over_columns

CHECKPOINT_EVERY = 256


def oscillator_scan(
    projected: Tensor,
    weight: Tensor,
    step: Tensor,
    alpha: float,
    state: PositionVelocity,
    lengths: Tensor | None = None,
) -> tuple[Tensor, PositionVelocity]:
    """Iterate z' = z − s ⊙ (tanh(w ⊙ y + p) + α y), y' = y + s ⊙ z'.

    Args:
        projected: (time, batch, hidden), the input as the neurons feel it, bias included.
        weight: (hidden,), w.
        step: (hidden,), the effective time step s of each neuron.
        alpha: Restoring force α.
        state: Position and velocity before the first step, (batch, hidden) each.
        lengths: (batch,), where sequences end: their states rest and their positions are zero
            from there on.

    Returns:
        All positions (time, batch, hidden), and the state after the last step.
    """
    position, velocity = state
    steps, batch, hidden = projected.shape
    check_shapes(
        "oscillator_scan",
        weight=(weight, (hidden,)),
        step=(step, (hidden,)),
        position=(position, (batch, hidden)),
        velocity=(velocity, (batch, hidden)),
    )
    check_lengths("oscillator_scan", lengths, steps, batch)
    way = implementation(projected, weight, step, position, velocity, gpu=True)
    if way == "reference":
        return reference_oscillator_scan(projected, weight, step, alpha, state, lengths)
    positions, position, velocity = _scan(
        way, projected, weight, step, float(alpha), position, velocity, lengths
    )
    return positions, (position, velocity)


def _forward(
    projected: Tensor,
    weight: Tensor,
    step: Tensor,
    alpha: float,
    position: Tensor,
    velocity: Tensor,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    from undamped.kernels.unicornn import compiled as kernels

    positions = contiguous_copy(projected)
    y, z = contiguous_copy(position), contiguous_copy(velocity)
    if positions.numel():
        steps, columns = len(positions), y.numel()
        constants, unused = _arguments(projected, weight, step, alpha)
        masked, remaining = remaining_by_column(lengths, 0, steps, weight.shape[0], unused)
        over_columns(
            kernels.forward(masked),
            steps,
            columns,
            positions.view(steps, columns).numpy(),
            *constants,
            y.view(-1).numpy(),
            z.view(-1).numpy(),
            remaining,
        )
    return positions, y, z


def _backward(
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
    from undamped.kernels.unicornn import compiled as kernels

    gy, gz = contiguous_copy(grad_position), contiguous_copy(grad_velocity)
    grad_projected = empty(projected.shape, projected)
    if not projected.numel():
        return grad_projected, torch.zeros_like(weight), torch.zeros_like(step), gy, gz
    steps, columns = len(projected), position.numel()
    (w, s, b, a), unused = _arguments(projected, weight, step, alpha)
    tanh_values, positions = contiguous_copy(projected), empty(projected.shape, projected)
    y, z = contiguous_copy(position), contiguous_copy(velocity)
    flat = [t.view(steps, columns) for t in (tanh_values, positions, grad_projected)]
    grads = grad_positions.contiguous().view(steps, columns)
    sums = torch.zeros(3, columns, dtype=torch.float64, device="cpu").numpy()
    chunks = []
    for start, stop in ranges(steps, CHECKPOINT_EVERY):
        masked, remaining = remaining_by_column(lengths, start, stop, weight.shape[0], unused)
        first = y.view(-1).clone()
        over_columns(
            kernels.forward_keep(masked),
            stop - start,
            columns,
            *(t[start:stop].numpy() for t in flat[:2]),
            w,
            s,
            b,
            a,
            y.view(-1).numpy(),
            z.view(-1).numpy(),
            remaining,
        )
        chunks.append((start, stop, first, z.view(-1).clone(), masked, remaining))
    for start, stop, first, end, masked, remaining in reversed(chunks):
        over_columns(
            kernels.backward(masked),
            stop - start,
            columns,
            flat[1][start:stop].numpy(),
            flat[0][start:stop].numpy(),
            grads[start:stop].numpy(),
            flat[2][start:stop].numpy(),
            first.numpy(),
            w,
            s,
            a,
            end.numpy(),
            gy.view(-1).numpy(),
            gz.view(-1).numpy(),
            *sums,
            remaining,
        )
    grad_weight, grad_step = (
        torch.from_numpy(total).view(-1, weight.shape[0]).sum(0).to(weight.dtype)
        for total in sums[:2]
    )
    return grad_projected, grad_weight, grad_step, gy, gz


def _arguments(
    projected: Tensor, weight: Tensor, step: Tensor, alpha: float
) -> tuple[tuple[Any, ...], Any]:
    """Return w, s, no bias and α for the kernels, and an array in place of remaining steps."""
    batch, hidden = projected.shape[1:]
    bias = np.zeros(hidden, projected.detach().numpy().dtype)
    constants = [t.detach().contiguous().numpy() for t in (weight, step)]
    return (*constants, bias, bias.dtype.type(alpha)), np.zeros(batch * hidden, bias.dtype)


_scan = ScanOperator(
    "oscillator_scan",
    _forward,
    _backward,
    outputs={"positions": "projected", "last_position": "position", "last_velocity": "velocity"},
    gradients=("projected", "weight", "step", "position", "velocity"),
    gpu="undamped.kernels.unicornn.gpu_scan",
)
