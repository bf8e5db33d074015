"""Elementwise parts that are one function: tanh, (leaky) relu, modReLU real and complex."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from undamped.kernels.coupled import Step
from undamped.kernels.coupled_squash import tanh_rows


@njit(nogil=True, cache=True, error_model="numpy")
def _tanh_backward(carried: Any, t: int, flow: Any, gradient: Any) -> None:
    one = carried.dtype.type(1)
    for b in range(flow.shape[0]):
        for j in range(flow.shape[1]):
            value = carried[t + 1, b, j]
            gradient[t, b, j] = flow[b, j] * (one - value * value)


@njit(nogil=True, cache=True, error_model="numpy")
def _relu_forward(carried: Any, t: int, leak: float) -> None:
    zero, slope = carried.dtype.type(0), carried.dtype.type(leak)
    for b in range(carried.shape[1]):
        for j in range(carried.shape[2]):
            value = carried[t + 1, b, j]
            carried[t + 1, b, j] = value if value > zero else slope * value


@njit(nogil=True, cache=True, error_model="numpy")
def _relu_backward(carried: Any, t: int, flow: Any, gradient: Any, leak: float) -> None:
    zero, slope = carried.dtype.type(0), carried.dtype.type(leak)
    for b in range(flow.shape[0]):
        for j in range(flow.shape[1]):
            given = flow[b, j]
            gradient[t, b, j] = given if carried[t + 1, b, j] > zero else slope * given


@njit(nogil=True, cache=True, error_model="numpy")
def _modrelu_forward(carried: Any, t: int, bias: Any) -> None:
    zero = carried.dtype.type(0)
    for b in range(carried.shape[1]):
        for j in range(carried.shape[2]):
            value = carried[t + 1, b, j]
            size = max(abs(value) + bias[j], zero)
            signed = size if value > zero else -size
            carried[t + 1, b, j] = zero if value == zero else signed


@njit(nogil=True, cache=True, error_model="numpy")
def _modrelu_backward(carried: Any, t: int, flow: Any, gradient: Any, bias_gradient: Any) -> None:
    # The slope is one wherever something came through, and the new value has the old one's sign.
    zero = carried.dtype.type(0)
    for b in range(flow.shape[0]):
        for j in range(flow.shape[1]):
            value, given = carried[t + 1, b, j], flow[b, j]
            gradient[t, b, j] = zero if value == zero else given
            signed = given if value > zero else -given
            bias_gradient[j] += zero if value == zero else signed


@njit(nogil=True, cache=True, error_model="numpy")
def _complex_modrelu_forward(
    product: Any, carried: Any, t: int, bias: Any, softening: float
) -> None:
    size = bias.shape[0]
    zero, soft = product.dtype.type(0), product.dtype.type(softening)
    scale = np.empty(size, product.dtype)
    for b in range(product.shape[1]):
        # One array written per loop: the compiler then vectorises it.
        re, im = product[t, b, :size], product[t, b, size:]
        new_re, new_im = carried[t + 1, b, :size], carried[t + 1, b, size:]
        for j in range(size):
            modulus = np.sqrt(re[j] * re[j] + im[j] * im[j])
            scale[j] = max(modulus + bias[j], zero) / (modulus + soft)
        for j in range(size):
            new_re[j] = scale[j] * re[j]
        for j in range(size):
            new_im[j] = scale[j] * im[j]


@njit(nogil=True, cache=True, error_model="numpy")
def _complex_modrelu_backward(
    product: Any,
    t: int,
    flow: Any,
    gradient: Any,
    bias: Any,
    softening: float,
    bias_gradient: Any,
) -> None:
    # With r = |z| and s(r) = (r + b)/(r + ε): d(s z) = s dz + s' z dr, s' = (ε − b)/(r + ε)².
    size = bias.shape[0]
    zero, one = product.dtype.type(0), product.dtype.type(1)
    soft = product.dtype.type(softening)
    scale, slope = np.empty(size, product.dtype), np.empty(size, product.dtype)
    for b in range(product.shape[1]):
        re, im = product[t, b, :size], product[t, b, size:]
        g_re, g_im = flow[b, :size], flow[b, size:]
        new_re, new_im = gradient[t, b, :size], gradient[t, b, size:]
        for j in range(size):
            modulus = np.sqrt(re[j] * re[j] + im[j] * im[j])
            scale[j] = max(modulus + bias[j], zero) / (modulus + soft)
        for j in range(size):
            modulus = np.sqrt(re[j] * re[j] + im[j] * im[j])
            opened = one if modulus + bias[j] > zero else zero
            slope[j] = opened * (g_re[j] * re[j] + g_im[j] * im[j]) / (modulus + soft)
        for j in range(size):
            bias_gradient[j] += slope[j]
        for j in range(size):
            modulus = np.sqrt(re[j] * re[j] + im[j] * im[j])
            safe = modulus if modulus > zero else one
            slope[j] *= (soft - bias[j]) / ((modulus + soft) * safe)
        for j in range(size):
            new_re[j] = scale[j] * g_re[j] + slope[j] * re[j]
        for j in range(size):
            new_im[j] = scale[j] * g_im[j] + slope[j] * im[j]


class Tanh(Step):
    """carried' = tanh(product + projected)."""

    in_place = True

    def forward(self, t: int) -> None:
        """Squash in place."""
        tanh_rows(self.product, self.product_rows, t)

    def backward(self, t: int, carried_gradient: Any, memory_gradient: Any) -> None:
        """The slope 1 − h² from the new state alone."""
        _tanh_backward(self.carried, t, carried_gradient, self.gradient)


class LeakyRelu(Step):
    """carried' = s where s > 0, leak·s elsewhere, s = product + projected.

    Args:
        leak: The slope below zero: 0 for relu, 1 for the identity.
    """

    in_place = True

    def __init__(self, leak: float) -> None:
        self.leak = leak

    def forward(self, t: int) -> None:
        """Bend at zero, in place."""
        _relu_forward(self.carried, t, self.leak)

    def backward(self, t: int, carried_gradient: Any, memory_gradient: Any) -> None:
        """The slope from the new state alone."""
        _relu_backward(self.carried, t, carried_gradient, self.gradient, self.leak)


class ModRelu(Step):
    """carried' = sign(s) relu(|s| + b), s = product + projected; parameters: b (hidden,)."""

    in_place = True

    def forward(self, t: int) -> None:
        """Shrink or grow the size, keep the sign."""
        _modrelu_forward(self.carried, t, self.parameters[0])

    def backward(self, t: int, carried_gradient: Any, memory_gradient: Any) -> None:
        """Slope and sign from the new state alone."""
        _modrelu_backward(
            self.carried, t, carried_gradient, self.gradient, self.parameter_gradients[0]
        )


class ComplexModRelu(Step):
    """carried' = s relu(|s| + b)/(|s| + ε) for complex s, as (real | imaginary) side by side.

    Args:
        softening: The number ε that keeps the division from zero.
    """

    def __init__(self, softening: float) -> None:
        self.softening = softening

    def forward(self, t: int) -> None:
        """Shrink or grow the modulus, keep the phase."""
        _complex_modrelu_forward(self.product, self.carried, t, self.parameters[0], self.softening)

    def backward(self, t: int, carried_gradient: Any, memory_gradient: Any) -> None:
        """The slope needs s itself, which is what `product` keeps."""
        _complex_modrelu_backward(
            self.product,
            t,
            carried_gradient,
            self.gradient,
            self.parameters[0],
            self.softening,
            self.parameter_gradients[0],
        )
