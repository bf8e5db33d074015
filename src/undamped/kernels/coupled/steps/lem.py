"""The step of LEM: the slow state reads the fast one after that has moved, a second product.

    z' = z + a (tanh(p₃) − z),  y' = y + c (tanh(s) − y),  s = W z' + projected₄
    a = Δt σ̂(p₁),  c = Δt σ̂(p₂),  p = product(y) + projected₁₂₃

The memory z is known at every step, so the backward pass finds the second product of a chunk at
once, and its gradient as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from undamped.kernels.coupled.compiled_pass import CompiledPass
from undamped.kernels.coupled.loop import (
    LOOP,
    MAKES_ARRAYS,
    PART,
    add_backpropagated_product,
    add_output_gradient,
    add_product,
    apply,
    at_time,
    freeze_finished,
    inputs,
    memories,
    states,
)
from undamped.kernels.shared.gemm import multiply
from undamped.kernels.shared.jit import njit
from undamped.kernels.shared.pointers import STEPS
from undamped.kernels.shared.tanh import sigmoid, tanh

# In all kernels one array is written per loop: the compiler then vectorises it.


@njit(**PART)
def _fast_forward(product: Any, projected: Any, old: Any, new: Any, out: Any, step: float) -> None:
    # The fast state z, and what the second product is added to.
    size, dt = old.shape[1], product.dtype.type(step)
    for b in range(product.shape[0]):
        total, x, before, after, drive = product[b], projected[b], old[b], new[b], out[b]
        for j in range(size):
            a = dt * sigmoid(total[j] + x[j])
            after[j] = before[j] + a * (tanh(total[2 * size + j] + x[2 * size + j]) - before[j])
        for j in range(size):
            drive[j] = x[3 * size + j]


@njit(**PART)
def _slow_forward(product: Any, projected: Any, old: Any, new: Any, step: float) -> None:
    # The slow state y; `new` holds s.
    size, dt = old.shape[1], product.dtype.type(step)
    for b in range(product.shape[0]):
        total, x, before, after = product[b], projected[b], old[b], new[b]
        for j in range(size):
            c = dt * sigmoid(total[size + j] + x[size + j])
            after[j] = before[j] + c * (tanh(after[j]) - before[j])


@njit(**LOOP)
def _lem_forward_loop(chunk: Any, weights: Any, constants: Any) -> None:
    for t in range(chunk.projected[STEPS]):
        old, new = states(chunk, t)
        before, after = memories(chunk, t)
        apply(chunk, t)
        x = inputs(chunk, t)
        _fast_forward(chunk.product, x, before, after, new, constants[0])
        multiply(chunk.blas, after, weights[0], new, True)
        _slow_forward(chunk.product, x, old, new, constants[0])
        freeze_finished(chunk, chunk.carried, t)
        freeze_finished(chunk, chunk.memory, t)


@njit(**PART)
def _slow_backward(
    product: Any,
    projected: Any,
    old: Any,
    state_gradient: Any,
    gradient: Any,
    drive_gradient: Any,
    step: float,
) -> None:
    size, dt, one = old.shape[1], product.dtype.type(step), product.dtype.type(1)
    for b in range(state_gradient.shape[0]):
        total, x, before, given = product[b], projected[b], old[b], state_gradient[b]
        result, drive = gradient[b], drive_gradient[b]
        for j in range(size):
            value = tanh(x[3 * size + j])
            opened = dt * sigmoid(total[size + j] + x[size + j])
            drive[j] = given[j] * opened * (one - value * value)
        for j in range(size):
            opened = sigmoid(total[size + j] + x[size + j])
            slope = dt * opened * (one - opened)
            result[size + j] = given[j] * (tanh(x[3 * size + j]) - before[j]) * slope
        for j in range(size):
            given[j] *= one - dt * sigmoid(total[size + j] + x[size + j])


@njit(**PART)
def _fast_backward(
    product: Any,
    projected: Any,
    old: Any,
    memory_gradient: Any,
    gradient: Any,
    drive_gradient: Any,
    projected_gradient: Any,
    step: float,
) -> None:
    size, dt, one = old.shape[1], product.dtype.type(step), product.dtype.type(1)
    for b in range(memory_gradient.shape[0]):
        total, x, before, given = product[b], projected[b], old[b], memory_gradient[b]
        result, drive, projected_result = gradient[b], drive_gradient[b], projected_gradient[b]
        for j in range(size):
            opened = sigmoid(total[j] + x[j])
            value = tanh(total[2 * size + j] + x[2 * size + j])
            result[j] = given[j] * (value - before[j]) * dt * opened * (one - opened)
        for j in range(size):
            value = tanh(total[2 * size + j] + x[2 * size + j])
            opened = dt * sigmoid(total[j] + x[j])
            result[2 * size + j] = given[j] * opened * (one - value * value)
        for j in range(size):
            given[j] *= one - dt * sigmoid(total[j] + x[j])
        for j in range(3 * size):
            projected_result[j] = result[j]
        for j in range(size):
            projected_result[3 * size + j] = drive[j]


@njit(**MAKES_ARRAYS)
def _lem_backward_loop(chunk: Any, weights: Any, gradients: Any, constants: Any) -> None:
    drive_gradient = np.empty_like(chunk.state_gradient)
    for t in range(chunk.gradient[STEPS] - 1, -1, -1):
        add_output_gradient(chunk, t)
        total, x = at_time(chunk, chunk.product, t), at_time(chunk, chunk.projected, t)
        result = at_time(chunk, chunk.gradient, t)
        old, before = at_time(chunk, chunk.carried, t), at_time(chunk, chunk.memory, t)
        _slow_backward(total, x, old, chunk.state_gradient, result, drive_gradient, constants[0])
        add_product(chunk, drive_gradient, weights[1], chunk.memory_gradient)
        _fast_backward(
            total,
            x,
            before,
            chunk.memory_gradient,
            result,
            drive_gradient,
            at_time(chunk, chunk.projected_gradient, t),
            constants[0],
        )
        add_backpropagated_product(chunk, t)


class LongExpressivePass(CompiledPass):
    """The pass of one share, with a second product a step."""

    def _moved(self, chunk: int) -> Tensor:
        """Return z after every step of a chunk, (steps × sequences, hidden)."""
        return self.states_of(*self.chunks[chunk])[1][1:].flatten(0, 1)

    def recompute_sums(self, chunk: int, x: Tensor, read: Tensor) -> None:
        """Find the second product of a chunk again, too."""
        super().recompute_sums(chunk, x, read)
        last = self.projected[: len(x), :, self.product_width :]
        last += (self._moved(chunk) @ self.share.weights[0]).view(last.shape)

    def backward_chunk(
        self, chunk: int, start: int, stop: int, x: Tensor, output_gradient: Tensor
    ) -> Tensor:
        """Go back through a chunk, then add up the gradient of the second matrix."""
        gradient = super().backward_chunk(chunk, start, stop, x, output_gradient)
        drive = gradient[..., self.product_width :].flatten(0, 1)
        self.weight_gradients[0] += self._moved(chunk).t() @ drive
        return gradient


LOOPS = {
    "LongExpressive": (_lem_forward_loop, _lem_backward_loop),
}
PASS = LongExpressivePass
