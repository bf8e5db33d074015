"""Steps with gates: LSTM, GRU, GORU, SRU, FastRNN, FastGRNN and Latch-GRU."""

from __future__ import annotations

from typing import Any

from undamped.kernels.coupled.loop import (
    add_backpropagated_product,
    add_sum,
    apply,
    at_time,
    backprop_product,
    backward_loop,
    clear_row,
    forward_loop,
    inputs,
    memories,
    product_plus_input,
    states,
    step_function,
)
from undamped.kernels.shared.tanh import sigmoid, tanh

# In all kernels one array is written per loop: the compiler then vectorises it. For the same
# reason gradients of scalars are first summed per unit.


@step_function
def lstm_forward(chunk: Any, t: int, weights: Any, constants: Any) -> None:
    """See `LongShort`."""
    product_plus_input(chunk, t, chunk.product)
    product, (old_memory, new_memory), new = chunk.product, memories(chunk, t), states(chunk, t)[1]
    size = new.shape[1]
    for b in range(product.shape[0]):
        total, before, after, hidden = product[b], old_memory[b], new_memory[b], new[b]
        for j in range(size):
            update = sigmoid(total[j]) * tanh(total[2 * size + j])
            after[j] = sigmoid(total[size + j]) * before[j] + update
        for j in range(size):
            hidden[j] = sigmoid(total[3 * size + j]) * tanh(after[j])


@step_function
def lstm_backward(chunk: Any, t: int, weights: Any, gradients: Any, constants: Any) -> None:
    """The gradient of `lstm_forward`."""
    product, grad_product = at_time(chunk, chunk.product, t), at_time(chunk, chunk.gradient, t)
    old_memory, new_memory = at_time(chunk, chunk.memory, t), at_time(chunk, chunk.memory, t + 1)
    size, unit, buffer = chunk.state_gradient.shape[1], product.dtype.type(1), chunk.buffer
    i, f, g, o, squashed = buffer[0], buffer[1], buffer[2], buffer[3], buffer[4]
    for b in range(product.shape[0]):
        total, result, grad = product[b], grad_product[b], chunk.state_gradient[b]
        before, after, grad_cell = old_memory[b], new_memory[b], chunk.memory_gradient[b]
        for j in range(size):
            i[j] = sigmoid(total[j])
        for j in range(size):
            f[j] = sigmoid(total[size + j])
        for j in range(size):
            g[j] = tanh(total[2 * size + j])
        for j in range(size):
            o[j] = sigmoid(total[3 * size + j])
        for j in range(size):
            squashed[j] = tanh(after[j])
        for j in range(size):
            grad_cell[j] += grad[j] * o[j] * (unit - squashed[j] * squashed[j])
        for j in range(size):
            result[j] = grad_cell[j] * g[j] * i[j] * (unit - i[j])
        for j in range(size):
            result[size + j] = grad_cell[j] * before[j] * f[j] * (unit - f[j])
        for j in range(size):
            result[2 * size + j] = grad_cell[j] * i[j] * (unit - g[j] * g[j])
        for j in range(size):
            result[3 * size + j] = grad[j] * squashed[j] * o[j] * (unit - o[j])
        for j in range(size):
            grad_cell[j] *= f[j]
    backprop_product(chunk, t)


@step_function
def gru_forward(chunk: Any, t: int, weights: Any, constants: Any) -> None:
    """See `GatedRecurrent`."""
    apply(chunk, t)
    product, projected, (old, new) = chunk.product, inputs(chunk, t), states(chunk, t)
    size, unit, shift, candidate = old.shape[1], product.dtype.type(1), weights[0], chunk.buffer[0]
    for b in range(product.shape[0]):
        total, x, before, after = product[b], projected[b], old[b], new[b]
        for j in range(size):
            reset = sigmoid(total[j] + x[j])
            candidate[j] = tanh(x[2 * size + j] + reset * (total[2 * size + j] + shift[j]))
        for j in range(size):
            z = sigmoid(total[size + j] + x[size + j])
            after[j] = z * before[j] + (unit - z) * candidate[j]


