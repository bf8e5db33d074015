"""`linear_oscillator_scan`: forced linear oscillators, damped or not, as one operator.

Only positions are written. The backward pass needs inputs, positions and velocities. With damping,
the velocities at the start of every chunk of steps are saved and the others recomputed; without
damping, all are recomputed by running backwards in time from the last. The registered operator
saves its results only, and its backward pass runs the scan again for the velocities.
"""

from __future__ import annotations

import torch
from torch import Tensor

from undamped.kernels.dispatch import implementation, runs_triton
from undamped.kernels.reference import PositionVelocity, reference_linear_oscillator_scan
from undamped.kernels.shared.allocate import empty
from undamped.kernels.shared.call_checks import check_lengths, check_shapes
from undamped.kernels.shared.chunks import ranges
from undamped.kernels.shared.columns import Columns
from undamped.kernels.shared.operator import ScanOperator

CHECKPOINT_EVERY = 512


def linear_oscillator_scan(
    inputs: Tensor,
    decay: Tensor | None,
    stiffness: Tensor,
    gain: Tensor,
    step: Tensor,
    state: PositionVelocity,
    lengths: Tensor | None = None,
) -> tuple[Tensor, PositionVelocity]:
    """Iterate z' = a z − k x + f u, x' = x + s z' for every unit.

    Args:
        inputs: u, (time, batch, hidden).
        decay: a, (hidden,), the factor of the velocity and the determinant of a step; None for a =
            1, where the backward pass runs backwards in time.
        stiffness: k, (hidden,), of the force towards zero.
        gain: f, (hidden,), of the input.
        step: s, (hidden,).
        state: Position x and velocity z before the first step, (batch, hidden) each.
        lengths: (batch,), where sequences end: after that their states stay and their positions are
            zero.

    Returns:
        All positions (time, batch, hidden), and the state after the last step.
    """
    reversible, (position, velocity) = decay is None, state
    steps, batch, hidden = inputs.shape
    check_shapes(
        "linear_oscillator_scan",
        **({} if decay is None else {"decay": (decay, (hidden,))}),
        stiffness=(stiffness, (hidden,)),
        gain=(gain, (hidden,)),
        step=(step, (hidden,)),
        position=(position, (batch, hidden)),
        velocity=(velocity, (batch, hidden)),
    )
    check_lengths("linear_oscillator_scan", lengths, steps, batch)
    factor = torch.ones_like(stiffness) if decay is None else decay
    coefficients = torch.stack([factor, stiffness, gain, step])
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
    if runs_triton(inputs):
        from undamped.kernels.linear.gpu_scan import forced_forward

        return forced_forward(inputs, coefficients, position, velocity, lengths)
    outputs, columns = empty(inputs.shape, inputs), Columns()
    state = torch.stack([position.detach(), velocity.detach()])
    steps = len(inputs)
    chunks = ranges(steps, steps if reversible else CHECKPOINT_EVERY) if inputs.numel() else []
    velocities = state.new_empty(len(chunks), *velocity.shape)
    u, constants = inputs.detach().contiguous(), coefficients.detach().contiguous()
    for at, (start, stop) in enumerate(chunks):
        velocities[at] = state[1]
        columns.run(
            columns.kernels("linear")["forced_forward"],
            [u[start:stop], outputs[start:stop]],
            constants,
            state,
            remaining=columns.remaining(lengths, start, stop),
        )
    if reversible and chunks:
        velocities[0] = state[1]
    return outputs, state[0].clone(), state[1].clone(), velocities


def _backward(
    grad_outputs: Tensor,
    grad_position: Tensor,
    grad_velocity: Tensor,
    inputs: Tensor,
    outputs: Tensor,
    coefficients: Tensor,
    position: Tensor,
    velocity: Tensor,
    checkpoints: Tensor | None,
    reversible: bool,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    if inputs.numel() and checkpoints is None:
        checkpoints = _forward(inputs, coefficients, position, velocity, reversible, lengths)[3]
    if runs_triton(inputs):
        from undamped.kernels.linear.gpu_scan import forced_backward

        grads = (grad_outputs, grad_position, grad_velocity)
        return forced_backward(grads, inputs, outputs, coefficients, position, checkpoints, lengths)
    grad_inputs = empty(inputs.shape, inputs)
    state = torch.stack([torch.zeros_like(grad_velocity), grad_position, grad_velocity])
    sums = torch.zeros(4, *position.shape, dtype=torch.float64, device="cpu")
    if inputs.numel() and checkpoints is not None:
        columns = Columns()
        kernels = columns.kernels("linear")
        tensors = (outputs, inputs, grad_outputs, coefficients, position)
        x, u, grads, constants, begin = (t.detach().contiguous() for t in tensors)
        chunks = ranges(len(u), CHECKPOINT_EVERY)
        velocities = empty((chunks[0][1], *position.shape), u) if not reversible else None
        state[0] = checkpoints[0]
        for at, (start, stop) in reversed(list(enumerate(chunks))):
            first = x[start - 1] if start else begin
            remaining = columns.remaining(lengths, start, stop)
            sequences = [x[start:stop], u[start:stop], grads[start:stop], grad_inputs[start:stop]]
            kernel = kernels["forced_backward_reversible"]
            if velocities is not None:
                kernel, sequence = kernels["forced_backward"], velocities[: stop - start]
                state[0] = checkpoints[at]
                columns.run(
                    kernels["forced_velocities"],
                    [*sequences[:2], sequence],
                    constants,
                    state[:1],
                    first=first,
                    remaining=remaining,
                )
                sequences.insert(2, sequence)
            columns.run(
                kernel, sequences, constants, state, sums=sums, first=first, remaining=remaining
            )
    grad = sums.sum(1).to(coefficients.dtype)
    return grad_inputs, grad, state[1].clone(), state[2].clone()


_scan = ScanOperator(
    "linear_oscillator_scan",
    _forward,
    _backward,
    outputs={
        "outputs": "inputs",
        "final_position": "position",
        "final_velocity": "velocity",
        "checkpoints": None,  # the number of chunks is unknown while a length is a symbol
    },
    gradients=("inputs", "coefficients", "position", "velocity"),
    devices=("cpu", "cuda"),
)
