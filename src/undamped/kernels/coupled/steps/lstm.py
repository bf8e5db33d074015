"""The elementwise part of an LSTM: four gates, and a memory that no product reads."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from undamped.kernels.coupled.contract import Step
from undamped.kernels.coupled.loop import (
    LOOP,
    PART,
    at_time,
    hold,
    memories,
    pull_back,
    receive,
    states,
    sum_up,
)
from undamped.kernels.shared.pointers import STEPS
from undamped.kernels.shared.squash import sigmoid, tanh


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
    product: Any, old_memory: Any, new_memory: Any, flow: Any, memory_flow: Any, gradient: Any
) -> None:
    size, one = flow.shape[1], product.dtype.type(1)
    gates, squashed = np.empty((4, size), product.dtype), np.empty(size, product.dtype)
    i, f, g, o = gates[0], gates[1], gates[2], gates[3]
    for b in range(flow.shape[0]):
        s_i, s_f = product[b, :size], product[b, size : 2 * size]
        s_g, s_o = product[b, 2 * size : 3 * size], product[b, 3 * size :]
        g_i, g_f = gradient[b, :size], gradient[b, size : 2 * size]
        g_g, g_o = gradient[b, 2 * size : 3 * size], gradient[b, 3 * size :]
        given, kept, before, after = flow[b], memory_flow[b], old_memory[b], new_memory[b]
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
def _lstm_there(way: Any, parameters: Any, numbers: Any) -> None:
    for t in range(way.projected[STEPS]):
        before, after = memories(way, t)
        sum_up(way, t, way.product)
        _lstm_forward(way.product, before, after, states(way, t)[1])
        hold(way, way.carried, t)
        hold(way, way.memory, t)


@njit(**LOOP)
def _lstm_back(way: Any, parameters: Any, gradients: Any, numbers: Any) -> None:
    for t in range(way.gradient[STEPS] - 1, -1, -1):
        receive(way, t)
        total, result = at_time(way, way.product, t), at_time(way, way.gradient, t)
        before, after = at_time(way, way.memory, t), at_time(way, way.memory, t + 1)
        _lstm_backward(total, before, after, way.flow, way.memory_flow, result)
        pull_back(way, t, False)


class LongShort(Step):
    """The LSTM step: gates i, f, g, o from product + projected, a memory beside the state."""

    has_memory = True
    loops = _lstm_there, _lstm_back
