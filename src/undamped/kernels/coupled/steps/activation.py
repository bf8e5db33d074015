"""Elementwise steps that are one function: tanh, (leaky) relu, modReLU real and complex.

Their slope follows from the new state, so the backward pass recomputes nothing. In addition to a
loop, each has kernels of one time for structured operators, which are called from Python: (product,
new, weights, constants, buffer) in the forward pass, where `product` is `new` for those that work
in place; (new, grad_new, grad_product, parts) in the backward pass, where the parts are weights,
their gradients, constants and a buffer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from undamped.kernels.coupled.loop import (
    LOOP,
    add_output_gradient,
    at_time,
    backprop_product,
    compiled_loop,
    freeze_finished,
    product_plus_input,
    restore_finished,
    states,
    step_function,
)
from undamped.kernels.shared.jit import njit
from undamped.kernels.shared.pointers import STEPS
from undamped.kernels.shared.tanh import tanh


@step_function
def tanh_forward(product: Any, new: Any, weights: Any, constants: Any, buffer: Any) -> None:
    """new = tanh(new)."""
    for b in range(new.shape[0]):
        row = new[b]
        for j in range(new.shape[1]):
            row[j] = tanh(row[j])


@step_function
def tanh_backward(new: Any, grad_new: Any, grad_product: Any, parts: Any) -> None:
    """The gradient of `tanh_forward`."""
    unit = new.dtype.type(1)
    for b in range(grad_new.shape[0]):
        value, grad, result = new[b], grad_new[b], grad_product[b]
        for j in range(grad_new.shape[1]):
            result[j] = grad[j] * (unit - value[j] * value[j])


@step_function
def relu_forward(product: Any, new: Any, weights: Any, constants: Any, buffer: Any) -> None:
    """new = max(new, leak · new)."""
    zero, slope = new.dtype.type(0), new.dtype.type(constants[0])
    for b in range(new.shape[0]):
        row = new[b]
        for j in range(new.shape[1]):
            # Not leak · new alone: zero times −∞ is NaN. A NaN in the row stays NaN.
            low = zero if slope == zero and row[j] <= zero else slope * row[j]
            row[j] = row[j] if row[j] > zero else low


@step_function
def relu_backward(new: Any, grad_new: Any, grad_product: Any, parts: Any) -> None:
    """The gradient of `relu_forward`."""
    zero, slope = new.dtype.type(0), new.dtype.type(parts[2][0])
    for b in range(grad_new.shape[0]):
        value, grad, result = new[b], grad_new[b], grad_product[b]
        for j in range(grad_new.shape[1]):
            result[j] = grad[j] if value[j] > zero else slope * grad[j]


@step_function
def modrelu_forward(product: Any, new: Any, weights: Any, constants: Any, buffer: Any) -> None:
    """new = sign(new) relu(|new| + bias)."""
    bias, zero = weights[0], new.dtype.type(0)
    for b in range(new.shape[0]):
        row = new[b]
        for j in range(new.shape[1]):
            value = row[j]
            size = max(abs(value) + bias[j], zero)
            signed = size if value > zero else -size
            row[j] = zero if value == zero else signed


@step_function
def modrelu_backward(new: Any, grad_new: Any, grad_product: Any, parts: Any) -> None:
    """The gradient of `modrelu_forward`: 1 above the threshold, where the sign is unchanged."""
    bias_gradient, zero = parts[1][0], new.dtype.type(0)
    for b in range(grad_new.shape[0]):
        value, grad, result = new[b], grad_new[b], grad_product[b]
        for j in range(grad_new.shape[1]):
            result[j] = zero if value[j] == zero else grad[j]
        for j in range(grad_new.shape[1]):
            bias_gradient[j] += result[j] if value[j] > zero else -result[j]


@step_function
def complex_modrelu_forward(
    product: Any, new: Any, weights: Any, constants: Any, buffer: Any
) -> None:
    """new = s relu(|s| + bias)/(|s| + ε), s = product."""
    bias, size = weights[0], weights[0].shape[0]
    zero, soft = product.dtype.type(0), product.dtype.type(constants[0])
    scale = buffer[0]
    for b in range(product.shape[0]):
        # One array written per loop: the compiler then vectorises it.
        total, after = product[b], new[b]
        for j in range(size):
            re, im = total[j], total[size + j]
            modulus = math.sqrt(re * re + im * im)
            scale[j] = max(modulus + bias[j], zero) / (modulus + soft)
        for j in range(size):
            after[j] = scale[j] * total[j]
        for j in range(size):
            after[size + j] = scale[j] * total[size + j]


@step_function
def complex_modrelu_backward(new: Any, grad_new: Any, grad_product: Any, parts: Any) -> None:
    """The gradient of `complex_modrelu_forward`."""
    # With m = |s| and c(m) = (m + b)/(m + ε): d(c s) = c ds + c' s dm, c' = (ε − b)/(m + ε)².
    # Above the threshold, m follows from the new modulus r = m (m + b)/(m + ε): it is the larger
    # root of m² + (b − r) m − r ε = 0, written without a difference of equal constants. s itself
    # is then the new value times m/r.
    (bias,), (bias_gradient,), (softening,), buffer = parts
    size, dtype = bias.shape[0], new.dtype
    zero, unit, two, four = dtype.type(0), dtype.type(1), dtype.type(2), dtype.type(4)
    soft = dtype.type(softening)
    moduli, inverse, scale, slope = buffer[0], buffer[1], buffer[2], buffer[3]
    for b in range(new.shape[0]):
        value, grad, result = new[b], grad_new[b], grad_product[b]
        for j in range(size):
            r = math.sqrt(value[j] * value[j] + value[size + j] * value[size + j])
            less = r - bias[j]
            root = math.sqrt(less * less + four * r * soft)
            large = (less + root) / two
            bottom = root - less
            small = two * r * soft / (bottom if bottom > zero else unit)
            moduli[j] = large if less > zero else small
        for j in range(size):
            r = math.sqrt(value[j] * value[j] + value[size + j] * value[size + j])
            inverse[j] = unit / r if r > zero else zero  # scales the value to the direction of s
        for j in range(size):
            # Below the threshold, unless s was exactly zero and the threshold is not positive.
            opened = inverse[j] > zero or bias[j] > zero
            scale[j] = (moduli[j] + bias[j]) / (moduli[j] + soft) if opened else zero
        for j in range(size):
            along = grad[j] * value[j] + grad[size + j] * value[size + j]
            slope[j] = along * inverse[j] * moduli[j] / (moduli[j] + soft)
        for j in range(size):
            bias_gradient[j] += slope[j]
        for j in range(size):
            slope[j] *= (soft - bias[j]) / (moduli[j] + soft) * inverse[j]
        for j in range(size):
            result[j] = scale[j] * grad[j] + slope[j] * value[j]
        for j in range(size):
            result[size + j] = scale[j] * grad[size + j] + slope[j] * value[size + j]


def _forward_loop(function: Callable[..., None], in_place: bool) -> Any:
    def loop(chunk: Any, weights: Any, constants: Any) -> None:
        for t in range(chunk.projected[STEPS]):
            new = states(chunk, t)[1]
            if in_place:
                product_plus_input(chunk, t, new)
                function(new, new, weights, constants, chunk.buffer)
            else:
                product_plus_input(chunk, t, chunk.product)
                function(chunk.product, new, weights, constants, chunk.buffer)
            freeze_finished(chunk, chunk.hidden_states, t)

    return compiled_loop(loop, function)


def _backward_loop(function: Callable[..., None]) -> Any:
    def loop(chunk: Any, weights: Any, gradients: Any, constants: Any) -> None:
        for t in range(chunk.output_gradient[STEPS] - 1, -1, -1):
            add_output_gradient(chunk, t)
            new = at_time(chunk, chunk.hidden_states, t + 1)
            result = at_time(chunk, chunk.gradient, t)
            parts = (weights, gradients, constants, chunk.buffer)
            function(new, chunk.state_gradient, result, parts)
            backprop_product(chunk, t)
            restore_finished(chunk, t)

    return compiled_loop(loop, function)


_FUNCTIONS = {
    "Tanh": (tanh_forward, tanh_backward, True),
    "LeakyRelu": (relu_forward, relu_backward, True),
    "ModRelu": (modrelu_forward, modrelu_backward, True),
    "ComplexModRelu": (complex_modrelu_forward, complex_modrelu_backward, False),
}
LOOPS = {
    name: (_forward_loop(forward, in_place), _backward_loop(backward))
    for name, (forward, backward, in_place) in _FUNCTIONS.items()
}
KERNELS = {
    name: (njit(**LOOP)(forward), njit(**LOOP)(backward))
    for name, (forward, backward, _) in _FUNCTIONS.items()
}
"""The functions of one time, for structured operators."""
