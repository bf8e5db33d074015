"""Elementwise parts that take a step of an ODE: antisymmetric, gated, Lipschitz, coRNN."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from undamped.kernels.coupled import Now, Step
from undamped.kernels.coupled_squash import sigmoid, tanh

# In all kernels one array is written per loop: the compiler then vectorises it.


@njit(nogil=True, cache=True, error_model="numpy")
def _euler_forward(product: Any, old: Any, new: Any, step: float) -> None:
    dt = product.dtype.type(step)
    for b in range(product.shape[0]):
        total, before, after = product[b], old[b], new[b]
        for j in range(product.shape[1]):
            after[j] = before[j] + dt * tanh(total[j])


@njit(nogil=True, cache=True, error_model="numpy")
def _euler_backward(product: Any, flow: Any, gradient: Any, step: float) -> None:
    dt, one = product.dtype.type(step), product.dtype.type(1)
    for b in range(flow.shape[0]):
        total, given, result = product[b], flow[b], gradient[b]
        for j in range(flow.shape[1]):
            value = tanh(total[j])
            result[j] = dt * given[j] * (one - value * value)


@njit(nogil=True, cache=True, error_model="numpy")
def _gated_forward(product: Any, projected: Any, old: Any, new: Any, step: float) -> None:
    size = product.shape[1]
    dt = product.dtype.type(step)
    for b in range(product.shape[0]):
        total, before, after = product[b], old[b], new[b]
        first, second = projected[b, :size], projected[b, size:]
        for j in range(size):
            gate = sigmoid(total[j] + second[j])
            after[j] = before[j] + dt * gate * tanh(total[j] + first[j])


@njit(nogil=True, cache=True, error_model="numpy")
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


@njit(nogil=True, cache=True, error_model="numpy")
def _lipschitz_forward(product: Any, projected: Any, old: Any, new: Any, step: float) -> None:
    size = old.shape[1]
    dt = product.dtype.type(step)
    for b in range(product.shape[0]):
        before, after, given = old[b], new[b], projected[b]
        linear, inner = product[b, :size], product[b, size:]
        for j in range(size):
            after[j] = before[j] + dt * (linear[j] + tanh(inner[j] + given[j]))


@njit(nogil=True, cache=True, error_model="numpy")
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


@njit(nogil=True, cache=True, error_model="numpy")
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


@njit(nogil=True, cache=True, error_model="numpy")
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


class Euler(Step):
    """carried' = carried + step·tanh(product + projected).

    Args:
        step: The size of the step.
    """

    passes_on = True

    def __init__(self, step: float) -> None:
        self.step = step

    def forward(self, now: Now) -> None:
        """One step."""
        _euler_forward(now.product, now.old, now.new, self.step)

    def backward(self, now: Now) -> None:
        """What came passes on, beside the product."""
        _euler_backward(now.product, now.flow, now.product_gradient, self.step)


class GatedEuler(Step):
    """carried' = carried + step·σ̂(product + projected₂) ⊙ tanh(product + projected₁).

    Args:
        step: The size of the step.
    """

    passes_on = True
    adds_projection = False

    def __init__(self, step: float) -> None:
        self.step = step

    def forward(self, now: Now) -> None:
        """One step."""
        _gated_forward(now.product, now.projected, now.old, now.new, self.step)

    def backward(self, now: Now) -> None:
        """Both functions read the same product."""
        _gated_backward(
            now.product,
            now.projected,
            now.flow,
            now.product_gradient,
            now.projected_gradient,
            self.step,
        )


class Lipschitz(Step):
    """carried' = carried + step·(product₁ + tanh(product₂ + projected)).

    Args:
        step: The size of the step.
    """

    passes_on = True
    adds_projection = False

    def __init__(self, step: float) -> None:
        self.step = step

    def forward(self, now: Now) -> None:
        """One step."""
        _lipschitz_forward(now.product, now.projected, now.old, now.new, self.step)

    def backward(self, now: Now) -> None:
        """The linear half is passed through, the other has its slope."""
        _lipschitz_backward(
            now.product,
            now.projected,
            now.flow,
            now.product_gradient,
            now.projected_gradient,
            self.step,
        )


class CoupledOscillator(Step):
    """z' = z + step·(tanh(product + projected) − γ y − ε z), y' = y + step·z'.

    Args:
        step: The size of the step.
        stiffness: The number γ.
        damping: The number ε.
    """

    passes_on = True

    def __init__(self, step: float, stiffness: float, damping: float) -> None:
        self.numbers = (step, stiffness, damping)

    def forward(self, now: Now) -> None:
        """Velocity, then position."""
        _cornn_forward(now.product, now.old, now.new, *self.numbers)

    def backward(self, now: Now) -> None:
        """Position and velocity at once; what passes on stays in the flow."""
        _cornn_backward(now.product, now.flow, now.product_gradient, *self.numbers)
