"""The elementwise part of the Lipschitz RNN."""

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
from undamped.kernels.shared.tanh import tanh

# In all kernels one array is written per loop: the compiler then vectorises it.


@njit(**PART)
def _lipschitz_forward(product: Any, projected: Any, old: Any, new: Any, step: float) -> None:
    size = old.shape[1]
    dt = product.dtype.type(step)
    for b in range(product.shape[0]):
        before, after, given, total = old[b], new[b], projected[b], product[b]
        for j in range(size):
            after[j] = before[j] + dt * (total[j] + tanh(total[size + j] + given[j]))


@njit(**PART)
def _lipschitz_backward(
    product: Any,
    projected: Any,
    state_gradient: Any,
    gradient: Any,
    projected_gradient: Any,
    step: float,
) -> None:
    size = state_gradient.shape[1]
    dt, one = product.dtype.type(step), product.dtype.type(1)
    for b in range(state_gradient.shape[0]):
        total, given, outer = product[b], projected[b], state_gradient[b]
        result, inner = gradient[b], projected_gradient[b]
        for j in range(size):
            result[j] = dt * outer[j]
        for j in range(size):
            value = tanh(total[size + j] + given[j])
            inner[j] = dt * outer[j] * (one - value * value)
        for j in range(size):
            result[size + j] = inner[j]


@njit(**LOOP)
def _lipschitz_forward_loop(chunk: Any, weights: Any, constants: Any) -> None:
    for t in range(chunk.projected[STEPS]):
        old, new = states(chunk, t)
        apply(chunk, t)
        _lipschitz_forward(chunk.product, inputs(chunk, t), old, new, constants[0])
        freeze_finished(chunk, chunk.carried, t)


@njit(**LOOP)
def _lipschitz_backward_loop(chunk: Any, weights: Any, gradients: Any, constants: Any) -> None:
    for t in range(chunk.gradient[STEPS] - 1, -1, -1):
        add_output_gradient(chunk, t)
        total, given = at_time(chunk, chunk.product, t), at_time(chunk, chunk.projected, t)
        result, inner = (
            at_time(chunk, chunk.gradient, t),
            at_time(chunk, chunk.projected_gradient, t),
        )
        _lipschitz_backward(total, given, chunk.state_gradient, result, inner, constants[0])
        add_backpropagated_product(chunk, t)


LOOPS = {
    "Lipschitz": (_lipschitz_forward_loop, _lipschitz_backward_loop),
}
