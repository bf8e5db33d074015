"""The light recurrence of the SRU: gates that read the memory unit by unit, no product."""

from __future__ import annotations

from typing import Any

import numpy as np

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
        candidate, passing = projected[b, :size], projected[b, 3 * size :]
        f_x, r_x = projected[b, size : 2 * size], projected[b, 2 * size : 3 * size]
        c, kept, shown = old_memory[b], new_memory[b], new[b]
        for j in range(size):
            f = sigmoid(f_x[j] + forget[j] * c[j])
            kept[j] = f * c[j] + (one - f) * candidate[j]
        for j in range(size):
            r = sigmoid(r_x[j] + reset[j] * c[j])
            shown[j] = r * kept[j] + (one - r) * passing[j]


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
) -> None:
    size, one = state_gradient.shape[1], projected.dtype.type(1)
    f, r = np.empty(size, projected.dtype), np.empty(size, projected.dtype)
    for b in range(state_gradient.shape[0]):
        candidate, passing = projected[b, :size], projected[b, 3 * size :]
        f_x, r_x = projected[b, size : 2 * size], projected[b, 2 * size : 3 * size]
        c, after, given, kept = old_memory[b], new_memory[b], state_gradient[b], memory_gradient[b]
        first, passed = projected_gradient[b, :size], projected_gradient[b, 3 * size :]
        forgetting = projected_gradient[b, size : 2 * size]
        opening = projected_gradient[b, 2 * size : 3 * size]
        for j in range(size):
            f[j] = sigmoid(f_x[j] + forget[j] * c[j])
        for j in range(size):
            r[j] = sigmoid(r_x[j] + reset[j] * c[j])
        for j in range(size):
            kept[j] += given[j] * r[j]
        for j in range(size):
            opening[j] = given[j] * (after[j] - passing[j]) * r[j] * (one - r[j])
        for j in range(size):
            forgetting[j] = kept[j] * (c[j] - candidate[j]) * f[j] * (one - f[j])
        for j in range(size):
            first[j] = kept[j] * (one - f[j])
        for j in range(size):
            passed[j] = given[j] * (one - r[j])
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
        )
        for b in range(chunk.state_gradient.shape[0]):
            clear_row(
                chunk.state_gradient[b]
            )  # nothing reads the state, so nothing comes back to it
        restore_finished(chunk, t)


LOOPS = {
    "LightRecurrence": (_light_forward_loop, _light_backward_loop),
}
