"""The light recurrence of the SRU: gates that read the memory unit by unit, no product."""

from __future__ import annotations

from typing import Any

from undamped.kernels.coupled.loop import (
    LOOP,
    PART,
    add_output_gradient,
    at_time,
    clear_row,
    freeze_finished,
    inputs,
    memories,
    restore_finished,
    states,
)
from undamped.kernels.shared.jit import njit
from undamped.kernels.shared.pointers import STEPS
from undamped.kernels.shared.tanh import sigmoid


@njit(**PART)
def _light_forward(
    projected: Any, old_memory: Any, new_memory: Any, new: Any, forget: Any, reset: Any
) -> None:
    size, one = new.shape[1], projected.dtype.type(1)
    for b in range(new.shape[0]):
        # One array written per loop: the compiler then vectorises it.
        x, c, kept, shown = projected[b], old_memory[b], new_memory[b], new[b]
        for j in range(size):
            f = sigmoid(x[size + j] + forget[j] * c[j])
            kept[j] = f * c[j] + (one - f) * x[j]
        for j in range(size):
            r = sigmoid(x[2 * size + j] + reset[j] * c[j])
            shown[j] = r * kept[j] + (one - r) * x[3 * size + j]


@njit(**PART)
def _light_backward(
    projected: Any,
    old_memory: Any,
    new_memory: Any,
    state_gradient: Any,
    memory_gradient: Any,
    projected_gradient: Any,
    forget: Any,
    reset: Any,
    forget_gradient: Any,
    reset_gradient: Any,
    room: Any,
) -> None:
    size, one = state_gradient.shape[1], projected.dtype.type(1)
    f, r, forgetting, opening = room[0], room[1], room[2], room[3]
    for b in range(state_gradient.shape[0]):
        x, c, after, result = projected[b], old_memory[b], new_memory[b], projected_gradient[b]
        given, kept = state_gradient[b], memory_gradient[b]
        for j in range(size):
            f[j] = sigmoid(x[size + j] + forget[j] * c[j])
        for j in range(size):
            r[j] = sigmoid(x[2 * size + j] + reset[j] * c[j])
        for j in range(size):
            kept[j] += given[j] * r[j]
        for j in range(size):
            opening[j] = given[j] * (after[j] - x[3 * size + j]) * r[j] * (one - r[j])
        for j in range(size):
            forgetting[j] = kept[j] * (c[j] - x[j]) * f[j] * (one - f[j])
        for j in range(size):
            result[j] = kept[j] * (one - f[j])
        for j in range(size):
            result[size + j] = forgetting[j]
        for j in range(size):
            result[2 * size + j] = opening[j]
        for j in range(size):
            result[3 * size + j] = given[j] * (one - r[j])
        for j in range(size):
            forget_gradient[j] += forgetting[j] * c[j]
        for j in range(size):
            reset_gradient[j] += opening[j] * c[j]
        for j in range(size):
            kept[j] = kept[j] * f[j] + forgetting[j] * forget[j] + opening[j] * reset[j]


@njit(**LOOP)
def _light_forward_loop(chunk: Any, weights: Any, constants: Any) -> None:
    for t in range(chunk.projected[STEPS]):
        before, after = memories(chunk, t)
        _light_forward(inputs(chunk, t), before, after, states(chunk, t)[1], weights[0], weights[1])
        freeze_finished(chunk, chunk.carried, t)
        freeze_finished(chunk, chunk.memory, t)


@njit(**LOOP)
def _light_backward_loop(chunk: Any, weights: Any, gradients: Any, constants: Any) -> None:
    for t in range(chunk.gradient[STEPS] - 1, -1, -1):
        add_output_gradient(chunk, t)
        given, result = (
            at_time(chunk, chunk.projected, t),
            at_time(chunk, chunk.projected_gradient, t),
        )
        before, after = at_time(chunk, chunk.memory, t), at_time(chunk, chunk.memory, t + 1)
        _light_backward(
            given,
            before,
            after,
            chunk.state_gradient,
            chunk.memory_gradient,
            result,
            weights[0],
            weights[1],
            gradients[0],
            gradients[1],
            chunk.room,
        )
        for b in range(chunk.state_gradient.shape[0]):
            clear_row(
                chunk.state_gradient[b]
            )  # nothing reads the state, so nothing comes back to it
        restore_finished(chunk, t)


LOOPS = {
    "LightRecurrence": (_light_forward_loop, _light_backward_loop),
}
