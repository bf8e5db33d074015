"""Steps of Euler's method: the antisymmetric RNN, coRNN, the Lipschitz RNN."""

from __future__ import annotations

from typing import Any

from undamped.kernels.coupled.loop import (
    add_backpropagated_product,
    apply,
    at_time,
    backward_loop,
    forward_loop,
    inputs,
    product_plus_input,
    states,
    step_function,
)
from undamped.kernels.shared.tanh import sigmoid, tanh

# In all kernels one array is written per loop: the compiler then vectorises it.


@step_function
def euler_forward(chunk: Any, t: int, weights: Any, constants: Any) -> None:
    """See `Euler`."""
    product_plus_input(chunk, t, chunk.product)
    product, (old, new) = chunk.product, states(chunk, t)
    dt = product.dtype.type(constants[0])
    for b in range(product.shape[0]):
        total, before, after = product[b], old[b], new[b]
        for j in range(product.shape[1]):
            after[j] = before[j] + dt * tanh(total[j])


@step_function
def euler_backward(chunk: Any, t: int, weights: Any, gradients: Any, constants: Any) -> None:
    """The gradient of `euler_forward`."""
    product, grad_product = at_time(chunk, chunk.product, t), at_time(chunk, chunk.gradient, t)
    dt, unit = product.dtype.type(constants[0]), product.dtype.type(1)
    for b in range(product.shape[0]):
        total, grad, result = product[b], chunk.state_gradient[b], grad_product[b]
        for j in range(product.shape[1]):
            value = tanh(total[j])
            result[j] = dt * grad[j] * (unit - value * value)
    add_backpropagated_product(chunk, t)


@step_function
def gated_euler_forward(chunk: Any, t: int, weights: Any, constants: Any) -> None:
    """See `GatedEuler`."""
    apply(chunk, t)
    product, projected, (old, new) = chunk.product, inputs(chunk, t), states(chunk, t)
    size, dt = product.shape[1], product.dtype.type(constants[0])
    for b in range(product.shape[0]):
        total, x, before, after = product[b], projected[b], old[b], new[b]
        for j in range(size):
            gate = sigmoid(total[j] + x[size + j])
            after[j] = before[j] + dt * gate * tanh(total[j] + x[j])


@step_function
def gated_euler_backward(chunk: Any, t: int, weights: Any, gradients: Any, constants: Any) -> None:
    """The gradient of `gated_euler_forward`."""
    product, projected = at_time(chunk, chunk.product, t), at_time(chunk, chunk.projected, t)
    grad_product = at_time(chunk, chunk.gradient, t)
    grad_projected = at_time(chunk, chunk.projected_gradient, t)
    size = product.shape[1]
    dt, unit = product.dtype.type(constants[0]), product.dtype.type(1)
    gates, values = chunk.buffer[0], chunk.buffer[1]
    for b in range(product.shape[0]):
        total, x, grad = product[b], projected[b], chunk.state_gradient[b]
        both, result = grad_product[b], grad_projected[b]
        for j in range(size):
            values[j] = tanh(total[j] + x[j])
        for j in range(size):
            gates[j] = sigmoid(total[j] + x[size + j])
        for j in range(size):
            result[j] = dt * grad[j] * gates[j] * (unit - values[j] * values[j])
        for j in range(size):
            result[size + j] = dt * grad[j] * values[j] * gates[j] * (unit - gates[j])
        for j in range(size):
            both[j] = result[j] + result[size + j]
    add_backpropagated_product(chunk, t)


@step_function
def cornn_forward(chunk: Any, t: int, weights: Any, constants: Any) -> None:
    """See `CoupledOscillator`; a row of states holds (y | z)."""
    product_plus_input(chunk, t, chunk.product)
    product, (old, new) = chunk.product, states(chunk, t)
    size, dt = product.shape[1], product.dtype.type(constants[0])
    gamma, epsilon = product.dtype.type(constants[1]), product.dtype.type(constants[2])
    for b in range(product.shape[0]):
        force, before, after = product[b], old[b], new[b]
        for j in range(size):
            z = before[size + j]
            after[size + j] = z + dt * (tanh(force[j]) - gamma * before[j] - epsilon * z)
        for j in range(size):
            after[j] = before[j] + dt * after[size + j]


@step_function
def cornn_backward(chunk: Any, t: int, weights: Any, gradients: Any, constants: Any) -> None:
    """The gradient of `cornn_forward`."""
    product, grad_product = at_time(chunk, chunk.product, t), at_time(chunk, chunk.gradient, t)
    size = product.shape[1]
    dt, unit = product.dtype.type(constants[0]), product.dtype.type(1)
    push = dt * product.dtype.type(constants[1])
    decay = unit - dt * product.dtype.type(constants[2])
    for b in range(product.shape[0]):
        force, result, grad = product[b], grad_product[b], chunk.state_gradient[b]
        for j in range(size):
            grad[size + j] += dt * grad[j]
        for j in range(size):
            value = tanh(force[j])
            result[j] = dt * grad[size + j] * (unit - value * value)
        for j in range(size):
            grad[j] -= push * grad[size + j]
        for j in range(size):
            grad[size + j] *= decay
    add_backpropagated_product(chunk, t)


@step_function
def lipschitz_forward(chunk: Any, t: int, weights: Any, constants: Any) -> None:
    """See `Lipschitz`."""
    apply(chunk, t)
    product, projected, (old, new) = chunk.product, inputs(chunk, t), states(chunk, t)
    size, dt = old.shape[1], product.dtype.type(constants[0])
    for b in range(product.shape[0]):
        before, after, x, total = old[b], new[b], projected[b], product[b]
        for j in range(size):
            after[j] = before[j] + dt * (total[j] + tanh(total[size + j] + x[j]))


@step_function
def lipschitz_backward(chunk: Any, t: int, weights: Any, gradients: Any, constants: Any) -> None:
    """The gradient of `lipschitz_forward`."""
    product, projected = at_time(chunk, chunk.product, t), at_time(chunk, chunk.projected, t)
    grad_product = at_time(chunk, chunk.gradient, t)
    grad_projected = at_time(chunk, chunk.projected_gradient, t)
    size = chunk.state_gradient.shape[1]
    dt, unit = product.dtype.type(constants[0]), product.dtype.type(1)
    for b in range(product.shape[0]):
        total, x, grad = product[b], projected[b], chunk.state_gradient[b]
        result, inner = grad_product[b], grad_projected[b]
        for j in range(size):
            result[j] = dt * grad[j]
        for j in range(size):
            value = tanh(total[size + j] + x[j])
            inner[j] = dt * grad[j] * (unit - value * value)
        for j in range(size):
            result[size + j] = inner[j]
    add_backpropagated_product(chunk, t)


LOOPS = {
    "Euler": (forward_loop(euler_forward), backward_loop(euler_backward)),
    "GatedEuler": (forward_loop(gated_euler_forward), backward_loop(gated_euler_backward)),
    "CoupledOscillator": (forward_loop(cornn_forward), backward_loop(cornn_backward)),
    "Lipschitz": (forward_loop(lipschitz_forward), backward_loop(lipschitz_backward)),
}
