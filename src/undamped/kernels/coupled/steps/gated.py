"""Elementwise parts with gates: FastRNN, FastGRNN, GORU."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from undamped.kernels.coupled.contract import Step
from undamped.kernels.coupled.loop import (
    LOOP,
    PART,
    apply,
    at_time,
    hold,
    inputs,
    pull_back,
    receive,
    states,
    sum_up,
)
from undamped.kernels.shared.pointers import STEPS
from undamped.kernels.shared.squash import sigmoid, tanh

# In all kernels one array is written per loop: the compiler then vectorises it. For the same
# reason numbers that belong to all units collect their gradients per unit first.


@njit(**PART)
def _mix_forward(product: Any, old: Any, new: Any, new_share: Any, old_share: Any) -> None:
    alpha, beta = new_share[0], old_share[0]
    for b in range(product.shape[0]):
        total, before, after = product[b], old[b], new[b]
        for j in range(product.shape[1]):
            after[j] = alpha * tanh(total[j]) + beta * before[j]


@njit(**PART)
def _mix_backward(
    product: Any,
    old: Any,
    flow: Any,
    gradient: Any,
    new_share: Any,
    old_share: Any,
    new_gradient: Any,
    old_gradient: Any,
) -> None:
    alpha, beta, one, size = new_share[0], old_share[0], product.dtype.type(1), flow.shape[1]
    news, olds = np.zeros(size, product.dtype), np.zeros(size, product.dtype)
    values = np.empty(size, product.dtype)
    for b in range(flow.shape[0]):
        total, given, before, result = product[b], flow[b], old[b], gradient[b]
        for j in range(size):
            values[j] = tanh(total[j])
        for j in range(size):
            news[j] += given[j] * values[j]
        for j in range(size):
            olds[j] += given[j] * before[j]
        for j in range(size):
            result[j] = alpha * given[j] * (one - values[j] * values[j])
        for j in range(size):
            given[j] *= beta
    new_gradient[0] += news.sum()
    old_gradient[0] += olds.sum()


@njit(**PART)
def _fast_gate_forward(
    product: Any, old: Any, new: Any, shift: Any, closed: Any, always: Any
) -> None:
    zeta, nu, one = closed[0], always[0], product.dtype.type(1)
    for b in range(product.shape[0]):
        total, before, after = product[b], old[b], new[b]
        for j in range(product.shape[1]):
            z = sigmoid(total[j] + shift[j])
            after[j] = (zeta * (one - z) + nu) * tanh(total[j]) + z * before[j]


@njit(**PART)
def _fast_gate_backward(
    product: Any,
    old: Any,
    flow: Any,
    gradient: Any,
    shift: Any,
    closed: Any,
    always: Any,
    shift_gradient: Any,
    closed_gradient: Any,
    always_gradient: Any,
) -> None:
    zeta, nu, one, size = closed[0], always[0], product.dtype.type(1), flow.shape[1]
    closeds, alls = np.zeros(size, product.dtype), np.zeros(size, product.dtype)
    opening = np.empty(size, product.dtype)
    value, z = np.empty(size, product.dtype), np.empty(size, product.dtype)
    for b in range(flow.shape[0]):
        total, given, before, result = product[b], flow[b], old[b], gradient[b]
        for j in range(size):
            value[j] = tanh(total[j])
        for j in range(size):
            z[j] = sigmoid(total[j] + shift[j])
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


@njit(**PART)
def _goru_forward(product: Any, projected: Any, old: Any, new: Any, bias: Any) -> None:
    size, zero, one = old.shape[1], product.dtype.type(0), product.dtype.type(1)
    candidate = np.empty(size, product.dtype)
    for b in range(product.shape[0]):
        r, u, turned = product[b, :size], product[b, size : 2 * size], product[b, 2 * size :]
        r_x, u_x = projected[b, :size], projected[b, size : 2 * size]
        given, before, after = projected[b, 2 * size :], old[b], new[b]
        for j in range(size):
            total = given[j] + sigmoid(r[j] + r_x[j]) * turned[j]
            large = max(abs(total) + bias[j], zero)
            signed = large if total > zero else -large
            candidate[j] = zero if total == zero else signed
        for j in range(size):
            opened = sigmoid(u[j] + u_x[j])
            after[j] = opened * before[j] + (one - opened) * candidate[j]


@njit(**PART)
def _goru_backward(
    product: Any,
    projected: Any,
    old: Any,
    flow: Any,
    gradient: Any,
    projected_gradient: Any,
    bias: Any,
    bias_gradient: Any,
) -> None:
    size, zero, one = old.shape[1], product.dtype.type(0), product.dtype.type(1)
    candidate = np.empty(size, product.dtype)
    r, u = np.empty(size, product.dtype), np.empty(size, product.dtype)
    for b in range(flow.shape[0]):
        r_h, u_h, turned = product[b, :size], product[b, size : 2 * size], product[b, 2 * size :]
        r_x, u_x = projected[b, :size], projected[b, size : 2 * size]
        x, given, before = projected[b, 2 * size :], flow[b], old[b]
        reset, update = gradient[b, :size], gradient[b, size : 2 * size]
        inner, rotated = projected_gradient[b, 2 * size :], gradient[b, 2 * size :]
        for j in range(size):
            r[j] = sigmoid(r_h[j] + r_x[j])
        for j in range(size):
            u[j] = sigmoid(u_h[j] + u_x[j])
        for j in range(size):
            total = x[j] + r[j] * turned[j]
            large = max(abs(total) + bias[j], zero)
            signed = large if total > zero else -large
            candidate[j] = zero if total == zero else signed
        for j in range(size):
            inner[j] = zero if candidate[j] == zero else given[j] * (one - u[j])
        for j in range(size):
            bias_gradient[j] += inner[j] if candidate[j] > zero else -inner[j]
        for j in range(size):
            reset[j] = inner[j] * turned[j] * r[j] * (one - r[j])
        for j in range(size):
            update[j] = given[j] * (before[j] - candidate[j]) * u[j] * (one - u[j])
        for j in range(size):
            rotated[j] = inner[j] * r[j]
        for j in range(size):
            given[j] *= u[j]
        both, shared = projected_gradient[b, : 2 * size], gradient[b, : 2 * size]
        for j in range(2 * size):
            both[j] = shared[j]


@njit(**LOOP)
def _mix_there(way: Any, parameters: Any, numbers: Any) -> None:
    for t in range(way.projected[STEPS]):
        old, new = states(way, t)
        sum_up(way, t, way.product)
        _mix_forward(way.product, old, new, *parameters)
        hold(way, way.carried, t)


@njit(**LOOP)
def _mix_back(way: Any, parameters: Any, gradients: Any, numbers: Any) -> None:
    for t in range(way.gradient[STEPS] - 1, -1, -1):
        receive(way, t)
        total, result = at_time(way, way.product, t), at_time(way, way.gradient, t)
        old = at_time(way, way.carried, t)
        _mix_backward(total, old, way.flow, result, *parameters, *gradients)
        pull_back(way, t, True)


@njit(**LOOP)
def _fast_gate_there(way: Any, parameters: Any, numbers: Any) -> None:
    for t in range(way.projected[STEPS]):
        old, new = states(way, t)
        sum_up(way, t, way.product)
        _fast_gate_forward(way.product, old, new, *parameters)
        hold(way, way.carried, t)


@njit(**LOOP)
def _fast_gate_back(way: Any, parameters: Any, gradients: Any, numbers: Any) -> None:
    for t in range(way.gradient[STEPS] - 1, -1, -1):
        receive(way, t)
        total, result = at_time(way, way.product, t), at_time(way, way.gradient, t)
        old = at_time(way, way.carried, t)
        _fast_gate_backward(total, old, way.flow, result, *parameters, *gradients)
        pull_back(way, t, True)


@njit(**LOOP)
def _goru_there(way: Any, parameters: Any, numbers: Any) -> None:
    for t in range(way.projected[STEPS]):
        old, new = states(way, t)
        apply(way, t)
        _goru_forward(way.product, inputs(way, t), old, new, parameters[0])
        hold(way, way.carried, t)


@njit(**LOOP)
def _goru_back(way: Any, parameters: Any, gradients: Any, numbers: Any) -> None:
    for t in range(way.gradient[STEPS] - 1, -1, -1):
        receive(way, t)
        total, given = at_time(way, way.product, t), at_time(way, way.projected, t)
        result, inner = at_time(way, way.gradient, t), at_time(way, way.projected_gradient, t)
        old = at_time(way, way.carried, t)
        bias, bias_gradient = parameters[0], gradients[0]
        _goru_backward(total, given, old, way.flow, result, inner, bias, bias_gradient)
        pull_back(way, t, True)


class WeightedSum(Step):
    """carried' = α tanh(product + projected) + β carried; parameters: α (1,), β (1,)."""

    loops = _mix_there, _mix_back


class FastGate(Step):
    """carried' = (ζ(1 − z) + ν) ⊙ tanh(s) + z ⊙ carried, z = σ̂(s + d), s = product + projected.

    Parameters: d (hidden,), ζ (1,), ν (1,).
    """

    loops = _fast_gate_there, _fast_gate_back


class GatedOrthogonal(Step):
    """carried' = u ⊙ carried + (1 − u) ⊙ modReLU(projected₃ + r ⊙ product₃).

    r = σ̂(product₁ + projected₁), u = σ̂(product₂ + projected₂). Parameters: modReLU's bias.
    """

    adds_projection = False
    loops = _goru_there, _goru_back