@step_function
def gru_backward(chunk: Any, t: int, weights: Any, gradients: Any, constants: Any) -> None:
    """The gradient of `gru_forward`."""
    product, projected = at_time(chunk, chunk.product, t), at_time(chunk, chunk.projected, t)
    old, grad_product = at_time(chunk, chunk.hidden_states, t), at_time(chunk, chunk.gradient, t)
    grad_projected = at_time(chunk, chunk.projected_gradient, t)
    shift, shift_gradient = weights[0], gradients[0]
    size, unit, buffer = old.shape[1], product.dtype.type(1), chunk.buffer
    r, z, candidate, inner = buffer[0], buffer[1], buffer[2], buffer[3]
    for b in range(product.shape[0]):
        total, x, grad, before = product[b], projected[b], chunk.state_gradient[b], old[b]
        result, projected_result = grad_product[b], grad_projected[b]
        for j in range(size):
            r[j] = sigmoid(total[j] + x[j])
        for j in range(size):
            z[j] = sigmoid(total[size + j] + x[size + j])
        for j in range(size):
            candidate[j] = tanh(x[2 * size + j] + r[j] * (total[2 * size + j] + shift[j]))
        for j in range(size):
            inner[j] = grad[j] * (unit - z[j]) * (unit - candidate[j] * candidate[j])
        for j in range(size):
            result[2 * size + j] = inner[j] * r[j]
        for j in range(size):
            shift_gradient[j] += inner[j] * r[j]
        for j in range(size):
            slope = r[j] * (unit - r[j])
            result[j] = inner[j] * (total[2 * size + j] + shift[j]) * slope
        for j in range(size):
            result[size + j] = grad[j] * (before[j] - candidate[j]) * z[j] * (unit - z[j])
        for j in range(size):
            grad[j] *= z[j]
        for j in range(2 * size):
            projected_result[j] = result[j]
        for j in range(size):
            projected_result[2 * size + j] = inner[j]
    add_backpropagated_product(chunk, t)


@step_function
def goru_forward(chunk: Any, t: int, weights: Any, constants: Any) -> None:
    """See `GatedOrthogonal`."""
    apply(chunk, t)
    product, projected, (old, new) = chunk.product, inputs(chunk, t), states(chunk, t)
    size, zero, unit = old.shape[1], product.dtype.type(0), product.dtype.type(1)
    bias, candidate = weights[0], chunk.buffer[0]
    for b in range(product.shape[0]):
        rotated, x, before, after = product[b], projected[b], old[b], new[b]
        for j in range(size):
            total = x[2 * size + j] + sigmoid(rotated[j] + x[j]) * rotated[2 * size + j]
            large = max(abs(total) + bias[j], zero)
            signed = large if total > zero else -large
            candidate[j] = zero if total == zero else signed
        for j in range(size):
            u = sigmoid(rotated[size + j] + x[size + j])
            after[j] = u * before[j] + (unit - u) * candidate[j]


@step_function
def goru_backward(chunk: Any, t: int, weights: Any, gradients: Any, constants: Any) -> None:
    """The gradient of `goru_forward`."""
    product, projected = at_time(chunk, chunk.product, t), at_time(chunk, chunk.projected, t)
    old, grad_product = at_time(chunk, chunk.hidden_states, t), at_time(chunk, chunk.gradient, t)
    grad_projected = at_time(chunk, chunk.projected_gradient, t)
    bias, bias_gradient, buffer = weights[0], gradients[0], chunk.buffer
    size, zero, unit = old.shape[1], product.dtype.type(0), product.dtype.type(1)
    r, u, candidate, inner = buffer[0], buffer[1], buffer[2], buffer[3]
    for b in range(product.shape[0]):
        rotated, x, grad, before = product[b], projected[b], chunk.state_gradient[b], old[b]
        result, projected_result = grad_product[b], grad_projected[b]
        for j in range(size):
            r[j] = sigmoid(rotated[j] + x[j])
        for j in range(size):
            u[j] = sigmoid(rotated[size + j] + x[size + j])
        for j in range(size):
            total = x[2 * size + j] + r[j] * rotated[2 * size + j]
            large = max(abs(total) + bias[j], zero)
            signed = large if total > zero else -large
            candidate[j] = zero if total == zero else signed
        for j in range(size):
            inner[j] = zero if candidate[j] == zero else grad[j] * (unit - u[j])
        for j in range(size):
            bias_gradient[j] += inner[j] if candidate[j] > zero else -inner[j]
        for j in range(size):
            result[j] = inner[j] * rotated[2 * size + j] * r[j] * (unit - r[j])
        for j in range(size):
            result[size + j] = grad[j] * (before[j] - candidate[j]) * u[j] * (unit - u[j])
        for j in range(size):
            result[2 * size + j] = inner[j] * r[j]
        for j in range(size):
            grad[j] *= u[j]
        for j in range(2 * size):
            projected_result[j] = result[j]
        for j in range(size):
            projected_result[2 * size + j] = inner[j]
    add_backpropagated_product(chunk, t)


@step_function
def sru_forward(chunk: Any, t: int, weights: Any, constants: Any) -> None:
    """See `LightRecurrence`: gates that read the memory unit by unit, no product."""
    projected, (old_memory, new_memory), new = (
        inputs(chunk, t),
        memories(chunk, t),
        states(chunk, t)[1],
    )
    size, unit, forget, reset = new.shape[1], new.dtype.type(1), weights[0], weights[1]
    for b in range(new.shape[0]):
        x, c, after, hidden = projected[b], old_memory[b], new_memory[b], new[b]
        for j in range(size):
            f = sigmoid(x[size + j] + forget[j] * c[j])
            after[j] = f * c[j] + (unit - f) * x[j]
        for j in range(size):
            r = sigmoid(x[2 * size + j] + reset[j] * c[j])
            hidden[j] = r * after[j] + (unit - r) * x[3 * size + j]


