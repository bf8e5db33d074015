"""The light recurrence of the SRU: gates that read the memory unit by unit, no product."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from undamped.kernels.coupled.contract import Step
from undamped.kernels.coupled.loop import (
    LOOP,
    PART,
    at_time,
    bring_back,
    clear,
    hold,
    inputs,
    memories,
    receive,
    states,
)
from undamped.kernels.shared.pointers import STEPS
from undamped.kernels.shared.squash import sigmoid


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
    flow: Any,
    memory_flow: Any,
    projected_gradient: Any,
    forget: Any,
    reset: Any,
    forget_gradient: Any,
    reset_gradient: Any,
) -> None:
    size, one = flow.shape[1], projected.dtype.type(1)
    f, r = np.empty(size, projected.dtype), np.empty(size, projected.dtype)
    for b in range(flow.shape[0]):
        candidate, passing = projected[b, :size], projected[b, 3 * size :]
        f_x, r_x = projected[b, size : 2 * size], projected[b, 2 * size : 3 * size]
        c, after, given, kept = old_memory[b], new_memory[b], flow[b], memory_flow[b]
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
def _light_there(way: Any, parameters: Any, numbers: Any) -> None:
    for t in range(way.projected[STEPS]):
        before, after = memories(way, t)
        _light_forward(inputs(way, t), before, after, states(way, t)[1], *parameters)
        hold(way, way.carried, t)
        hold(way, way.memory, t)


@njit(**LOOP)
def _light_back(way: Any, parameters: Any, gradients: Any, numbers: Any) -> None:
    for t in range(way.gradient[STEPS] - 1, -1, -1):
        receive(way, t)
        given, result = at_time(way, way.projected, t), at_time(way, way.projected_gradient, t)
        before, after = at_time(way, way.memory, t), at_time(way, way.memory, t + 1)
        both = (*parameters, *gradients)
        _light_backward(given, before, after, way.flow, way.memory_flow, result, *both)
        for b in range(way.flow.shape[0]):
            clear(way.flow[b])  # nothing reads the state, so nothing comes back to it
        bring_back(way, t)


class LightRecurrence(Step):
    """Forget and reset gates; parameters: their recurrent weights (hidden,) each."""

    adds_projection = False
    has_memory = True
    loops = _light_there, _light_back
