"""The elementwise part of a GRU."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from undamped.kernels.coupled.contract import Step
from undamped.kernels.coupled.loop import (
    LOOP,
    PART,
    apply,
    at_time,
    hold,
    inputs,
    pull_back,
    receive,
    states,
)
from undamped.kernels.shared.pointers import STEPS
from undamped.kernels.shared.squash import sigmoid, tanh


@njit(**PART)
def _gru_forward(product: Any, projected: Any, old: Any, new: Any, shift: Any) -> None:
    size, one = old.shape[1], product.dtype.type(1)
    candidate = np.empty(size, product.dtype)
    for b in range(product.shape[0]):
        # One array written per loop: the compiler then vectorises it.
        r, z, n = product[b, :size], product[b, size : 2 * size], product[b, 2 * size :]
        r_x, z_x = projected[b, :size], projected[b, size : 2 * size]
        n_x, before, after = projected[b, 2 * size :], old[b], new[b]
        for j in range(size):
            candidate[j] = tanh(n_x[j] + sigmoid(r[j] + r_x[j]) * (n[j] + shift[j]))
        for j in range(size):
            kept = sigmoid(z[j] + z_x[j])
            after[j] = kept * before[j] + (one - kept) * candidate[j]


@njit(**PART)
def _gru_backward(
    product: Any,
    projected: Any,
    old: Any,
    flow: Any,
    gradient: Any,
    projected_gradient: Any,
    shift: Any,
    shift_gradient: Any,
) -> None:
    size, one = old.shape[1], product.dtype.type(1)
    r, z = np.empty(size, product.dtype), np.empty(size, product.dtype)
    candidate = np.empty(size, product.dtype)
    for b in range(flow.shape[0]):
        r_h, z_h, n_h = product[b, :size], product[b, size : 2 * size], product[b, 2 * size :]
        r_x, z_x = projected[b, :size], projected[b, size : 2 * size]
        n_x, given, before = projected[b, 2 * size :], flow[b], old[b]
        reset, update = gradient[b, :size], gradient[b, size : 2 * size]
        inner, read = projected_gradient[b, 2 * size :], gradient[b, 2 * size :]
        for j in range(size):
            r[j] = sigmoid(r_h[j] + r_x[j])
        for j in range(size):
            z[j] = sigmoid(z_h[j] + z_x[j])
        for j in range(size):
            candidate[j] = tanh(n_x[j] + r[j] * (n_h[j] + shift[j]))
        for j in range(size):
            inner[j] = given[j] * (one - z[j]) * (one - candidate[j] * candidate[j])
        for j in range(size):
            read[j] = inner[j] * r[j]
        for j in range(size):
            shift_gradient[j] += read[j]
        for j in range(size):
            reset[j] = inner[j] * (n_h[j] + shift[j]) * r[j] * (one - r[j])
        for j in range(size):
            update[j] = given[j] * (before[j] - candidate[j]) * z[j] * (one - z[j])
        for j in range(size):
            given[j] *= z[j]
        both, shared = projected_gradient[b, : 2 * size], gradient[b, : 2 * size]
        for j in range(2 * size):
            both[j] = shared[j]


@njit(**LOOP)
def _gru_there(way: Any, parameters: Any, numbers: Any) -> None:
    for t in range(way.projected[STEPS]):
        old, new = states(way, t)
        apply(way, t)
        _gru_forward(way.product, inputs(way, t), old, new, parameters[0])
        hold(way, way.carried, t)


@njit(**LOOP)
def _gru_back(way: Any, parameters: Any, gradients: Any, numbers: Any) -> None:
    for t in range(way.gradient[STEPS] - 1, -1, -1):
        receive(way, t)
        total, given = at_time(way, way.product, t), at_time(way, way.projected, t)
        result, inner = at_time(way, way.gradient, t), at_time(way, way.projected_gradient, t)
        old = at_time(way, way.carried, t)
        shift, shift_gradient = parameters[0], gradients[0]
        _gru_backward(total, given, old, way.flow, result, inner, shift, shift_gradient)
        pull_back(way, t, True)


class GatedRecurrent(Step):
    """carried' = z ⊙ carried + (1 − z) ⊙ tanh(projected₃ + r ⊙ (product₃ + d)).

    r = σ̂(product₁ + projected₁), z = σ̂(product₂ + projected₂). Parameters: d (hidden,).
    """

    adds_projection = False
    loops = _gru_there, _gru_back
