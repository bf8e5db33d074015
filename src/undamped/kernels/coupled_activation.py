"""Elementwise parts that are one function: tanh, (leaky) relu, modReLU real and complex.

All of them find their slope in the new state, so nothing is computed again on the way back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from undamped.kernels.coupled import Now, Step
from undamped.kernels.coupled_squash import tanh


@njit(nogil=True, cache=True, error_model="numpy")
def _tanh_forward(new: Any) -> None:
    for b in range(new.shape[0]):
        row = new[b]
        for j in range(new.shape[1]):
            row[j] = tanh(row[j])


@njit(nogil=True, cache=True, error_model="numpy")
def _tanh_backward(new: Any, flow: Any, gradient: Any) -> None:
    one = new.dtype.type(1)
    for b in range(flow.shape[0]):
        value, given, result = new[b], flow[b], gradient[b]
        for j in range(flow.shape[1]):
            result[j] = given[j] * (one - value[j] * value[j])


@njit(nogil=True, cache=True, error_model="numpy")
def _relu_forward(new: Any, leak: float) -> None:
    zero, slope = new.dtype.type(0), new.dtype.type(leak)
    for b in range(new.shape[0]):
        row = new[b]
        for j in range(new.shape[1]):
            row[j] = row[j] if row[j] > zero else slope * row[j]


@njit(nogil=True, cache=True, error_model="numpy")
def _relu_backward(new: Any, flow: Any, gradient: Any, leak: float) -> None:
    zero, slope = new.dtype.type(0), new.dtype.type(leak)
    for b in range(flow.shape[0]):
        value, given, result = new[b], flow[b], gradient[b]
        for j in range(flow.shape[1]):
            result[j] = given[j] if value[j] > zero else slope * given[j]


@njit(nogil=True, cache=True, error_model="numpy")
def _modrelu_forward(new: Any, bias: Any) -> None:
    zero = new.dtype.type(0)
    for b in range(new.shape[0]):
        row = new[b]
        for j in range(new.shape[1]):
            value = row[j]
            size = max(abs(value) + bias[j], zero)
            signed = size if value > zero else -size
            row[j] = zero if value == zero else signed


@njit(nogil=True, cache=True, error_model="numpy")
def _modrelu_backward(new: Any, flow: Any, gradient: Any, bias_gradient: Any) -> None:
    # The slope is one wherever something came through, and the new value has the old one's sign.
    zero = new.dtype.type(0)
    for b in range(flow.shape[0]):
        value, given, result = new[b], flow[b], gradient[b]
        for j in range(flow.shape[1]):
            result[j] = zero if value[j] == zero else given[j]
        for j in range(flow.shape[1]):
            bias_gradient[j] += result[j] if value[j] > zero else -result[j]


@njit(nogil=True, cache=True, error_model="numpy")
def _complex_modrelu_forward(product: Any, new: Any, bias: Any, softening: float) -> None:
    size = bias.shape[0]
    zero, soft = product.dtype.type(0), product.dtype.type(softening)
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
    new: Any, flow: Any, gradient: Any, bias: Any, softening: float, bias_gradient: Any
) -> None:
    # With m = |s| and c(m) = (m + b)/(m + ε): d(c s) = c ds + c' s dm, c' = (ε − b)/(m + ε)².
    # Where something came through, the new modulus r = m (m + b)/(m + ε) gives m back: the
    # larger root of m² + (b − r) m − r ε = 0, written without a difference of equal numbers.
    # s itself is then the new value times m/r.
    size, dtype = bias.shape[0], new.dtype
    zero, one, two, four = dtype.type(0), dtype.type(1), dtype.type(2), dtype.type(4)
    soft = dtype.type(softening)
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


class Tanh(Step):
    """carried' = tanh(product + projected)."""

    in_place = True
    reads_product = False

    def forward(self, now: Now) -> None:
        """Squash in place."""
        _tanh_forward(now.new)

    def backward(self, now: Now) -> None:
        """The slope 1 − h² from the new state alone."""
        _tanh_backward(now.new, now.flow, now.product_gradient)


class LeakyRelu(Step):
    """carried' = s where s > 0, leak·s elsewhere, s = product + projected.

    Args:
        leak: The slope below zero: 0 for relu, 1 for the identity.
    """

    in_place = True
    reads_product = False

    def __init__(self, leak: float) -> None:
        self.leak = leak

    def forward(self, now: Now) -> None:
        """Bend at zero, in place."""
        _relu_forward(now.new, self.leak)

    def backward(self, now: Now) -> None:
        """The slope from the new state alone."""
        _relu_backward(now.new, now.flow, now.product_gradient, self.leak)


class ModRelu(Step):
    """carried' = sign(s) relu(|s| + b), s = product + projected; parameters: b (hidden,)."""

    in_place = True
    reads_product = False

    def forward(self, now: Now) -> None:
        """Shrink or grow the size, keep the sign."""
        _modrelu_forward(now.new, now.parameters[0])

    def backward(self, now: Now) -> None:
        """Slope and sign from the new state alone."""
        _modrelu_backward(now.new, now.flow, now.product_gradient, now.parameter_gradients[0])


class ComplexModRelu(Step):
    """carried' = s relu(|s| + b)/(|s| + ε) for complex s, as (real | imaginary) side by side.

    Args:
        softening: The number ε that keeps the division from zero.
    """

    reads_product = False

    def __init__(self, softening: float) -> None:
        self.softening = softening

    def forward(self, now: Now) -> None:
        """Shrink or grow the modulus, keep the phase."""
        _complex_modrelu_forward(now.product, now.new, now.parameters[0], self.softening)

    def backward(self, now: Now) -> None:
        """s is found again from the new state."""
        _complex_modrelu_backward(
            now.new,
            now.flow,
            now.product_gradient,
            now.parameters[0],
            self.softening,
            now.parameter_gradients[0],
        )