@step_function
def sru_backward(chunk: Any, t: int, weights: Any, gradients: Any, constants: Any) -> None:
    """The gradient of `sru_forward`."""
    projected = at_time(chunk, chunk.projected, t)
    grad_projected = at_time(chunk, chunk.projected_gradient, t)
    old_memory, new_memory = at_time(chunk, chunk.memory, t), at_time(chunk, chunk.memory, t + 1)
    (forget, reset), (forget_gradient, reset_gradient) = weights, gradients
    size, unit, buffer = chunk.state_gradient.shape[1], projected.dtype.type(1), chunk.buffer
    f, r, grad_f, grad_r = buffer[0], buffer[1], buffer[2], buffer[3]
    for b in range(projected.shape[0]):
        x, c, after, result = projected[b], old_memory[b], new_memory[b], grad_projected[b]
        grad, grad_memory = chunk.state_gradient[b], chunk.memory_gradient[b]
        for j in range(size):
            f[j] = sigmoid(x[size + j] + forget[j] * c[j])
        for j in range(size):
            r[j] = sigmoid(x[2 * size + j] + reset[j] * c[j])
        for j in range(size):
            grad_memory[j] += grad[j] * r[j]
        for j in range(size):
            grad_r[j] = grad[j] * (after[j] - x[3 * size + j]) * r[j] * (unit - r[j])
        for j in range(size):
            grad_f[j] = grad_memory[j] * (c[j] - x[j]) * f[j] * (unit - f[j])
        for j in range(size):
            result[j] = grad_memory[j] * (unit - f[j])
        for j in range(size):
            result[size + j] = grad_f[j]
        for j in range(size):
            result[2 * size + j] = grad_r[j]
        for j in range(size):
            result[3 * size + j] = grad[j] * (unit - r[j])
        for j in range(size):
            forget_gradient[j] += grad_f[j] * c[j]
        for j in range(size):
            reset_gradient[j] += grad_r[j] * c[j]
        for j in range(size):
            grad_memory[j] = grad_memory[j] * f[j] + grad_f[j] * forget[j] + grad_r[j] * reset[j]
        clear_row(grad)  # nothing reads the state, so its gradient before the step is zero


@step_function
def fastrnn_forward(chunk: Any, t: int, weights: Any, constants: Any) -> None:
    """See `WeightedSum`."""
    product_plus_input(chunk, t, chunk.product)
    product, (old, new) = chunk.product, states(chunk, t)
    alpha, beta = weights[0][0], weights[1][0]
    for b in range(product.shape[0]):
        total, before, after = product[b], old[b], new[b]
        for j in range(product.shape[1]):
            after[j] = alpha * tanh(total[j]) + beta * before[j]


@step_function
def fastrnn_backward(chunk: Any, t: int, weights: Any, gradients: Any, constants: Any) -> None:
    """The gradient of `fastrnn_forward`."""
    product, grad_product = at_time(chunk, chunk.product, t), at_time(chunk, chunk.gradient, t)
    old, buffer = at_time(chunk, chunk.hidden_states, t), chunk.buffer
    alpha, beta = weights[0][0], weights[1][0]
    unit, size = product.dtype.type(1), chunk.state_gradient.shape[1]
    alpha_sums, beta_sums, values = buffer[0], buffer[1], buffer[2]
    clear_row(alpha_sums)
    clear_row(beta_sums)
    for b in range(product.shape[0]):
        total, grad, before = product[b], chunk.state_gradient[b], old[b]
        result = grad_product[b]
        for j in range(size):
            values[j] = tanh(total[j])
        for j in range(size):
            alpha_sums[j] += grad[j] * values[j]
        for j in range(size):
            beta_sums[j] += grad[j] * before[j]
        for j in range(size):
            result[j] = alpha * grad[j] * (unit - values[j] * values[j])
        for j in range(size):
            grad[j] *= beta
    add_sum(alpha_sums, gradients[0])
    add_sum(beta_sums, gradients[1])
    add_backpropagated_product(chunk, t)


@step_function
def fastgrnn_forward(chunk: Any, t: int, weights: Any, constants: Any) -> None:
    """See `FastGate`."""
    product_plus_input(chunk, t, chunk.product)
    product, (old, new), shift = chunk.product, states(chunk, t), weights[0]
    zeta, nu, unit = weights[1][0], weights[2][0], product.dtype.type(1)
    for b in range(product.shape[0]):
        total, before, after = product[b], old[b], new[b]
        for j in range(product.shape[1]):
            z = sigmoid(total[j] + shift[j])
            after[j] = (zeta * (unit - z) + nu) * tanh(total[j]) + z * before[j]


