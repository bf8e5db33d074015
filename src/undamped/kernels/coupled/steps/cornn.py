"""The elementwise part of coRNN: coupled oscillators."""

from __future__ import annotations

from typing import Any

from undamped.kernels.coupled.loop import (
    LOOP,
    PART,
    add_backpropagated_product,
    add_output_gradient,
    at_time,
    freeze_finished,
    product_plus_input,
    states,
)
from undamped.kernels.shared.jit import njit
from undamped.kernels.shared.pointers import STEPS
from undamped.kernels.shared.tanh import tanh

# In all kernels one array is written per loop: the compiler then vectorises it.


@njit(**PART)
def _cornn_forward(
    product: Any, old: Any, new: Any, step: float, stiffness: float, damping: float
) -> None:
    size = product.shape[1]
    dt = product.dtype.type(step)
    gamma, epsilon = product.dtype.type(stiffness), product.dtype.type(damping)
    for b in range(product.shape[0]):
        force, before, after = product[b], old[b], new[b]
        for j in range(size):
            z = before[size + j]
            after[size + j] = z + dt * (tanh(force[j]) - gamma * before[j] - epsilon * z)
        for j in range(size):
            after[j] = before[j] + dt * after[size + j]


@njit(**PART)
def _cornn_backward(
    product: Any, state_gradient: Any, gradient: Any, step: float, stiffness: float, damping: float
) -> None:
    size = product.shape[1]
    dt, one = product.dtype.type(step), product.dtype.type(1)
    push = dt * product.dtype.type(stiffness)
    keep = one - dt * product.dtype.type(damping)
    for b in range(state_gradient.shape[0]):
        force, result, given = product[b], gradient[b], state_gradient[b]  # given: (y | z)
        for j in range(size):
            given[size + j] += dt * given[j]
        for j in range(size):
            value = tanh(force[j])
            result[j] = dt * given[size + j] * (one - value * value)
        for j in range(size):
            given[j] -= push * given[size + j]
        for j in range(size):
            given[size + j] *= keep


@njit(**LOOP)
def _cornn_forward_loop(chunk: Any, weights: Any, constants: Any) -> None:
    for t in range(chunk.projected[STEPS]):
        old, new = states(chunk, t)
        product_plus_input(chunk, t, chunk.product)
        _cornn_forward(chunk.product, old, new, constants[0], constants[1], constants[2])
        freeze_finished(chunk, chunk.carried, t)


@njit(**LOOP)
def _cornn_backward_loop(chunk: Any, weights: Any, gradients: Any, constants: Any) -> None:
    for t in range(chunk.gradient[STEPS] - 1, -1, -1):
        add_output_gradient(chunk, t)
        total, result = at_time(chunk, chunk.product, t), at_time(chunk, chunk.gradient, t)
        _cornn_backward(
            total, chunk.state_gradient, result, constants[0], constants[1], constants[2]
        )
        add_backpropagated_product(chunk, t)


LOOPS = {
    "CoupledOscillator": (_cornn_forward_loop, _cornn_backward_loop),
}
