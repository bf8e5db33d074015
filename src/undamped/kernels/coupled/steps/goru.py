"""The elementwise part of GORU."""

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
from undamped.kernels.shared.tanh import sigmoid

# In all kernels one array is written per loop: the compiler then vectorises it.


@njit(**PART)
def _goru_forward(product: Any, projected: Any, old: Any, new: Any, bias: Any) -> None:
    size, zero, one = old.shape[1], product.dtype.type(0), product.dtype.type(1)
    candidate = np.empty(size, product.dtype)
    for b in range(product.shape[0]):
        r, u, turned = product[b, :size], product[b, size : 2 * size], product[b, 2 * size :]
        r_x, u_x = projected[b, :size], projected[b, size : 2 * size]
        given, before, after = projected[b, 2 * size :], old[b], new[b]
        for j in range(size):
            total = given[j] + sigmoid(r[j] + r_x[j]) * turned[j]
            large = max(abs(total) + bias[j], zero)
            signed = large if total > zero else -large
            candidate[j] = zero if total == zero else signed
        for j in range(size):
            opened = sigmoid(u[j] + u_x[j])
            after[j] = opened * before[j] + (one - opened) * candidate[j]


@njit(**PART)
def _goru_backward(
    product: Any,
    projected: Any,
    old: Any,
    state_gradient: Any,
    gradient: Any,
    projected_gradient: Any,
    bias: Any,
    bias_gradient: Any,
) -> None:
    size, zero, one = old.shape[1], product.dtype.type(0), product.dtype.type(1)
    candidate = np.empty(size, product.dtype)
    r, u = np.empty(size, product.dtype), np.empty(size, product.dtype)
    for b in range(state_gradient.shape[0]):
        r_h, u_h, turned = (
            product[b, :size],
            product[b, size : 2 * size],
            product[b, 2 * size :],
        )
        r_x, u_x = projected[b, :size], projected[b, size : 2 * size]
        x, given, before = projected[b, 2 * size :], state_gradient[b], old[b]
        reset, update = gradient[b, :size], gradient[b, size : 2 * size]
        inner, rotated = projected_gradient[b, 2 * size :], gradient[b, 2 * size :]
        for j in range(size):
            r[j] = sigmoid(r_h[j] + r_x[j])
        for j in range(size):
            u[j] = sigmoid(u_h[j] + u_x[j])
        for j in range(size):
            total = x[j] + r[j] * turned[j]
            large = max(abs(total) + bias[j], zero)
            signed = large if total > zero else -large
            candidate[j] = zero if total == zero else signed
        for j in range(size):
            inner[j] = zero if candidate[j] == zero else given[j] * (one - u[j])
        for j in range(size):
            bias_gradient[j] += inner[j] if candidate[j] > zero else -inner[j]
        for j in range(size):
            reset[j] = inner[j] * turned[j] * r[j] * (one - r[j])
        for j in range(size):
            update[j] = given[j] * (before[j] - candidate[j]) * u[j] * (one - u[j])
        for j in range(size):
            rotated[j] = inner[j] * r[j]
        for j in range(size):
            given[j] *= u[j]
        both, shared = projected_gradient[b, : 2 * size], gradient[b, : 2 * size]
        for j in range(2 * size):
            both[j] = shared[j]


@njit(**LOOP)
def _goru_forward_loop(chunk: Any, weights: Any, constants: Any) -> None:
    for t in range(chunk.projected[STEPS]):
        old, new = states(chunk, t)
        apply(chunk, t)
        _goru_forward(chunk.product, inputs(chunk, t), old, new, weights[0])
        freeze_finished(chunk, chunk.carried, t)


@njit(**LOOP)
def _goru_backward_loop(chunk: Any, weights: Any, gradients: Any, constants: Any) -> None:
    for t in range(chunk.gradient[STEPS] - 1, -1, -1):
        add_output_gradient(chunk, t)
        total, given = at_time(chunk, chunk.product, t), at_time(chunk, chunk.projected, t)
        result, inner = (
            at_time(chunk, chunk.gradient, t),
            at_time(chunk, chunk.projected_gradient, t),
        )
        old = at_time(chunk, chunk.carried, t)
        bias, bias_gradient = weights[0], gradients[0]
        _goru_backward(total, given, old, chunk.state_gradient, result, inner, bias, bias_gradient)
        backprop_product(chunk, t, True)


LOOPS = {
    "GatedOrthogonal": (_goru_forward_loop, _goru_backward_loop),
}
