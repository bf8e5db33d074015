"""`oscillator_scan`: UnICORNN's loop over time as one operator.

Registered with `torch.library`, so that `torch.compile` and `torch.export` see a single node
with known shapes and a gradient. The backward pass needs nothing but the inputs: it runs the
scan again, piece by piece.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from undamped.kernels.dispatch import implementation
from undamped.kernels.reference import PositionVelocity, reference_oscillator_scan
from undamped.kernels.shared.allocate import contiguous_copy, room
from undamped.kernels.shared.chunks import ranges
from undamped.kernels.shared.columns import alive_columns, over_columns

PIECE = 256


def oscillator_scan(
    projected: Tensor,
    weight: Tensor,
    step: Tensor,
    alpha: float,
    state: PositionVelocity,
    lengths: Tensor | None = None,
) -> tuple[Tensor, PositionVelocity]:
    """Walk through z' = z − s ⊙ (tanh(w ⊙ y + p) + α y), y' = y + s ⊙ z'.

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
    if implementation(projected, weight, step, position, velocity) == "reference":
        return reference_oscillator_scan(projected, weight, step, alpha, state, lengths)
    positions, position, velocity = _scan(
        projected, weight, step, float(alpha), position, velocity, lengths
    )
    return positions, (position, velocity)


@torch.library.custom_op("undamped::oscillator_scan", mutates_args=(), device_types="cpu")
def _scan(
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
        rows, shared = _arguments(projected, weight, step, alpha, lengths)
        over_columns(
            kernels.forward(lengths is not None),
            *rows,
            _flat(positions, rows),
            *shared[:-1],
            y.view(-1).numpy(),
            z.view(-1).numpy(),
            shared[-1],
        )
    return positions, y, z


@_scan.register_fake
def _scan_shapes(
    projected: Tensor,
    weight: Tensor,
    step: Tensor,
    alpha: float,
    position: Tensor,
    velocity: Tensor,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        projected.new_empty(projected.shape),
        position.new_empty(position.shape),
        velocity.new_empty(velocity.shape),
    )


@torch.library.custom_op("undamped::oscillator_scan_backward", mutates_args=(), device_types="cpu")
def _scan_backward(
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

    masked = lengths is not None
    gy, gz = contiguous_copy(grad_position), contiguous_copy(grad_velocity)
    grad_projected = room(projected.shape, projected)
    if not projected.numel():
        return grad_projected, torch.zeros_like(weight), torch.zeros_like(step), gy, gz
    (steps, columns), (w, s, b, a, _) = _arguments(projected, weight, step, alpha, None)
    curves, positions = contiguous_copy(projected), room(projected.shape, projected)
    y, z = contiguous_copy(position), contiguous_copy(velocity)
    flat = [t.view(steps, columns) for t in (curves, positions, grad_projected)]
    grads = grad_positions.contiguous().view(steps, columns)
    sums = torch.zeros(3, columns, dtype=torch.float64, device="cpu").numpy()
    pieces = []
    for start, stop in ranges(steps, PIECE):
        alive = alive_columns(lengths, start, stop, projected)
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
            alive,
        )
        pieces.append((start, stop, first, z.view(-1).clone(), alive))
    for start, stop, first, end, alive in reversed(pieces):
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
            alive,
        )
    grad_weight, grad_step = (
        torch.from_numpy(total).view(-1, weight.shape[0]).sum(0).to(weight.dtype)
        for total in sums[:2]
    )
    return grad_projected, grad_weight, grad_step, gy, gz


@_scan_backward.register_fake
def _scan_backward_shapes(
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
    likes = (projected, weight, step, position, velocity)
    a, b, c, d, e = (like.new_empty(like.shape) for like in likes)
    return a, b, c, d, e


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    projected, weight, step, ctx.alpha, position, velocity, lengths = inputs
    ctx.save_for_backward(projected, weight, step, position, velocity, lengths)


def _differentiate(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    projected, weight, step, position, velocity, lengths = ctx.saved_tensors
    grad_projected, grad_weight, grad_step, gy, gz = _scan_backward(
        *grads, projected, weight, step, ctx.alpha, position, velocity, lengths
    )
    return grad_projected, grad_weight, grad_step, None, gy, gz, None


_scan.register_autograd(_differentiate, setup_context=_save)


def _flat(tensor: Tensor, rows: tuple[int, int]) -> Any:
    return tensor.view(rows).numpy()


def _arguments(
    projected: Tensor, weight: Tensor, step: Tensor, alpha: float, lengths: Tensor | None
) -> tuple[tuple[int, int], tuple[Any, ...]]:
    steps, batch, hidden = projected.shape
    bias = projected.new_zeros(hidden).numpy()
    constants = [t.detach().contiguous().numpy() for t in (weight, step)]
    alive = alive_columns(lengths, 0, steps, projected)
    return (steps, batch * hidden), (*constants, bias, bias.dtype.type(alpha), alive)
