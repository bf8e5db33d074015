"""`oscillator_scan`: UnICORNN's loop over time as one operator.

Registered with `torch.library`, so that `torch.compile` and `torch.export` see a single node with
known shapes and a gradient. The backward pass needs the inputs only: it runs the scan again, a
chunk of steps at a time.
"""

from __future__ import annotations

import torch
from torch import Tensor

from undamped.kernels.dispatch import implementation
from undamped.kernels.reference import PositionVelocity, reference_oscillator_scan
from undamped.kernels.shared.allocate import contiguous_copy, empty
from undamped.kernels.shared.call_checks import check_lengths, check_shapes
from undamped.kernels.shared.chunks import ranges
from undamped.kernels.shared.columns import columns_for
from undamped.kernels.shared.operator import ScanOperator

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
        projected: (time, batch, hidden), the projected input, bias included.
        weight: (hidden,), w.
        step: (hidden,), the effective time step s of each neuron.
        alpha: Restoring force α.
        state: Position and velocity before the first step, (batch, hidden) each.
        lengths: (batch,), where sequences end: after that their states stay and their positions are
            zero.

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
    positions = contiguous_copy(projected)
    state = torch.stack([position.detach(), velocity.detach()])
    if positions.numel():
        columns = columns_for(projected)
        columns.run(
            columns.kernels("unicornn")["forward"],
            [positions, positions],
            oscillator_constants(weight, step, torch.zeros_like(weight), alpha),
            state,
            remaining=columns.remaining(lengths, 0, len(positions)),
        )
    return positions, state[0].clone(), state[1].clone()


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
    grad_projected = empty(projected.shape, projected)
    state = torch.stack([position.detach(), velocity.detach()])
    grad_state = torch.stack([velocity.detach(), grad_position, grad_velocity])
    sums = torch.zeros(3, *position.shape, dtype=torch.float64, device=position.device)
    if projected.numel():
        columns = columns_for(projected)
        kernels = columns.kernels("unicornn")
        constants = oscillator_constants(weight, step, torch.zeros_like(weight), alpha)
        tanh_values, positions = contiguous_copy(projected), empty(projected.shape, projected)
        sequences = (positions, tanh_values, grad_positions.contiguous(), grad_projected)
        chunks = []
        for start, stop in ranges(len(projected), CHECKPOINT_EVERY):
            remaining, first = columns.remaining(lengths, start, stop), state[0].clone()
            chunk_sequences = [tanh_values[start:stop], positions[start:stop]]
            columns.run(
                kernels["forward_store"], chunk_sequences, constants, state, remaining=remaining
            )
            chunks.append((slice(start, stop), first, state[1].clone(), remaining))
        for chunk, first, last_velocity, remaining in reversed(chunks):
            grad_state[0] = last_velocity
            columns.run(
                kernels["backward"],
                [sequence[chunk] for sequence in sequences],
                constants,
                grad_state,
                sums=sums,
                first=first,
                remaining=remaining,
            )
    grad_weight, grad_step, _ = sums.sum(1).to(weight.dtype).unbind()
    _, grad_position, grad_velocity = (part.clone() for part in grad_state)
    return grad_projected, grad_weight.clone(), grad_step.clone(), grad_position, grad_velocity


def oscillator_constants(weight: Tensor, step: Tensor, bias: Tensor, alpha: float) -> Tensor:
    """Return the constants of the kernels, (weight and step and bias and α, hidden)."""
    rows = [tensor.detach() for tensor in (weight, step, bias)]
    return torch.stack([*rows, torch.full_like(rows[0], alpha)])


_scan = ScanOperator(
    "oscillator_scan",
    _forward,
    _backward,
    outputs={"positions": "projected", "last_position": "position", "last_velocity": "velocity"},
    gradients=("projected", "weight", "step", "position", "velocity"),
    devices=("cpu", "cuda"),
)
