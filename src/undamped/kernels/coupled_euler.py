"""Elementwise parts that take a step of an ODE: antisymmetric, gated, Lipschitz, coRNN."""

from __future__ import annotations

from typing import Any

import torch
from numba import njit

from undamped.kernels.coupled import Step
from undamped.kernels.coupled_squash import sigmoid_rows, tanh_rows


@njit(nogil=True, cache=True, error_model="numpy")
def _euler_forward(product: Any, carried: Any, t: int, step: float) -> None:
    dt = product.dtype.type(step)
    for b in range(product.shape[1]):
        for j in range(product.shape[2]):
            carried[t + 1, b, j] = carried[t, b, j] + dt * product[t, b, j]


@njit(nogil=True, cache=True, error_model="numpy")
def _euler_backward(product: Any, t: int, flow: Any, gradient: Any, step: float) -> None:
    dt, one = product.dtype.type(step), product.dtype.type(1)
    for b in range(flow.shape[0]):
        for j in range(flow.shape[1]):
            value = product[t, b, j]
            gradient[t, b, j] = dt * flow[b, j] * (one - value * value)


@njit(nogil=True, cache=True, error_model="numpy")
def _gated_sum(product: Any, projected: Any, t: int, gates: Any) -> None:
    size = product.shape[2]
    for b in range(product.shape[1]):
        total, gate = product[t, b], gates[t, b]
        first, second = projected[t, b, :size], projected[t, b, size:]
        for j in range(size):
            gate[j] = second[j] + total[j]
        for j in range(size):
            total[j] += first[j]


@njit(nogil=True, cache=True, error_model="numpy")
def _gated_forward(product: Any, gates: Any, carried: Any, t: int, step: float) -> None:
    dt = product.dtype.type(step)
    for b in range(product.shape[1]):
        for j in range(product.shape[2]):
            carried[t + 1, b, j] = carried[t, b, j] + dt * gates[t, b, j] * product[t, b, j]


@njit(nogil=True, cache=True, error_model="numpy")
def _gated_backward(
    product: Any, gates: Any, t: int, flow: Any, gradient: Any, projected_gradient: Any, step: float
) -> None:
    size = product.shape[2]
    dt, one = product.dtype.type(step), product.dtype.type(1)
    for b in range(flow.shape[0]):
        value, gate, given, both = product[t, b], gates[t, b], flow[b], gradient[t, b]
        candidate, opening = projected_gradient[t, b, :size], projected_gradient[t, b, size:]
        for j in range(size):
            candidate[j] = dt * given[j] * gate[j] * (one - value[j] * value[j])
        for j in range(size):
            opening[j] = dt * given[j] * value[j] * gate[j] * (one - gate[j])
        for j in range(size):
            both[j] = candidate[j] + opening[j]


@njit(nogil=True, cache=True, error_model="numpy")
def _lipschitz_sum(product: Any, projected: Any, carried: Any, t: int, step: float) -> None:
    size = carried.shape[2]
    dt = product.dtype.type(step)
    for b in range(product.shape[1]):
        old, new, given = carried[t, b], carried[t + 1, b], projected[t, b]
        linear, inner = product[t, b, :size], product[t, b, size:]
        for j in range(size):
            new[j] = old[j] + dt * linear[j]
        for j in range(size):
            linear[j] = inner[j] + given[j]


@njit(nogil=True, cache=True, error_model="numpy")
def _lipschitz_forward(active: Any, carried: Any, t: int, step: float) -> None:
    dt = active.dtype.type(step)
    for b in range(carried.shape[1]):
        for j in range(carried.shape[2]):
            carried[t + 1, b, j] += dt * active[t, b, j]


@njit(nogil=True, cache=True, error_model="numpy")
def _lipschitz_backward(
    active: Any, t: int, flow: Any, gradient: Any, projected_gradient: Any, step: float
) -> None:
    size = flow.shape[1]
    dt, one = active.dtype.type(step), active.dtype.type(1)
    for b in range(flow.shape[0]):
        value, given, inner = active[t, b], flow[b], projected_gradient[t, b]
        linear, second = gradient[t, b, :size], gradient[t, b, size:]
        for j in range(size):
            linear[j] = dt * given[j]
        for j in range(size):
            inner[j] = dt * given[j] * (one - value[j] * value[j])
        for j in range(size):
            second[j] = inner[j]


