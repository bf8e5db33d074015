"""The elementwise part of a GRU."""

from __future__ import annotations

from typing import Any

import numpy as np

from undamped.kernels.coupled.loop import (
    LOOP,
    PART,
    add_output_gradient,
    apply,
    at_time,
    backprop_product,
    freeze_finished,
    inputs,
    states,
)
from undamped.kernels.shared.jit import njit
from undamped.kernels.shared.pointers import STEPS
from undamped.kernels.shared.tanh import sigmoid, tanh


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
    state_gradient: Any,
    gradient: Any,
    projected_gradient: Any,
    shift: Any,
    shift_gradient: Any,
) -> None:
    size, one = old.shape[1], product.dtype.type(1)
    r, z = np.empty(size, product.dtype), np.empty(size, product.dtype)
    candidate = np.empty(size, product.dtype)
    for b in range(state_gradient.shape[0]):
        r_h, z_h, n_h = product[b, :size], product[b, size : 2 * size], product[b, 2 * size :]
        r_x, z_x = projected[b, :size], projected[b, size : 2 * size]
        n_x, given, before = projected[b, 2 * size :], state_gradient[b], old[b]
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
def _gru_forward_loop(chunk: Any, weights: Any, constants: Any) -> None:
    for t in range(chunk.projected[STEPS]):
        old, new = states(chunk, t)
        apply(chunk, t)
        _gru_forward(chunk.product, inputs(chunk, t), old, new, weights[0])
        freeze_finished(chunk, chunk.carried, t)


@njit(**LOOP)
def _gru_backward_loop(chunk: Any, weights: Any, gradients: Any, constants: Any) -> None:
    for t in range(chunk.gradient[STEPS] - 1, -1, -1):
        add_output_gradient(chunk, t)
        total, given = at_time(chunk, chunk.product, t), at_time(chunk, chunk.projected, t)
        result, inner = (
            at_time(chunk, chunk.gradient, t),
            at_time(chunk, chunk.projected_gradient, t),
        )
        old = at_time(chunk, chunk.carried, t)
        shift, shift_gradient = weights[0], gradients[0]
        _gru_backward(total, given, old, chunk.state_gradient, result, inner, shift, shift_gradient)
        backprop_product(chunk, t, True)


LOOPS = {
    "GatedRecurrent": (_gru_forward_loop, _gru_backward_loop),
}
