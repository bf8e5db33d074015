"""Elementwise parts of FastRNN and FastGRNN."""

from __future__ import annotations

from typing import Any

from undamped.kernels.coupled.loop import (
    LOOP,
    PART,
    add_backpropagated_product,
    add_output_gradient,
    add_sum,
    at_time,
    clear_row,
    freeze_finished,
    product_plus_input,
    states,
)
from undamped.kernels.shared.jit import njit
from undamped.kernels.shared.pointers import STEPS
from undamped.kernels.shared.tanh import sigmoid, tanh

# In all kernels one array is written per loop: the compiler then vectorises it. For the same
# reason numbers that belong to all units collect their gradients per unit first.


@njit(**PART)
def _mix_forward(product: Any, old: Any, new: Any, new_share: Any, old_share: Any) -> None:
    alpha, beta = new_share[0], old_share[0]
    for b in range(product.shape[0]):
        total, before, after = product[b], old[b], new[b]
        for j in range(product.shape[1]):
            after[j] = alpha * tanh(total[j]) + beta * before[j]


@njit(**PART)
def _mix_backward(
    product: Any,
    old: Any,
    state_gradient: Any,
    gradient: Any,
    new_share: Any,
    old_share: Any,
    new_gradient: Any,
    old_gradient: Any,
    room: Any,
) -> None:
    alpha, beta, one, size = (
        new_share[0],
        old_share[0],
        product.dtype.type(1),
        state_gradient.shape[1],
    )
    news, olds, values = room[0], room[1], room[2]
    clear_row(news)
    clear_row(olds)
    for b in range(state_gradient.shape[0]):
        total, given, before, result = product[b], state_gradient[b], old[b], gradient[b]
        for j in range(size):
            values[j] = tanh(total[j])
        for j in range(size):
            news[j] += given[j] * values[j]
        for j in range(size):
            olds[j] += given[j] * before[j]
        for j in range(size):
            result[j] = alpha * given[j] * (one - values[j] * values[j])
        for j in range(size):
            given[j] *= beta
    add_sum(news, new_gradient)
    add_sum(olds, old_gradient)


@njit(**PART)
def _fast_gate_forward(
    product: Any, old: Any, new: Any, shift: Any, closed: Any, always: Any
) -> None:
    zeta, nu, one = closed[0], always[0], product.dtype.type(1)
    for b in range(product.shape[0]):
        total, before, after = product[b], old[b], new[b]
        for j in range(product.shape[1]):
            z = sigmoid(total[j] + shift[j])
            after[j] = (zeta * (one - z) + nu) * tanh(total[j]) + z * before[j]


@njit(**PART)
def _fast_gate_backward(
    product: Any,
    old: Any,
    state_gradient: Any,
    gradient: Any,
    shift: Any,
    closed: Any,
    always: Any,
    shift_gradient: Any,
    closed_gradient: Any,
    always_gradient: Any,
    room: Any,
) -> None:
    zeta, nu, one, size = closed[0], always[0], product.dtype.type(1), state_gradient.shape[1]
    closeds, alls, opening, value, z = room[0], room[1], room[2], room[3], room[4]
    clear_row(closeds)
    clear_row(alls)
    for b in range(state_gradient.shape[0]):
        total, given, before, result = product[b], state_gradient[b], old[b], gradient[b]
        for j in range(size):
            value[j] = tanh(total[j])
        for j in range(size):
            z[j] = sigmoid(total[j] + shift[j])
        for j in range(size):
            closeds[j] += given[j] * (one - z[j]) * value[j]
        for j in range(size):
            alls[j] += given[j] * value[j]
        for j in range(size):
            opening[j] = given[j] * (before[j] - zeta * value[j]) * z[j] * (one - z[j])
        for j in range(size):
            shift_gradient[j] += opening[j]
        for j in range(size):
            weight = zeta * (one - z[j]) + nu
            result[j] = given[j] * weight * (one - value[j] * value[j]) + opening[j]
        for j in range(size):
            given[j] *= z[j]
    add_sum(closeds, closed_gradient)
    add_sum(alls, always_gradient)


@njit(**LOOP)
def _mix_forward_loop(chunk: Any, weights: Any, constants: Any) -> None:
    for t in range(chunk.projected[STEPS]):
        old, new = states(chunk, t)
        product_plus_input(chunk, t, chunk.product)
        _mix_forward(chunk.product, old, new, weights[0], weights[1])
        freeze_finished(chunk, chunk.carried, t)


@njit(**LOOP)
def _mix_backward_loop(chunk: Any, weights: Any, gradients: Any, constants: Any) -> None:
    for t in range(chunk.gradient[STEPS] - 1, -1, -1):
        add_output_gradient(chunk, t)
        total, result = at_time(chunk, chunk.product, t), at_time(chunk, chunk.gradient, t)
        old = at_time(chunk, chunk.carried, t)
        _mix_backward(
            total,
            old,
            chunk.state_gradient,
            result,
            weights[0],
            weights[1],
            gradients[0],
            gradients[1],
            chunk.room,
        )
        add_backpropagated_product(chunk, t)


@njit(**LOOP)
def _fast_gate_forward_loop(chunk: Any, weights: Any, constants: Any) -> None:
    for t in range(chunk.projected[STEPS]):
        old, new = states(chunk, t)
        product_plus_input(chunk, t, chunk.product)
        _fast_gate_forward(chunk.product, old, new, weights[0], weights[1], weights[2])
        freeze_finished(chunk, chunk.carried, t)


@njit(**LOOP)
def _fast_gate_backward_loop(chunk: Any, weights: Any, gradients: Any, constants: Any) -> None:
    for t in range(chunk.gradient[STEPS] - 1, -1, -1):
        add_output_gradient(chunk, t)
        total, result = at_time(chunk, chunk.product, t), at_time(chunk, chunk.gradient, t)
        old = at_time(chunk, chunk.carried, t)
        _fast_gate_backward(
            total,
            old,
            chunk.state_gradient,
            result,
            weights[0],
            weights[1],
            weights[2],
            gradients[0],
            gradients[1],
            gradients[2],
            chunk.room,
        )
        add_backpropagated_product(chunk, t)


LOOPS = {
    "WeightedSum": (_mix_forward_loop, _mix_backward_loop),
    "FastGate": (_fast_gate_forward_loop, _fast_gate_backward_loop),
}
