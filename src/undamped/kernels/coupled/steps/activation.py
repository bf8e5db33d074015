"""Elementwise parts that are one function: tanh, (leaky) relu, modReLU real and complex.

All of them find their slope in the new state, so nothing is computed again in the backward pass.
The kernels of one time take the same arguments: (product, new, weights, constants, room) in the
forward pass, where those that work in place are given `new` twice; (new, its gradient, that of the
product, weights, their gradients, constants, room) in the backward pass.
"""

from __future__ import annotations

import math
from typing import Any

from undamped.kernels.coupled.loop import (
    LOOP,
    PART,
    add_output_gradient,
    at_time,
    backprop_product,
    freeze_finished,
    product_plus_input,
    states,
)
from undamped.kernels.shared.jit import njit
from undamped.kernels.shared.pointers import STEPS
from undamped.kernels.shared.tanh import tanh


@njit(**PART)
def _tanh_forward(product: Any, new: Any, weights: Any, constants: Any, room: Any) -> None:
    for b in range(new.shape[0]):
        row = new[b]
        for j in range(new.shape[1]):
            row[j] = tanh(row[j])


@njit(**PART)
def _tanh_backward(
    new: Any,
    state_gradient: Any,
    gradient: Any,
    weights: Any,
    gradients: Any,
    constants: Any,
    room: Any,
) -> None:
    one = new.dtype.type(1)
    for b in range(state_gradient.shape[0]):
        value, given, result = new[b], state_gradient[b], gradient[b]
        for j in range(state_gradient.shape[1]):
            result[j] = given[j] * (one - value[j] * value[j])


@njit(**PART)
def _relu_forward(product: Any, new: Any, weights: Any, constants: Any, room: Any) -> None:
    zero, slope = new.dtype.type(0), new.dtype.type(constants[0])
    for b in range(new.shape[0]):
        row = new[b]
        for j in range(new.shape[1]):
            # Zero times −∞ is no number; what is none already stays so.
            low = zero if slope == zero and row[j] <= zero else slope * row[j]
            row[j] = row[j] if row[j] > zero else low


@njit(**PART)
def _relu_backward(
    new: Any,
    state_gradient: Any,
    gradient: Any,
    weights: Any,
    gradients: Any,
    constants: Any,
    room: Any,
) -> None:
    zero, slope = new.dtype.type(0), new.dtype.type(constants[0])
    for b in range(state_gradient.shape[0]):
        value, given, result = new[b], state_gradient[b], gradient[b]
        for j in range(state_gradient.shape[1]):
            result[j] = given[j] if value[j] > zero else slope * given[j]


@njit(**PART)
def _modrelu_forward(product: Any, new: Any, weights: Any, constants: Any, room: Any) -> None:
    bias, zero = weights[0], new.dtype.type(0)
    for b in range(new.shape[0]):
        row = new[b]
        for j in range(new.shape[1]):
            value = row[j]
            size = max(abs(value) + bias[j], zero)
            signed = size if value > zero else -size
            row[j] = zero if value == zero else signed


@njit(**PART)
def _modrelu_backward(
    new: Any,
    state_gradient: Any,
    gradient: Any,
    weights: Any,
    gradients: Any,
    constants: Any,
    room: Any,
) -> None:
    # The slope is one wherever something came through, and the new value has the old one's sign.
    bias_gradient, zero = gradients[0], new.dtype.type(0)
    for b in range(state_gradient.shape[0]):
        value, given, result = new[b], state_gradient[b], gradient[b]
        for j in range(state_gradient.shape[1]):
            result[j] = zero if value[j] == zero else given[j]
        for j in range(state_gradient.shape[1]):
            bias_gradient[j] += result[j] if value[j] > zero else -result[j]


@njit(**PART)
def _complex_modrelu_forward(
    product: Any, new: Any, weights: Any, constants: Any, room: Any
) -> None:
    bias, size = weights[0], weights[0].shape[0]
    zero, soft = product.dtype.type(0), product.dtype.type(constants[0])
    scale = room[0]
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


@njit(**PART)
def _complex_modrelu_backward(
    new: Any,
    state_gradient: Any,
    gradient: Any,
    weights: Any,
    gradients: Any,
    constants: Any,
    room: Any,
) -> None:
    # With m = |s| and c(m) = (m + b)/(m + ε): d(c s) = c ds + c' s dm, c' = (ε − b)/(m + ε)².
    # Where something came through, the new modulus r = m (m + b)/(m + ε) gives m back: the
    # larger root of m² + (b − r) m − r ε = 0, written without a difference of equal constants.
    # s itself is then the new value times m/r.
    bias, bias_gradient = weights[0], gradients[0]
    size, dtype = bias.shape[0], new.dtype
    zero, one, two, four = dtype.type(0), dtype.type(1), dtype.type(2), dtype.type(4)
    soft = dtype.type(constants[0])
    moduli, stretch, scale, slope = room[0], room[1], room[2], room[3]
    for b in range(new.shape[0]):
        value, given, result = new[b], state_gradient[b], gradient[b]
        for j in range(size):
            r = math.sqrt(value[j] * value[j] + value[size + j] * value[size + j])
            less = r - bias[j]
            root = math.sqrt(less * less + four * r * soft)
            large = (less + root) / two
            bottom = root - less
            small = two * r * soft / (bottom if bottom > zero else one)
            moduli[j] = large if less > zero else small
        for j in range(size):
            r = math.sqrt(value[j] * value[j] + value[size + j] * value[size + j])
            stretch[j] = one / r if r > zero else zero  # makes the direction of s
        for j in range(size):
            # Nothing came through, unless s was exactly zero below an open threshold.
            opened = stretch[j] > zero or bias[j] > zero
            scale[j] = (moduli[j] + bias[j]) / (moduli[j] + soft) if opened else zero
        for j in range(size):
            along = given[j] * value[j] + given[size + j] * value[size + j]
            slope[j] = along * stretch[j] * moduli[j] / (moduli[j] + soft)
        for j in range(size):
            bias_gradient[j] += slope[j]
        for j in range(size):
            slope[j] *= (soft - bias[j]) / (moduli[j] + soft) * stretch[j]
        for j in range(size):
            result[j] = scale[j] * given[j] + slope[j] * value[j]
        for j in range(size):
            result[size + j] = scale[j] * given[size + j] + slope[j] * value[size + j]


