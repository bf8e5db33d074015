"""`linear_oscillator_scan`: driven linear oscillators, damped or not, as one operator.

Positions alone are written. Beside inputs and positions, which somebody else needs anyway, the
backward pass has the velocities at the start of every chunk of steps; where nothing is damped it
has those at the end and finds the others by running backwards in time. The registered operator
hands on nothing but its results, and its backward pass runs the scan again for those velocities.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from undamped.kernels.dispatch import implementation
from undamped.kernels.reference import PositionVelocity, reference_linear_oscillator_scan
from undamped.kernels.shared.allocate import contiguous_copy, empty
from undamped.kernels.shared.call_checks import check_lengths, check_shapes
from undamped.kernels.shared.chunks import ranges
from undamped.kernels.shared.lengths import remaining_by_column
from undamped.kernels.shared.operator import ScanOperator
from undamped.kernels.shared.threads import over_columns

CHECKPOINT_EVERY = 512


def linear_oscillator_scan(
    inputs: Tensor,
    keep: Tensor | None,
    pull: Tensor,
    push: Tensor,
    step: Tensor,
    state: PositionVelocity,
    lengths: Tensor | None = None,
) -> tuple[Tensor, PositionVelocity]:
    """Iterate z' = a z − k x + f u, x' = x + s z' for every unit.

    Args:
        inputs: u, (time, batch, hidden).
        keep: a, (hidden,), what is left of a velocity, which is also the determinant of a step;
            None for one, when the backward pass runs backwards in time.
        pull: k, (hidden,), towards zero.
        push: f, (hidden,), of the input.
        step: s, (hidden,).
        state: Position x and velocity z before the first step, (batch, hidden) each.
        lengths: (batch,), where sequences end: their states rest and their positions are zero
            from there on.

    Returns:
        All positions (time, batch, hidden), and the state after the last step.
    """
    reversible, (position, velocity) = keep is None, state
    steps, batch, hidden = inputs.shape
    check_shapes(
        "linear_oscillator_scan",
        **({} if keep is None else {"keep": (keep, (hidden,))}),
        pull=(pull, (hidden,)),
        push=(push, (hidden,)),
        step=(step, (hidden,)),
        position=(position, (batch, hidden)),
        velocity=(velocity, (batch, hidden)),
    )
    check_lengths("linear_oscillator_scan", lengths, steps, batch)
    coefficients = torch.stack([torch.ones_like(pull) if keep is None else keep, pull, push, step])
    way = implementation(inputs, coefficients, *state, gpu=True)
    if way == "reference":
        return reference_linear_oscillator_scan(inputs, coefficients, state, lengths)
    outputs, position, velocity, *_ = _scan(way, inputs, coefficients, *state, reversible, lengths)
    return outputs, (position, velocity)


def _forward(
    inputs: Tensor,
    coefficients: Tensor,
    position: Tensor,
    velocity: Tensor,
    reversible: bool,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from undamped.kernels.linear import oscillator_compiled as kernels

    outputs = empty(inputs.shape, inputs)
    x, z = contiguous_copy(position), contiguous_copy(velocity)
    steps, columns = len(inputs), position.numel()
    chunks = ranges(steps, steps if reversible else CHECKPOINT_EVERY) if inputs.numel() else []
    borders = z.new_empty(len(chunks), columns)
    if chunks:
        rows = [_rows(t) for t in (inputs, outputs)]
        constants = coefficients.detach().contiguous().numpy()
        unused = np.zeros(columns, constants.dtype)
        for at, (start, stop) in enumerate(chunks):
            borders[at] = z.view(-1)
            masked, left = remaining_by_column(lengths, start, stop, inputs.shape[2], unused)
            over_columns(
                kernels.forward(masked),
                stop - start,
                columns,
                rows[0][start:stop],
                constants,
                rows[1][start:stop],
                x.view(-1).numpy(),
                z.view(-1).numpy(),
                left,
            )
        if reversible:
            borders[0] = z.view(-1)
    return outputs, x, z, borders


def _rows(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().view(len(tensor), -1).numpy()


def _backward(
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
    from undamped.kernels.linear import oscillator_compiled as kernels

    grad_inputs = empty(inputs.shape, inputs)
    gx, gz = contiguous_copy(grad_position), contiguous_copy(grad_velocity)
    if not inputs.numel():
        return grad_inputs, torch.zeros_like(coefficients), gx, gz
    if borders is None:
        borders = _forward(inputs, coefficients, position, velocity, reversible, lengths)[3]
    steps, columns = len(inputs), position.numel()
    rows = [_rows(t) for t in (inputs, outputs, grad_outputs, grad_inputs)]
    constants = coefficients.detach().contiguous().numpy()
    unused = np.zeros(columns, constants.dtype)
    chunks = ranges(steps, CHECKPOINT_EVERY)
    velocities = np.empty((1 if reversible else chunks[0][1], columns), constants.dtype)
    # Where velocities are run again, those at the end of a chunk come from there.
    z = borders[0].clone().numpy()
    sums = torch.zeros(4, columns, dtype=torch.float64, device="cpu")
    begin = position.detach().contiguous().view(-1).numpy()
    for at, (start, stop) in reversed(list(enumerate(chunks))):
        masked, left = remaining_by_column(lengths, start, stop, inputs.shape[2], unused)
        first = rows[1][start - 1] if start else begin
        if not reversible:
            z = borders[at].clone().numpy()
            over_columns(
                kernels.velocities(masked),
                stop - start,
                columns,
                rows[0][start:stop],
                rows[1][start:stop],
                constants,
                velocities[: stop - start],
                first,
                z,
                left,
            )
        over_columns(
            kernels.backward(reversible, masked),
            stop - start,
            columns,
            *(sequence[start:stop] for sequence in rows),
            velocities[: stop - start],
            first,
            constants,
            z,
            gx.view(-1).numpy(),
            gz.view(-1).numpy(),
            sums.numpy(),
            left,
        )
    grad = sums.view(4, -1, coefficients.shape[1]).sum(1).to(coefficients.dtype)
    return grad_inputs, grad, gx, gz


_scan = ScanOperator(
    "linear_oscillator_scan",
    _forward,
    _backward,
    outputs={
        "outputs": "inputs",
        "final_position": "position",
        "final_velocity": "velocity",
        "borders": None,  # their number is not known while a length is a symbol
    },
    gradients=("inputs", "coefficients", "position", "velocity"),
    gpu="undamped.kernels.linear.oscillator_gpu_scan",
)
