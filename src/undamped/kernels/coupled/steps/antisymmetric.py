"""Elementwise parts of the antisymmetric RNN, with and without a gate: a step of Euler's method."""

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
    product_plus_input,
    states,
)
from undamped.kernels.shared.jit import njit
from undamped.kernels.shared.pointers import STEPS
from undamped.kernels.shared.tanh import sigmoid, tanh

# In all kernels one array is written per loop: the compiler then vectorises it.


@njit(**PART)
def _euler_forward(product: Any, old: Any, new: Any, step: float) -> None:
    dt = product.dtype.type(step)
    for b in range(product.shape[0]):
        total, before, after = product[b], old[b], new[b]
        for j in range(product.shape[1]):
            after[j] = before[j] + dt * tanh(total[j])


@njit(**PART)
def _euler_backward(product: Any, state_gradient: Any, gradient: Any, step: float) -> None:
    dt, one = product.dtype.type(step), product.dtype.type(1)
    for b in range(state_gradient.shape[0]):
        total, given, result = product[b], state_gradient[b], gradient[b]
        for j in range(state_gradient.shape[1]):
            value = tanh(total[j])
            result[j] = dt * given[j] * (one - value * value)


@njit(**PART)
def _gated_forward(product: Any, projected: Any, old: Any, new: Any, step: float) -> None:
    size = product.shape[1]
    dt = product.dtype.type(step)
    for b in range(product.shape[0]):
        total, x, before, after = product[b], projected[b], old[b], new[b]
        for j in range(size):
            gate = sigmoid(total[j] + x[size + j])
            after[j] = before[j] + dt * gate * tanh(total[j] + x[j])


@njit(**PART)
def _gated_backward(
    product: Any,
    projected: Any,
    state_gradient: Any,
    gradient: Any,
    projected_gradient: Any,
    step: float,
    room: Any,
) -> None:
    size = product.shape[1]
    dt, one = product.dtype.type(step), product.dtype.type(1)
    gates, values = room[0], room[1]
    for b in range(state_gradient.shape[0]):
        total, x, given = product[b], projected[b], state_gradient[b]
        both, result = gradient[b], projected_gradient[b]
        for j in range(size):
            values[j] = tanh(total[j] + x[j])
        for j in range(size):
            gates[j] = sigmoid(total[j] + x[size + j])
        for j in range(size):
            result[j] = dt * given[j] * gates[j] * (one - values[j] * values[j])
        for j in range(size):
            result[size + j] = dt * given[j] * values[j] * gates[j] * (one - gates[j])
        for j in range(size):
            both[j] = result[j] + result[size + j]


@njit(**LOOP)
def _euler_forward_loop(chunk: Any, weights: Any, constants: Any) -> None:
    for t in range(chunk.projected[STEPS]):
        old, new = states(chunk, t)
        product_plus_input(chunk, t, chunk.product)
        _euler_forward(chunk.product, old, new, constants[0])
        freeze_finished(chunk, chunk.carried, t)


@njit(**LOOP)
def _euler_backward_loop(chunk: Any, weights: Any, gradients: Any, constants: Any) -> None:
    for t in range(chunk.gradient[STEPS] - 1, -1, -1):
        add_output_gradient(chunk, t)
        total, result = at_time(chunk, chunk.product, t), at_time(chunk, chunk.gradient, t)
        _euler_backward(total, chunk.state_gradient, result, constants[0])
        add_backpropagated_product(chunk, t)


@njit(**LOOP)
def _gated_forward_loop(chunk: Any, weights: Any, constants: Any) -> None:
    for t in range(chunk.projected[STEPS]):
        old, new = states(chunk, t)
        apply(chunk, t)
        _gated_forward(chunk.product, inputs(chunk, t), old, new, constants[0])
        freeze_finished(chunk, chunk.carried, t)


@njit(**LOOP)
def _gated_backward_loop(chunk: Any, weights: Any, gradients: Any, constants: Any) -> None:
    for t in range(chunk.gradient[STEPS] - 1, -1, -1):
        add_output_gradient(chunk, t)
        total, given = at_time(chunk, chunk.product, t), at_time(chunk, chunk.projected, t)
        result, inner = (
            at_time(chunk, chunk.gradient, t),
            at_time(chunk, chunk.projected_gradient, t),
        )
        _gated_backward(total, given, chunk.state_gradient, result, inner, constants[0], chunk.room)
        add_backpropagated_product(chunk, t)


LOOPS = {
    "Euler": (_euler_forward_loop, _euler_backward_loop),
    "GatedEuler": (_gated_forward_loop, _gated_backward_loop),
}
