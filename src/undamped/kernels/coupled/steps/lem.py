"""The step of LEM: the slow state reads the new fast one, by a second product.

    z' = z + a (tanh(p₃) − z),  y' = y + c (tanh(s) − y),  s = W z' + projected₄
    a = Δt σ̂(p₁),  c = Δt σ̂(p₂),  p = product(y) + projected₁₂₃

The memory z is known at every step, so the backward pass computes the second product of a chunk at
once, and its gradient as well.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from undamped.kernels.coupled.compiled_pass import CompiledPass
from undamped.kernels.coupled.loop import (
    add_backpropagated_product,
    add_product,
    apply,
    at_time,
    backward_loop,
    forward_loop,
    inputs,
    memories,
    states,
    step_function,
)
from undamped.kernels.shared.gemm import multiply
from undamped.kernels.shared.tanh import sigmoid, tanh

# In all kernels one array is written per loop: the compiler then vectorises it.


@step_function
def lem_forward(chunk: Any, t: int, weights: Any, constants: Any) -> None:
    """See `LongExpressive`."""
    apply(chunk, t)
    product, projected = chunk.product, inputs(chunk, t)
    (slow, new_slow), (fast, new_fast) = states(chunk, t), memories(chunk, t)
    size, dt = slow.shape[1], product.dtype.type(constants[0])
    for b in range(product.shape[0]):
        total, x, before, after, drive = product[b], projected[b], fast[b], new_fast[b], new_slow[b]
        for j in range(size):
            a = dt * sigmoid(total[j] + x[j])
            after[j] = before[j] + a * (tanh(total[2 * size + j] + x[2 * size + j]) - before[j])
        for j in range(size):
            drive[j] = x[3 * size + j]
    multiply(chunk.blas, new_fast, weights[0], new_slow, True)
    for b in range(product.shape[0]):  # the new slow state holds s
        total, x, before, after = product[b], projected[b], slow[b], new_slow[b]
        for j in range(size):
            c = dt * sigmoid(total[size + j] + x[size + j])
            after[j] = before[j] + c * (tanh(after[j]) - before[j])


@step_function
def _slow_backward(
    product: Any, projected: Any, old: Any, grad_new: Any, grad_product: Any, grad_s: Any, dt: Any
) -> None:
    size, unit = old.shape[1], product.dtype.type(1)
    for b in range(grad_new.shape[0]):
        total, x, before, grad = product[b], projected[b], old[b], grad_new[b]
        result, drive = grad_product[b], grad_s[b]
        for j in range(size):
            value = tanh(x[3 * size + j])
            c = dt * sigmoid(total[size + j] + x[size + j])
            drive[j] = grad[j] * c * (unit - value * value)
        for j in range(size):
            gate = sigmoid(total[size + j] + x[size + j])
            slope = dt * gate * (unit - gate)
            result[size + j] = grad[j] * (tanh(x[3 * size + j]) - before[j]) * slope
        for j in range(size):
            grad[j] *= unit - dt * sigmoid(total[size + j] + x[size + j])


@step_function
def _fast_backward(
    product: Any, projected: Any, old: Any, grad_new: Any, grad_product: Any, dt: Any
) -> None:
    size, unit = old.shape[1], product.dtype.type(1)
    for b in range(grad_new.shape[0]):
        total, x, before, grad = product[b], projected[b], old[b], grad_new[b]
        result = grad_product[b]
        for j in range(size):
            gate = sigmoid(total[j] + x[j])
            value = tanh(total[2 * size + j] + x[2 * size + j])
            result[j] = grad[j] * (value - before[j]) * dt * gate * (unit - gate)
        for j in range(size):
            value = tanh(total[2 * size + j] + x[2 * size + j])
            a = dt * sigmoid(total[j] + x[j])
            result[2 * size + j] = grad[j] * a * (unit - value * value)
        for j in range(size):
            grad[j] *= unit - dt * sigmoid(total[j] + x[j])


@step_function
def lem_backward(chunk: Any, t: int, weights: Any, gradients: Any, constants: Any) -> None:
    """The gradient of `lem_forward`; the projected input holds s in its last quarter."""
    product, projected = at_time(chunk, chunk.product, t), at_time(chunk, chunk.projected, t)
    grad_product, grad_s = at_time(chunk, chunk.gradient, t), chunk.scratch
    grad_projected = at_time(chunk, chunk.projected_gradient, t)
    slow, fast = at_time(chunk, chunk.hidden_states, t), at_time(chunk, chunk.memory, t)
    dt, size = product.dtype.type(constants[0]), slow.shape[1]
    _slow_backward(product, projected, slow, chunk.state_gradient, grad_product, grad_s, dt)
    add_product(chunk, grad_s, weights[1], chunk.memory_gradient)
    _fast_backward(product, projected, fast, chunk.memory_gradient, grad_product, dt)
    for b in range(product.shape[0]):
        result, drive, projected_result = grad_product[b], grad_s[b], grad_projected[b]
        for j in range(3 * size):
            projected_result[j] = result[j]
        for j in range(size):
            projected_result[3 * size + j] = drive[j]
    add_backpropagated_product(chunk, t)


class LongExpressivePass(CompiledPass):
    """The pass of one shard, with a second product a step."""

    def _fast_states(self, chunk: int) -> Tensor:
        """Return z after every step of a chunk, (steps × sequences, hidden)."""
        return self.states_of(*self.chunks[chunk])[1][1:].flatten(0, 1)

    def recompute_sums(self, chunk: int, x: Tensor, read: Tensor) -> None:
        """Recompute the second product of a chunk, too."""
        super().recompute_sums(chunk, x, read)
        last = self.projected[: len(x), :, self.product_width :]
        last += (self._fast_states(chunk) @ self.shard.weights[0]).view(last.shape)

    def backward_chunk(
        self, chunk: int, start: int, stop: int, x: Tensor, output_gradient: Tensor
    ) -> Tensor:
        """Backpropagate through a chunk, then sum the gradient of the second matrix."""
        gradient = super().backward_chunk(chunk, start, stop, x, output_gradient)
        drive = gradient[..., self.product_width :].flatten(0, 1)
        self.weight_gradients[0] += self._fast_states(chunk).t() @ drive
        return gradient


LOOPS = {
    "LongExpressive": (forward_loop(lem_forward, has_memory=True), backward_loop(lem_backward))
}
PASS = LongExpressivePass
