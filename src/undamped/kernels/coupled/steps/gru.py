"""The elementwise part of a GRU."""

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
from undamped.kernels.shared.tanh import sigmoid, tanh


@njit(**PART)
def _gru_forward(product: Any, projected: Any, old: Any, new: Any, shift: Any, room: Any) -> None:
    size, one, candidate = old.shape[1], product.dtype.type(1), room[0]
    for b in range(product.shape[0]):
        # One array written per loop: the compiler then vectorises it.
        total, x, before, after = product[b], projected[b], old[b], new[b]
        for j in range(size):
            reset = sigmoid(total[j] + x[j])
            candidate[j] = tanh(x[2 * size + j] + reset * (total[2 * size + j] + shift[j]))
        for j in range(size):
            kept = sigmoid(total[size + j] + x[size + j])
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
    room: Any,
) -> None:
    size, one = old.shape[1], product.dtype.type(1)
    r, z, candidate, inner = room[0], room[1], room[2], room[3]
    for b in range(state_gradient.shape[0]):
        total, x, given, before = product[b], projected[b], state_gradient[b], old[b]
        result, projected_result = gradient[b], projected_gradient[b]
        for j in range(size):
            r[j] = sigmoid(total[j] + x[j])
        for j in range(size):
            z[j] = sigmoid(total[size + j] + x[size + j])
        for j in range(size):
            candidate[j] = tanh(x[2 * size + j] + r[j] * (total[2 * size + j] + shift[j]))
        for j in range(size):
            inner[j] = given[j] * (one - z[j]) * (one - candidate[j] * candidate[j])
        for j in range(size):
            result[2 * size + j] = inner[j] * r[j]
        for j in range(size):
            shift_gradient[j] += inner[j] * r[j]
        for j in range(size):
            slope = r[j] * (one - r[j])
            result[j] = inner[j] * (total[2 * size + j] + shift[j]) * slope
        for j in range(size):
            result[size + j] = given[j] * (before[j] - candidate[j]) * z[j] * (one - z[j])
        for j in range(size):
            given[j] *= z[j]
        for j in range(2 * size):
            projected_result[j] = result[j]
        for j in range(size):
            projected_result[2 * size + j] = inner[j]


@njit(**LOOP)
def _gru_forward_loop(chunk: Any, weights: Any, constants: Any) -> None:
    for t in range(chunk.projected[STEPS]):
        old, new = states(chunk, t)
        apply(chunk, t)
        _gru_forward(chunk.product, inputs(chunk, t), old, new, weights[0], chunk.room)
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
        _gru_backward(
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
    "GatedRecurrent": (_gru_forward_loop, _gru_backward_loop),
}
