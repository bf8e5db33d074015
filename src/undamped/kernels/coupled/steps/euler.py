"""Elementwise parts that take a step of an ODE: antisymmetric, gated, Lipschitz, coRNN."""

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

# In all kernels one array is written per loop: the compiler then vectorises it.


@njit(**PART)
def _euler_forward(product: Any, old: Any, new: Any, step: float) -> None:
    dt = product.dtype.type(step)
    for b in range(product.shape[0]):
        total, before, after = product[b], old[b], new[b]
        for j in range(product.shape[1]):
            after[j] = before[j] + dt * tanh(total[j])


@njit(**PART)
def _euler_backward(product: Any, flow: Any, gradient: Any, step: float) -> None:
    dt, one = product.dtype.type(step), product.dtype.type(1)
    for b in range(flow.shape[0]):
        total, given, result = product[b], flow[b], gradient[b]
        for j in range(flow.shape[1]):
            value = tanh(total[j])
            result[j] = dt * given[j] * (one - value * value)


@njit(**PART)
def _gated_forward(product: Any, projected: Any, old: Any, new: Any, step: float) -> None:
    size = product.shape[1]
    dt = product.dtype.type(step)
    for b in range(product.shape[0]):
        total, before, after = product[b], old[b], new[b]
        first, second = projected[b, :size], projected[b, size:]
        for j in range(size):
            gate = sigmoid(total[j] + second[j])
            after[j] = before[j] + dt * gate * tanh(total[j] + first[j])


@njit(**PART)
def _gated_backward(
    product: Any, projected: Any, flow: Any, gradient: Any, projected_gradient: Any, step: float
) -> None:
    size = product.shape[1]
    dt, one = product.dtype.type(step), product.dtype.type(1)
    gates, values = np.empty(size, product.dtype), np.empty(size, product.dtype)
    for b in range(flow.shape[0]):
        total, given, both = product[b], flow[b], gradient[b]
        first, second = projected[b, :size], projected[b, size:]
        candidate, opening = projected_gradient[b, :size], projected_gradient[b, size:]
        for j in range(size):
            values[j] = tanh(total[j] + first[j])
        for j in range(size):
            gates[j] = sigmoid(total[j] + second[j])
        for j in range(size):
            candidate[j] = dt * given[j] * gates[j] * (one - values[j] * values[j])
        for j in range(size):
            opening[j] = dt * given[j] * values[j] * gates[j] * (one - gates[j])
        for j in range(size):
            both[j] = candidate[j] + opening[j]


@njit(**PART)
def _lipschitz_forward(product: Any, projected: Any, old: Any, new: Any, step: float) -> None:
    size = old.shape[1]
    dt = product.dtype.type(step)
    for b in range(product.shape[0]):
        before, after, given = old[b], new[b], projected[b]
        linear, inner = product[b, :size], product[b, size:]
        for j in range(size):
            after[j] = before[j] + dt * (linear[j] + tanh(inner[j] + given[j]))


@njit(**PART)
def _lipschitz_backward(
    product: Any, projected: Any, flow: Any, gradient: Any, projected_gradient: Any, step: float
) -> None:
    size = flow.shape[1]
    dt, one = product.dtype.type(step), product.dtype.type(1)
    for b in range(flow.shape[0]):
        total, given, outer = product[b, size:], projected[b], flow[b]
        linear, inner, second = gradient[b, :size], projected_gradient[b], gradient[b, size:]
        for j in range(size):
            linear[j] = dt * outer[j]
        for j in range(size):
            value = tanh(total[j] + given[j])
            inner[j] = linear[j] * (one - value * value)
        for j in range(size):
            second[j] = inner[j]


@njit(**PART)
def _cornn_forward(
    product: Any, old: Any, new: Any, step: float, stiffness: float, damping: float
) -> None:
    size = product.shape[1]
    dt = product.dtype.type(step)
    gamma, epsilon = product.dtype.type(stiffness), product.dtype.type(damping)
    for b in range(product.shape[0]):
        force, y, z = product[b], old[b, :size], old[b, size:]
        new_y, new_z = new[b, :size], new[b, size:]
        for j in range(size):
            new_z[j] = z[j] + dt * (tanh(force[j]) - gamma * y[j] - epsilon * z[j])
        for j in range(size):
            new_y[j] = y[j] + dt * new_z[j]


