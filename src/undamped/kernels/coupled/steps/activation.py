"""Elementwise parts that are one function: tanh, (leaky) relu, modReLU real and complex.

All of them find their slope in the new state, so nothing is computed again on the way back. The
kernels of one time take the same arguments: (product, new, parameters, numbers) on the way there,
where those that work in place are given `new` twice; (new, flow, gradient of the product,
parameters, their gradients, numbers) on the way back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from undamped.kernels.coupled.contract import Activation
from undamped.kernels.coupled.loop import LOOP, at_time, hold, pull_back, receive, states, sum_up
from undamped.kernels.shared.pointers import STEPS
from undamped.kernels.shared.squash import tanh


@njit(nogil=True, cache=True, error_model="numpy")
def _tanh_forward(product: Any, new: Any, parameters: Any, numbers: Any) -> None:
    for b in range(new.shape[0]):
        row = new[b]
        for j in range(new.shape[1]):
            row[j] = tanh(row[j])


@njit(nogil=True, cache=True, error_model="numpy")
def _tanh_backward(
    new: Any, flow: Any, gradient: Any, parameters: Any, gradients: Any, numbers: Any
) -> None:
    one = new.dtype.type(1)
    for b in range(flow.shape[0]):
        value, given, result = new[b], flow[b], gradient[b]
        for j in range(flow.shape[1]):
            result[j] = given[j] * (one - value[j] * value[j])


@njit(nogil=True, cache=True, error_model="numpy")
def _relu_forward(product: Any, new: Any, parameters: Any, numbers: Any) -> None:
    zero, slope = new.dtype.type(0), new.dtype.type(numbers[0])
    for b in range(new.shape[0]):
        row = new[b]
        for j in range(new.shape[1]):
            row[j] = row[j] if row[j] > zero else slope * row[j]


@njit(nogil=True, cache=True, error_model="numpy")
def _relu_backward(
    new: Any, flow: Any, gradient: Any, parameters: Any, gradients: Any, numbers: Any
) -> None:
    zero, slope = new.dtype.type(0), new.dtype.type(numbers[0])
    for b in range(flow.shape[0]):
        value, given, result = new[b], flow[b], gradient[b]
        for j in range(flow.shape[1]):
            result[j] = given[j] if value[j] > zero else slope * given[j]


@njit(nogil=True, cache=True, error_model="numpy")
def _modrelu_forward(product: Any, new: Any, parameters: Any, numbers: Any) -> None:
    bias, zero = parameters[0], new.dtype.type(0)
    for b in range(new.shape[0]):
        row = new[b]
        for j in range(new.shape[1]):
            value = row[j]
            size = max(abs(value) + bias[j], zero)
            signed = size if value > zero else -size
            row[j] = zero if value == zero else signed


@njit(nogil=True, cache=True, error_model="numpy")
def _modrelu_backward(
    new: Any, flow: Any, gradient: Any, parameters: Any, gradients: Any, numbers: Any
) -> None:
    # The slope is one wherever something came through, and the new value has the old one's sign.
    bias_gradient, zero = gradients[0], new.dtype.type(0)
    for b in range(flow.shape[0]):
        value, given, result = new[b], flow[b], gradient[b]
        for j in range(flow.shape[1]):
            result[j] = zero if value[j] == zero else given[j]
        for j in range(flow.shape[1]):
            bias_gradient[j] += result[j] if value[j] > zero else -result[j]


@njit(nogil=True, cache=True, error_model="numpy")
def _complex_modrelu_forward(product: Any, new: Any, parameters: Any, numbers: Any) -> None:
    bias, size = parameters[0], parameters[0].shape[0]
    zero, soft = product.dtype.type(0), product.dtype.type(numbers[0])
    scale = np.empty(size, product.dtype)
    for b in range(product.shape[0]):
        # One array written per loop: the compiler then vectorises it.
        re, im = product[b, :size], product[b, size:]
        new_re, new_im = new[b, :size], new[b, size:]
        for j in range(size):
            modulus = np.sqrt(re[j] * re[j] + im[j] * im[j])
            scale[j] = max(modulus + bias[j], zero) / (modulus + soft)
        for j in range(size):
            new_re[j] = scale[j] * re[j]
        for j in range(size):
            new_im[j] = scale[j] * im[j]


@njit(nogil=True, cache=True, error_model="numpy")
def _complex_modrelu_backward(
    new: Any, flow: Any, gradient: Any, parameters: Any, gradients: Any, numbers: Any
) -> None:
    # With m = |s| and c(m) = (m + b)/(m + ε): d(c s) = c ds + c' s dm, c' = (ε − b)/(m + ε)².
    # Where something came through, the new modulus r = m (m + b)/(m + ε) gives m back: the
    # larger root of m² + (b − r) m − r ε = 0, written without a difference of equal numbers.
    # s itself is then the new value times m/r.
    bias, bias_gradient = parameters[0], gradients[0]
    size, dtype = bias.shape[0], new.dtype
    zero, one, two, four = dtype.type(0), dtype.type(1), dtype.type(2), dtype.type(4)
    soft = dtype.type(numbers[0])
    moduli, stretch = np.empty(size, dtype), np.empty(size, dtype)
    scale, slope = np.empty(size, dtype), np.empty(size, dtype)
    for b in range(new.shape[0]):
        re, im = new[b, :size], new[b, size:]
        g_re, g_im = flow[b, :size], flow[b, size:]
        new_re, new_im = gradient[b, :size], gradient[b, size:]
        for j in range(size):
            r = np.sqrt(re[j] * re[j] + im[j] * im[j])
            less = r - bias[j]
            root = np.sqrt(less * less + four * r * soft)
            large = (less + root) / two
            bottom = root - less
            small = two * r * soft / (bottom if bottom > zero else one)
            moduli[j] = large if less > zero else small
        for j in range(size):
            r = np.sqrt(re[j] * re[j] + im[j] * im[j])
            stretch[j] = one / r if r > zero else zero  # makes the direction of s
        for j in range(size):
            # Nothing came through, unless s was exactly zero below an open threshold.
            opened = stretch[j] > zero or bias[j] > zero
            scale[j] = (moduli[j] + bias[j]) / (moduli[j] + soft) if opened else zero
        for j in range(size):
            along = (g_re[j] * re[j] + g_im[j] * im[j]) * stretch[j]
            slope[j] = along * moduli[j] / (moduli[j] + soft)
        for j in range(size):
            bias_gradient[j] += slope[j]
        for j in range(size):
            slope[j] *= (soft - bias[j]) / (moduli[j] + soft) * stretch[j]
        for j in range(size):
            new_re[j] = scale[j] * g_re[j] + slope[j] * re[j]
        for j in range(size):
            new_im[j] = scale[j] * g_im[j] + slope[j] * im[j]


@njit(**LOOP)
def _tanh_there(way: Any, parameters: Any, numbers: Any) -> None:
    for t in range(way.projected[STEPS]):
        new = states(way, t)[1]
        sum_up(way, t, new)
        _tanh_forward(new, new, parameters, numbers)
        hold(way, way.carried, t)


@njit(**LOOP)
def _tanh_back(way: Any, parameters: Any, gradients: Any, numbers: Any) -> None:
    for t in range(way.gradient[STEPS] - 1, -1, -1):
        receive(way, t)
        new, result = at_time(way, way.carried, t + 1), at_time(way, way.gradient, t)
        _tanh_backward(new, way.flow, result, parameters, gradients, numbers)
        pull_back(way, t, False)


@njit(**LOOP)
def _relu_there(way: Any, parameters: Any, numbers: Any) -> None:
    for t in range(way.projected[STEPS]):
        new = states(way, t)[1]
        sum_up(way, t, new)
        _relu_forward(new, new, parameters, numbers)
        hold(way, way.carried, t)


@njit(**LOOP)
def _relu_back(way: Any, parameters: Any, gradients: Any, numbers: Any) -> None:
    for t in range(way.gradient[STEPS] - 1, -1, -1):
        receive(way, t)
        new, result = at_time(way, way.carried, t + 1), at_time(way, way.gradient, t)
        _relu_backward(new, way.flow, result, parameters, gradients, numbers)
        pull_back(way, t, False)


@njit(**LOOP)
def _modrelu_there(way: Any, parameters: Any, numbers: Any) -> None:
    for t in range(way.projected[STEPS]):
        new = states(way, t)[1]
        sum_up(way, t, new)
        _modrelu_forward(new, new, parameters, numbers)
        hold(way, way.carried, t)


@njit(**LOOP)
def _modrelu_back(way: Any, parameters: Any, gradients: Any, numbers: Any) -> None:
    for t in range(way.gradient[STEPS] - 1, -1, -1):
        receive(way, t)
        new, result = at_time(way, way.carried, t + 1), at_time(way, way.gradient, t)
        _modrelu_backward(new, way.flow, result, parameters, gradients, numbers)
        pull_back(way, t, False)


@njit(**LOOP)
def _complex_modrelu_there(way: Any, parameters: Any, numbers: Any) -> None:
    for t in range(way.projected[STEPS]):
        new = states(way, t)[1]
        sum_up(way, t, way.product)
        _complex_modrelu_forward(way.product, new, parameters, numbers)
        hold(way, way.carried, t)


@njit(**LOOP)
def _complex_modrelu_back(way: Any, parameters: Any, gradients: Any, numbers: Any) -> None:
    for t in range(way.gradient[STEPS] - 1, -1, -1):
        receive(way, t)
        new, result = at_time(way, way.carried, t + 1), at_time(way, way.gradient, t)
        _complex_modrelu_backward(new, way.flow, result, parameters, gradients, numbers)
        pull_back(way, t, False)


class Tanh(Activation):
    """carried' = tanh(product + projected)."""

    in_place = True
    kernels = _tanh_forward, _tanh_backward
    loops = _tanh_there, _tanh_back


class LeakyRelu(Activation):
    """carried' = s where s > 0, leak·s elsewhere, s = product + projected.

    Args:
        leak: The slope below zero: 0 for relu, 1 for the identity.
    """

    in_place = True
    kernels = _relu_forward, _relu_backward
    loops = _relu_there, _relu_back

    def __init__(self, leak: float) -> None:
        self.numbers = (leak,)


class ModRelu(Activation):
    """carried' = sign(s) relu(|s| + b), s = product + projected; parameters: b (hidden,)."""

    in_place = True
    kernels = _modrelu_forward, _modrelu_backward
    loops = _modrelu_there, _modrelu_back


class ComplexModRelu(Activation):
    """carried' = s relu(|s| + b)/(|s| + ε) for complex s, as (real | imaginary) side by side.

    Args:
        softening: The number ε that keeps the division from zero.
    """

    kernels = _complex_modrelu_forward, _complex_modrelu_backward
    loops = _complex_modrelu_there, _complex_modrelu_back

    def __init__(self, softening: float) -> None:
        self.numbers = (softening,)
