"""The elementwise part of GORU."""

from __future__ import annotations

from typing import Any

from undamped.kernels.coupled.loop import (
    LOOP,
    PART,
    add_backpropagated_product,
    add_output_gradient,
    apply,
    at_time,
    freeze_finished,
    inputs,
    states,
)
from undamped.kernels.shared.jit import njit
from undamped.kernels.shared.pointers import STEPS
from undamped.kernels.shared.tanh import sigmoid

# In all kernels one array is written per loop: the compiler then vectorises it.


@njit(**PART)
def _goru_forward(product: Any, projected: Any, old: Any, new: Any, bias: Any, room: Any) -> None:
    size, zero, one = old.shape[1], product.dtype.type(0), product.dtype.type(1)
    candidate = room[0]
    for b in range(product.shape[0]):
        turned, x, before, after = product[b], projected[b], old[b], new[b]
        for j in range(size):
            total = x[2 * size + j] + sigmoid(turned[j] + x[j]) * turned[2 * size + j]
            large = max(abs(total) + bias[j], zero)
            signed = large if total > zero else -large
            candidate[j] = zero if total == zero else signed
        for j in range(size):
            opened = sigmoid(turned[size + j] + x[size + j])
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
    room: Any,
) -> None:
    size, zero, one = old.shape[1], product.dtype.type(0), product.dtype.type(1)
    r, u, candidate, inner = room[0], room[1], room[2], room[3]
    for b in range(state_gradient.shape[0]):
        turned, x, given, before = product[b], projected[b], state_gradient[b], old[b]
        result, projected_result = gradient[b], projected_gradient[b]
        for j in range(size):
            r[j] = sigmoid(turned[j] + x[j])
        for j in range(size):
            u[j] = sigmoid(turned[size + j] + x[size + j])
        for j in range(size):
            total = x[2 * size + j] + r[j] * turned[2 * size + j]
            large = max(abs(total) + bias[j], zero)
            signed = large if total > zero else -large
            candidate[j] = zero if total == zero else signed
        for j in range(size):
            inner[j] = zero if candidate[j] == zero else given[j] * (one - u[j])
        for j in range(size):
            bias_gradient[j] += inner[j] if candidate[j] > zero else -inner[j]
        for j in range(size):
            result[j] = inner[j] * turned[2 * size + j] * r[j] * (one - r[j])
        for j in range(size):
            result[size + j] = given[j] * (before[j] - candidate[j]) * u[j] * (one - u[j])
        for j in range(size):
            result[2 * size + j] = inner[j] * r[j]
        for j in range(size):
            given[j] *= u[j]
        for j in range(2 * size):
            projected_result[j] = result[j]
        for j in range(size):
            projected_result[2 * size + j] = inner[j]


@njit(**LOOP)
def _goru_forward_loop(chunk: Any, weights: Any, constants: Any) -> None:
    for t in range(chunk.projected[STEPS]):
        old, new = states(chunk, t)
        apply(chunk, t)
        _goru_forward(chunk.product, inputs(chunk, t), old, new, weights[0], chunk.room)
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
        _goru_backward(
            total,
            given,
            old,
            chunk.state_gradient,
            result,
            inner,
            weights[0],
            gradients[0],
            chunk.room,
        )
        add_backpropagated_product(chunk, t)


LOOPS = {
    "GatedOrthogonal": (_goru_forward_loop, _goru_backward_loop),
}