@njit(**PART)
def _cornn_backward(
    product: Any, flow: Any, gradient: Any, step: float, stiffness: float, damping: float
) -> None:
    size = product.shape[1]
    dt, one = product.dtype.type(step), product.dtype.type(1)
    push = dt * product.dtype.type(stiffness)
    keep = one - dt * product.dtype.type(damping)
    for b in range(flow.shape[0]):
        force, result = product[b], gradient[b]
        y, z = flow[b, :size], flow[b, size:]
        for j in range(size):
            z[j] += dt * y[j]
        for j in range(size):
            value = tanh(force[j])
            result[j] = dt * z[j] * (one - value * value)
        for j in range(size):
            y[j] -= push * z[j]
        for j in range(size):
            z[j] *= keep


@njit(**LOOP)
def _euler_there(way: Any, parameters: Any, numbers: Any) -> None:
    for t in range(way.projected[STEPS]):
        old, new = states(way, t)
        sum_up(way, t, way.product)
        _euler_forward(way.product, old, new, numbers[0])
        hold(way, way.carried, t)


@njit(**LOOP)
def _euler_back(way: Any, parameters: Any, gradients: Any, numbers: Any) -> None:
    for t in range(way.gradient[STEPS] - 1, -1, -1):
        receive(way, t)
        total, result = at_time(way, way.product, t), at_time(way, way.gradient, t)
        _euler_backward(total, way.flow, result, numbers[0])
        pull_back(way, t, True)


@njit(**LOOP)
def _gated_there(way: Any, parameters: Any, numbers: Any) -> None:
    for t in range(way.projected[STEPS]):
        old, new = states(way, t)
        apply(way, t)
        _gated_forward(way.product, inputs(way, t), old, new, numbers[0])
        hold(way, way.carried, t)


@njit(**LOOP)
def _gated_back(way: Any, parameters: Any, gradients: Any, numbers: Any) -> None:
    for t in range(way.gradient[STEPS] - 1, -1, -1):
        receive(way, t)
        total, given = at_time(way, way.product, t), at_time(way, way.projected, t)
        result, inner = at_time(way, way.gradient, t), at_time(way, way.projected_gradient, t)
        _gated_backward(total, given, way.flow, result, inner, numbers[0])
        pull_back(way, t, True)


@njit(**LOOP)
def _lipschitz_there(way: Any, parameters: Any, numbers: Any) -> None:
    for t in range(way.projected[STEPS]):
        old, new = states(way, t)
        apply(way, t)
        _lipschitz_forward(way.product, inputs(way, t), old, new, numbers[0])
        hold(way, way.carried, t)


@njit(**LOOP)
def _lipschitz_back(way: Any, parameters: Any, gradients: Any, numbers: Any) -> None:
    for t in range(way.gradient[STEPS] - 1, -1, -1):
        receive(way, t)
        total, given = at_time(way, way.product, t), at_time(way, way.projected, t)
        result, inner = at_time(way, way.gradient, t), at_time(way, way.projected_gradient, t)
        _lipschitz_backward(total, given, way.flow, result, inner, numbers[0])
        pull_back(way, t, True)


@njit(**LOOP)
def _cornn_there(way: Any, parameters: Any, numbers: Any) -> None:
    for t in range(way.projected[STEPS]):
        old, new = states(way, t)
        sum_up(way, t, way.product)
        _cornn_forward(way.product, old, new, *numbers)
        hold(way, way.carried, t)


@njit(**LOOP)
def _cornn_back(way: Any, parameters: Any, gradients: Any, numbers: Any) -> None:
    for t in range(way.gradient[STEPS] - 1, -1, -1):
        receive(way, t)
        total, result = at_time(way, way.product, t), at_time(way, way.gradient, t)
        _cornn_backward(total, way.flow, result, *numbers)
        pull_back(way, t, True)


class Euler(Step):
    """carried' = carried + step·tanh(product + projected).

    Args:
        step: The size of the step.
    """

    loops = _euler_there, _euler_back

    def __init__(self, step: float) -> None:
        self.numbers = (step,)


class GatedEuler(Step):
    """carried' = carried + step·σ̂(product + projected₂) ⊙ tanh(product + projected₁).

    Args:
        step: The size of the step.
    """

    adds_projection = False
    loops = _gated_there, _gated_back

    def __init__(self, step: float) -> None:
        self.numbers = (step,)


class Lipschitz(Step):
    """carried' = carried + step·(product₁ + tanh(product₂ + projected)).

    Args:
        step: The size of the step.
    """

    adds_projection = False
    loops = _lipschitz_there, _lipschitz_back

    def __init__(self, step: float) -> None:
        self.numbers = (step,)


class CoupledOscillator(Step):
    """z' = z + step·(tanh(product + projected) − γ y − ε z), y' = y + step·z'.

    Args:
        step: The size of the step.
        stiffness: The number γ.
        damping: The number ε.
    """

    loops = _cornn_there, _cornn_back

    def __init__(self, step: float, stiffness: float, damping: float) -> None:
        self.numbers = (step, stiffness, damping)
