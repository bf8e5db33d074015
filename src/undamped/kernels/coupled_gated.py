"""Elementwise parts with gates: FastRNN, FastGRNN, GORU."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit

from undamped.kernels.coupled import Step
from undamped.kernels.coupled_squash import sigmoid_rows, tanh_rows


@njit(nogil=True, cache=True, error_model="numpy")
def _mix_forward(product: Any, carried: Any, t: int, new: Any, old: Any) -> None:
    alpha, beta = new[0], old[0]
    for b in range(product.shape[1]):
        for j in range(product.shape[2]):
            carried[t + 1, b, j] = alpha * product[t, b, j] + beta * carried[t, b, j]


@njit(nogil=True, cache=True, error_model="numpy")
def _mix_backward(
    product: Any,
    carried: Any,
    t: int,
    flow: Any,
    gradient: Any,
    new: Any,
    old: Any,
    new_gradient: Any,
    old_gradient: Any,
) -> None:
    alpha, beta, one, size = new[0], old[0], product.dtype.type(1), flow.shape[1]
    # Sums per unit first: a sum over units would keep the loop from being vectorised.
    news, olds = np.zeros(size, product.dtype), np.zeros(size, product.dtype)
    for b in range(flow.shape[0]):
        value, given, before, result = product[t, b], flow[b], carried[t, b], gradient[t, b]
        for j in range(size):
            news[j] += given[j] * value[j]
        for j in range(size):
            olds[j] += given[j] * before[j]
        for j in range(size):
            result[j] = alpha * given[j] * (one - value[j] * value[j])
        for j in range(size):
            given[j] *= beta
    new_gradient[0] += news.sum()
    old_gradient[0] += olds.sum()


@njit(nogil=True, cache=True, error_model="numpy")
def _shifted(product: Any, t: int, gates: Any, shift: Any) -> None:
    for b in range(product.shape[1]):
        for j in range(product.shape[2]):
            gates[t, b, j] = product[t, b, j] + shift[j]


@njit(nogil=True, cache=True, error_model="numpy")
def _fast_gate_forward(
    product: Any, gates: Any, carried: Any, t: int, closed: Any, always: Any
) -> None:
    zeta, nu, one = closed[0], always[0], product.dtype.type(1)
    for b in range(product.shape[1]):
        for j in range(product.shape[2]):
            z = gates[t, b, j]
            weight = zeta * (one - z) + nu
            carried[t + 1, b, j] = weight * product[t, b, j] + z * carried[t, b, j]


@njit(nogil=True, cache=True, error_model="numpy")
def _fast_gate_backward(
    product: Any,
    gates: Any,
    carried: Any,
    t: int,
    flow: Any,
    gradient: Any,
    closed: Any,
    always: Any,
    shift_gradient: Any,
    closed_gradient: Any,
    always_gradient: Any,
) -> None:
    zeta, nu, one, size = closed[0], always[0], product.dtype.type(1), flow.shape[1]
    closeds, alls = np.zeros(size, product.dtype), np.zeros(size, product.dtype)
    opening = np.empty(size, product.dtype)
    for b in range(flow.shape[0]):
        value, z, given = product[t, b], gates[t, b], flow[b]
        before, result = carried[t, b], gradient[t, b]
        for j in range(size):
            closeds[j] += given[j] * (one - z[j]) * value[j]
        for j in range(size):
            alls[j] += given[j] * value[j]
        for j in range(size):
            opening[j] = given[j] * (before[j] - zeta * value[j]) * z[j] * (one - z[j])
        for j in range(size):
            shift_gradient[j] += opening[j]
        for j in range(size):
            weight = zeta * (one - z[j]) + nu
            result[j] = given[j] * weight * (one - value[j] * value[j]) + opening[j]
        for j in range(size):
            given[j] *= z[j]
    closed_gradient[0] += closeds.sum()
    always_gradient[0] += alls.sum()


@njit(nogil=True, cache=True, error_model="numpy")
def _goru_gates(product: Any, projected: Any, t: int, size: int) -> None:
    for b in range(product.shape[1]):
        for j in range(2 * size):
            product[t, b, j] += projected[t, b, j]


@njit(nogil=True, cache=True, error_model="numpy")
def _goru_forward(
    product: Any, projected: Any, candidates: Any, carried: Any, t: int, bias: Any
) -> None:
    size, zero, one = carried.shape[2], product.dtype.type(0), product.dtype.type(1)
    for b in range(product.shape[1]):
        r, u = product[t, b, :size], product[t, b, size : 2 * size]
        turned, given = product[t, b, 2 * size :], projected[t, b, 2 * size :]
        candidate, old, new = candidates[t, b], carried[t, b], carried[t + 1, b]
        for j in range(size):
            total = given[j] + r[j] * turned[j]
            large = max(abs(total) + bias[j], zero)
            signed = large if total > zero else -large
            candidate[j] = zero if total == zero else signed
        for j in range(size):
            new[j] = u[j] * old[j] + (one - u[j]) * candidate[j]


@njit(nogil=True, cache=True, error_model="numpy")
def _goru_backward(
    product: Any,
    candidates: Any,
    carried: Any,
    t: int,
    flow: Any,
    gradient: Any,
    projected_gradient: Any,
    bias_gradient: Any,
) -> None:
    size, zero, one = carried.shape[2], product.dtype.type(0), product.dtype.type(1)
    for b in range(flow.shape[0]):
        r, u = product[t, b, :size], product[t, b, size : 2 * size]
        turned, candidate = product[t, b, 2 * size :], candidates[t, b]
        given, old = flow[b], carried[t, b]
        reset, update = gradient[t, b, :size], gradient[t, b, size : 2 * size]
        inner, rotated = projected_gradient[t, b, 2 * size :], gradient[t, b, 2 * size :]
        for j in range(size):
            inner[j] = zero if candidate[j] == zero else given[j] * (one - u[j])
        for j in range(size):
            bias_gradient[j] += inner[j] if candidate[j] > zero else -inner[j]
        for j in range(size):
            reset[j] = inner[j] * turned[j] * r[j] * (one - r[j])
        for j in range(size):
            update[j] = given[j] * (old[j] - candidate[j]) * u[j] * (one - u[j])
        for j in range(size):
            rotated[j] = inner[j] * r[j]
        for j in range(size):
            given[j] *= u[j]
        both, shared = projected_gradient[t, b, : 2 * size], gradient[t, b, : 2 * size]
        for j in range(2 * size):
            both[j] = shared[j]


class _Kept(Step):
    """A step that keeps one more array (time, batch, hidden) from the way there."""

    def keep(self, t: int) -> None:
        """Make the array at the first time."""
        if t == 0:
            self.kept_rows = torch.empty_like(self.carried_rows[1:])
            self.kept = self.kept_rows.numpy()


class WeightedSum(Step):
    """carried' = α tanh(product + projected) + β carried; parameters: α (1,), β (1,)."""

    passes_on = True

    def forward(self, t: int) -> None:
        """Keep the tanh."""
        tanh_rows(self.product, self.product_rows, t)
        _mix_forward(self.product, self.carried, t, *self.parameters)

    def backward(self, t: int, carried_gradient: Any, memory_gradient: Any) -> None:
        """α and β collect their gradients on the way."""
        _mix_backward(
            self.product,
            self.carried,
            t,
            carried_gradient,
            self.gradient,
            *self.parameters,
            *self.parameter_gradients,
        )


