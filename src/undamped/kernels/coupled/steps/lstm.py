"""The elementwise part of an LSTM: four gates, and a memory that no product reads."""

from __future__ import annotations

from typing import Any

from undamped.kernels.coupled.loop import (
    LOOP,
    PART,
    add_output_gradient,
    at_time,
    backprop_product,
    freeze_finished,
    memories,
    product_plus_input,
    states,
)
from undamped.kernels.shared.jit import njit
from undamped.kernels.shared.pointers import STEPS
from undamped.kernels.shared.tanh import sigmoid, tanh


@njit(**PART)
def _lstm_forward(product: Any, old_memory: Any, new_memory: Any, new: Any) -> None:
    size = new.shape[1]
    for b in range(product.shape[0]):
        # One array written per loop: the compiler then vectorises it.
        total, before, kept, shown = product[b], old_memory[b], new_memory[b], new[b]
        for j in range(size):
            taken = sigmoid(total[j]) * tanh(total[2 * size + j])
            kept[j] = sigmoid(total[size + j]) * before[j] + taken
        for j in range(size):
            shown[j] = sigmoid(total[3 * size + j]) * tanh(kept[j])


@njit(**PART)
def _lstm_backward(
    product: Any,
    old_memory: Any,
    new_memory: Any,
    state_gradient: Any,
    memory_gradient: Any,
    gradient: Any,
    room: Any,
) -> None:
    size, one = state_gradient.shape[1], product.dtype.type(1)
    i, f, g, o, squashed = room[0], room[1], room[2], room[3], room[4]
    for b in range(state_gradient.shape[0]):
        total, result, given, kept = product[b], gradient[b], state_gradient[b], memory_gradient[b]
        before, after = old_memory[b], new_memory[b]
        for j in range(size):
            i[j] = sigmoid(total[j])
        for j in range(size):
            f[j] = sigmoid(total[size + j])
        for j in range(size):
            g[j] = tanh(total[2 * size + j])
        for j in range(size):
            o[j] = sigmoid(total[3 * size + j])
        for j in range(size):
            squashed[j] = tanh(after[j])
        for j in range(size):
            kept[j] += given[j] * o[j] * (one - squashed[j] * squashed[j])
        for j in range(size):
            result[j] = kept[j] * g[j] * i[j] * (one - i[j])
        for j in range(size):
            result[size + j] = kept[j] * before[j] * f[j] * (one - f[j])
        for j in range(size):
            result[2 * size + j] = kept[j] * i[j] * (one - g[j] * g[j])
        for j in range(size):
            result[3 * size + j] = given[j] * squashed[j] * o[j] * (one - o[j])
        for j in range(size):
            kept[j] *= f[j]


@njit(**LOOP)
def _lstm_forward_loop(chunk: Any, weights: Any, constants: Any) -> None:
    for t in range(chunk.projected[STEPS]):
        before, after = memories(chunk, t)
        product_plus_input(chunk, t, chunk.product)
        _lstm_forward(chunk.product, before, after, states(chunk, t)[1])
        freeze_finished(chunk, chunk.carried, t)
        freeze_finished(chunk, chunk.memory, t)


@njit(**LOOP)
def _lstm_backward_loop(chunk: Any, weights: Any, gradients: Any, constants: Any) -> None:
    for t in range(chunk.gradient[STEPS] - 1, -1, -1):
        add_output_gradient(chunk, t)
        total, result = at_time(chunk, chunk.product, t), at_time(chunk, chunk.gradient, t)
        before, after = at_time(chunk, chunk.memory, t), at_time(chunk, chunk.memory, t + 1)
        _lstm_backward(
            total, before, after, chunk.state_gradient, chunk.memory_gradient, result, chunk.room
        )
        backprop_product(chunk, t)


LOOPS = {
    "LongShort": (_lstm_forward_loop, _lstm_backward_loop),
}