@step_function
def fastgrnn_backward(chunk: Any, t: int, weights: Any, gradients: Any, constants: Any) -> None:
    """The gradient of `fastgrnn_forward`."""
    product, grad_product = at_time(chunk, chunk.product, t), at_time(chunk, chunk.gradient, t)
    old, buffer = at_time(chunk, chunk.hidden_states, t), chunk.buffer
    shift, shift_gradient = weights[0], gradients[0]
    zeta, nu, unit = weights[1][0], weights[2][0], product.dtype.type(1)
    size = chunk.state_gradient.shape[1]
    zeta_sums, nu_sums, grad_gate, value, z = buffer[0], buffer[1], buffer[2], buffer[3], buffer[4]
    clear_row(zeta_sums)
    clear_row(nu_sums)
    for b in range(product.shape[0]):
        total, grad, before = product[b], chunk.state_gradient[b], old[b]
        result = grad_product[b]
        for j in range(size):
            value[j] = tanh(total[j])
        for j in range(size):
            z[j] = sigmoid(total[j] + shift[j])
        for j in range(size):
            zeta_sums[j] += grad[j] * (unit - z[j]) * value[j]
        for j in range(size):
            nu_sums[j] += grad[j] * value[j]
        for j in range(size):
            grad_gate[j] = grad[j] * (before[j] - zeta * value[j]) * z[j] * (unit - z[j])
        for j in range(size):
            shift_gradient[j] += grad_gate[j]
        for j in range(size):
            weight = zeta * (unit - z[j]) + nu
            result[j] = grad[j] * weight * (unit - value[j] * value[j]) + grad_gate[j]
        for j in range(size):
            grad[j] *= z[j]
    add_sum(zeta_sums, gradients[1])
    add_sum(nu_sums, gradients[2])
    add_backpropagated_product(chunk, t)


@step_function
def hard_gated_forward(chunk: Any, t: int, weights: Any, constants: Any) -> None:
    """See `HardGated`."""
    product_plus_input(chunk, t, chunk.product)
    product, (old, new) = chunk.product, states(chunk, t)
    size, unit, zero = old.shape[1], product.dtype.type(1), product.dtype.type(0)
    slope, half = product.dtype.type(constants[0]), product.dtype.type(0.5)
    for b in range(product.shape[0]):
        total, before, after = product[b], old[b], new[b]
        for j in range(size):
            q = min(max(half + slope * total[j], zero), unit)
            after[j] = (unit - q) * before[j] + q * tanh(total[size + j])


@step_function
def hard_gated_backward(chunk: Any, t: int, weights: Any, gradients: Any, constants: Any) -> None:
    """The gradient of `hard_gated_forward`."""
    product, grad_product = at_time(chunk, chunk.product, t), at_time(chunk, chunk.gradient, t)
    old, unit, zero = (
        at_time(chunk, chunk.hidden_states, t),
        product.dtype.type(1),
        product.dtype.type(0),
    )
    slope, half = product.dtype.type(constants[0]), product.dtype.type(0.5)
    size, q, candidate = old.shape[1], chunk.buffer[0], chunk.buffer[1]
    for b in range(product.shape[0]):
        total, grad, before, result = product[b], chunk.state_gradient[b], old[b], grad_product[b]
        for j in range(size):
            q[j] = min(max(half + slope * total[j], zero), unit)
        for j in range(size):
            candidate[j] = tanh(total[size + j])
        for j in range(size):
            inside = slope if zero < q[j] < unit else zero
            result[j] = grad[j] * (candidate[j] - before[j]) * inside
        for j in range(size):
            result[size + j] = grad[j] * q[j] * (unit - candidate[j] * candidate[j])
        for j in range(size):
            grad[j] *= unit - q[j]
    add_backpropagated_product(chunk, t)


LOOPS = {
    "LongShort": (forward_loop(lstm_forward, has_memory=True), backward_loop(lstm_backward)),
    "GatedRecurrent": (forward_loop(gru_forward), backward_loop(gru_backward)),
    "GatedOrthogonal": (forward_loop(goru_forward), backward_loop(goru_backward)),
    "LightRecurrence": (forward_loop(sru_forward, has_memory=True), backward_loop(sru_backward)),
    "WeightedSum": (forward_loop(fastrnn_forward), backward_loop(fastrnn_backward)),
    "HardGated": (forward_loop(hard_gated_forward), backward_loop(hard_gated_backward)),
    "FastGate": (forward_loop(fastgrnn_forward), backward_loop(fastgrnn_backward)),
}
