"""The elementwise part of an LSTM: four gates, and a memory that no product reads."""

from __future__ import annotations

from typing import Any

import numpy as np

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
        i, f = product[b, :size], product[b, size : 2 * size]
        g, o = product[b, 2 * size : 3 * size], product[b, 3 * size :]
        before, kept, shown = old_memory[b], new_memory[b], new[b]
        for j in range(size):
            kept[j] = sigmoid(f[j]) * before[j] + sigmoid(i[j]) * tanh(g[j])
        for j in range(size):
            shown[j] = sigmoid(o[j]) * tanh(kept[j])


@njit(**PART)
def _lstm_backward(
    product: Any,
    old_memory: Any,
    new_memory: Any,
    state_gradient: Any,
    memory_gradient: Any,
    gradient: Any,
) -> None:
    size, one = state_gradient.shape[1], product.dtype.type(1)
    gates, squashed = np.empty((4, size), product.dtype), np.empty(size, product.dtype)
    i, f, g, o = gates[0], gates[1], gates[2], gates[3]
    for b in range(state_gradient.shape[0]):
        s_i, s_f = product[b, :size], product[b, size : 2 * size]
        s_g, s_o = product[b, 2 * size : 3 * size], product[b, 3 * size :]
        g_i, g_f = gradient[b, :size], gradient[b, size : 2 * size]
        g_g, g_o = gradient[b, 2 * size : 3 * size], gradient[b, 3 * size :]
        given, kept, before, after = (
            state_gradient[b],
            memory_gradient[b],
            old_memory[b],
            new_memory[b],
        )
        for j in range(size):
            i[j] = sigmoid(s_i[j])
        for j in range(size):
            f[j] = sigmoid(s_f[j])
        for j in range(size):
            g[j] = tanh(s_g[j])
        for j in range(size):
            o[j] = sigmoid(s_o[j])
        for j in range(size):
            squashed[j] = tanh(after[j])
        for j in range(size):
            kept[j] += given[j] * o[j] * (one - squashed[j] * squashed[j])
        for j in range(size):
            g_i[j] = kept[j] * g[j] * i[j] * (one - i[j])
        for j in range(size):
            g_f[j] = kept[j] * before[j] * f[j] * (one - f[j])
        for j in range(size):
            g_g[j] = kept[j] * i[j] * (one - g[j] * g[j])
        for j in range(size):
            g_o[j] = given[j] * squashed[j] * o[j] * (one - o[j])
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
        _lstm_backward(total, before, after, chunk.state_gradient, chunk.memory_gradient, result)
        backprop_product(chunk, t, False)


LOOPS = {
    "LongShort": (_lstm_forward_loop, _lstm_backward_loop),
}