class FastGate(_Kept):
    """carried' = (ζ(1 − z) + ν) ⊙ tanh(s) + z ⊙ carried, z = σ̂(s + d), s = product + projected.

    Parameters: d (hidden,), ζ (1,), ν (1,).
    """

    passes_on = True

    def forward(self, t: int) -> None:
        """Keep gate and tanh."""
        self.keep(t)
        shift, closed, always = self.parameters
        _shifted(self.product, t, self.kept, shift)
        sigmoid_rows(self.kept, self.kept_rows, t)
        tanh_rows(self.product, self.product_rows, t)
        _fast_gate_forward(self.product, self.kept, self.carried, t, closed, always)

    def backward(self, t: int, carried_gradient: Any, memory_gradient: Any) -> None:
        """Gate and candidate read the same sum."""
        _, closed, always = self.parameters
        _fast_gate_backward(
            self.product,
            self.kept,
            self.carried,
            t,
            carried_gradient,
            self.gradient,
            closed,
            always,
            *self.parameter_gradients,
        )


class GatedOrthogonal(_Kept):
    """carried' = u ⊙ carried + (1 − u) ⊙ modReLU(projected₃ + r ⊙ product₃).

    r = σ̂(product₁ + projected₁), u = σ̂(product₂ + projected₂). Parameters: modReLU's bias.
    """

    passes_on = True
    adds_projection = False

    def forward(self, t: int) -> None:
        """Keep gates, product and candidate."""
        self.keep(t)
        size = self.carried.shape[2]
        _goru_gates(self.product, self.projected, t, size)
        sigmoid_rows(self.product, self.product_rows, t, 0, 2 * size)
        _goru_forward(self.product, self.projected, self.kept, self.carried, t, self.parameters[0])

    def backward(self, t: int, carried_gradient: Any, memory_gradient: Any) -> None:
        """The three thirds of the product at once."""
        _goru_backward(
            self.product,
            self.kept,
            self.carried,
            t,
            carried_gradient,
            self.gradient,
            self.projected_gradient,
            self.parameter_gradients[0],
        )