@njit(**LOOP)
def _tanh_forward_loop(chunk: Any, weights: Any, constants: Any) -> None:
    for t in range(chunk.projected[STEPS]):
        new = states(chunk, t)[1]
        product_plus_input(chunk, t, new)
        _tanh_forward(new, new, weights, constants, chunk.room)
        freeze_finished(chunk, chunk.carried, t)


@njit(**LOOP)
def _tanh_backward_loop(chunk: Any, weights: Any, gradients: Any, constants: Any) -> None:
    for t in range(chunk.gradient[STEPS] - 1, -1, -1):
        add_output_gradient(chunk, t)
        new, result = at_time(chunk, chunk.carried, t + 1), at_time(chunk, chunk.gradient, t)
        _tanh_backward(new, chunk.state_gradient, result, weights, gradients, constants, chunk.room)
        backprop_product(chunk, t)


@njit(**LOOP)
def _relu_forward_loop(chunk: Any, weights: Any, constants: Any) -> None:
    for t in range(chunk.projected[STEPS]):
        new = states(chunk, t)[1]
        product_plus_input(chunk, t, new)
        _relu_forward(new, new, weights, constants, chunk.room)
        freeze_finished(chunk, chunk.carried, t)


@njit(**LOOP)
def _relu_backward_loop(chunk: Any, weights: Any, gradients: Any, constants: Any) -> None:
    for t in range(chunk.gradient[STEPS] - 1, -1, -1):
        add_output_gradient(chunk, t)
        new, result = at_time(chunk, chunk.carried, t + 1), at_time(chunk, chunk.gradient, t)
        _relu_backward(new, chunk.state_gradient, result, weights, gradients, constants, chunk.room)
        backprop_product(chunk, t)


@njit(**LOOP)
def _modrelu_forward_loop(chunk: Any, weights: Any, constants: Any) -> None:
    for t in range(chunk.projected[STEPS]):
        new = states(chunk, t)[1]
        product_plus_input(chunk, t, new)
        _modrelu_forward(new, new, weights, constants, chunk.room)
        freeze_finished(chunk, chunk.carried, t)


@njit(**LOOP)
def _modrelu_backward_loop(chunk: Any, weights: Any, gradients: Any, constants: Any) -> None:
    for t in range(chunk.gradient[STEPS] - 1, -1, -1):
        add_output_gradient(chunk, t)
        new, result = at_time(chunk, chunk.carried, t + 1), at_time(chunk, chunk.gradient, t)
        _modrelu_backward(
            new, chunk.state_gradient, result, weights, gradients, constants, chunk.room
        )
        backprop_product(chunk, t)


@njit(**LOOP)
def _complex_modrelu_forward_loop(chunk: Any, weights: Any, constants: Any) -> None:
    for t in range(chunk.projected[STEPS]):
        new = states(chunk, t)[1]
        product_plus_input(chunk, t, chunk.product)
        _complex_modrelu_forward(chunk.product, new, weights, constants, chunk.room)
        freeze_finished(chunk, chunk.carried, t)


@njit(**LOOP)
def _complex_modrelu_backward_loop(
    chunk: Any, weights: Any, gradients: Any, constants: Any
) -> None:
    for t in range(chunk.gradient[STEPS] - 1, -1, -1):
        add_output_gradient(chunk, t)
        new, result = at_time(chunk, chunk.carried, t + 1), at_time(chunk, chunk.gradient, t)
        _complex_modrelu_backward(
            new, chunk.state_gradient, result, weights, gradients, constants, chunk.room
        )
        backprop_product(chunk, t)


LOOPS = {
    "Tanh": (_tanh_forward_loop, _tanh_backward_loop),
    "LeakyRelu": (_relu_forward_loop, _relu_backward_loop),
    "ModRelu": (_modrelu_forward_loop, _modrelu_backward_loop),
    "ComplexModRelu": (_complex_modrelu_forward_loop, _complex_modrelu_backward_loop),
}
KERNELS = {
    name: (njit(**LOOP)(forward.py_func), njit(**LOOP)(backward.py_func))
    for name, (forward, backward) in {
        "Tanh": (_tanh_forward, _tanh_backward),
        "LeakyRelu": (_relu_forward, _relu_backward),
        "ModRelu": (_modrelu_forward, _modrelu_backward),
        "ComplexModRelu": (_complex_modrelu_forward, _complex_modrelu_backward),
    }.items()
}
"""The same of one time, for structured operators, which are called from Python."""