@njit(nogil=True, cache=True, error_model="numpy")
def _cornn_forward(
    product: Any, carried: Any, t: int, step: float, stiffness: float, damping: float
) -> None:
    size = product.shape[2]
    dt = product.dtype.type(step)
    gamma, epsilon = product.dtype.type(stiffness), product.dtype.type(damping)
    for b in range(product.shape[1]):
        # One array written per loop: the compiler then vectorises it.
        force, y, z = product[t, b], carried[t, b, :size], carried[t, b, size:]
        new_y, new_z = carried[t + 1, b, :size], carried[t + 1, b, size:]
        for j in range(size):
            new_z[j] = z[j] + dt * (force[j] - gamma * y[j] - epsilon * z[j])
        for j in range(size):
            new_y[j] = y[j] + dt * new_z[j]


@njit(nogil=True, cache=True, error_model="numpy")
def _cornn_backward(
    product: Any, t: int, flow: Any, gradient: Any, step: float, stiffness: float, damping: float
) -> None:
    size = product.shape[2]
    dt, one = product.dtype.type(step), product.dtype.type(1)
    push = dt * product.dtype.type(stiffness)
    keep = one - dt * product.dtype.type(damping)
    for b in range(flow.shape[0]):
        value, result = product[t, b], gradient[t, b]
        y, z = flow[b, :size], flow[b, size:]
        for j in range(size):
            z[j] += dt * y[j]
        for j in range(size):
            result[j] = dt * z[j] * (one - value[j] * value[j])
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

    def forward(self, t: int) -> None:
        """Keep the tanh: its slope is all the way back needs."""
        tanh_rows(self.product, self.product_rows, t)
        _euler_forward(self.product, self.carried, t, self.step)

    def backward(self, t: int, carried_gradient: Any, memory_gradient: Any) -> None:
        """What came passes on, beside the product."""
        _euler_backward(self.product, t, carried_gradient, self.gradient, self.step)


class GatedEuler(Step):
    """carried' = carried + step·σ̂(product + projected₂) ⊙ tanh(product + projected₁).

    Args:
        step: The size of the step.
    """

    passes_on = True
    adds_projection = False

    def __init__(self, step: float) -> None:
        self.step = step

    def forward(self, t: int) -> None:
        """Keep both functions' values."""
        if t == 0:
            self.gate_rows = torch.empty_like(self.product_rows)
            self.gates = self.gate_rows.numpy()
        _gated_sum(self.product, self.projected, t, self.gates)
        tanh_rows(self.product, self.product_rows, t)
        sigmoid_rows(self.gates, self.gate_rows, t)
        _gated_forward(self.product, self.gates, self.carried, t, self.step)

    def backward(self, t: int, carried_gradient: Any, memory_gradient: Any) -> None:
        """Both functions read the same product."""
        _gated_backward(
            self.product,
            self.gates,
            t,
            carried_gradient,
            self.gradient,
            self.projected_gradient,
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

    def forward(self, t: int) -> None:
        """Keep the tanh in the first half of the product."""
        _lipschitz_sum(self.product, self.projected, self.carried, t, self.step)
        tanh_rows(self.product, self.product_rows, t, 0, self.carried.shape[2])
        _lipschitz_forward(self.product, self.carried, t, self.step)

    def backward(self, t: int, carried_gradient: Any, memory_gradient: Any) -> None:
        """The linear half is passed through, the other has its slope."""
        _lipschitz_backward(
            self.product, t, carried_gradient, self.gradient, self.projected_gradient, self.step
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

    def forward(self, t: int) -> None:
        """Keep the tanh."""
        tanh_rows(self.product, self.product_rows, t)
        _cornn_forward(self.product, self.carried, t, *self.numbers)

    def backward(self, t: int, carried_gradient: Any, memory_gradient: Any) -> None:
        """Position and velocity at once; what passes on stays in the given gradient."""
        _cornn_backward(self.product, t, carried_gradient, self.gradient, *self.numbers)
