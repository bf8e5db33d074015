"""The incremental RNN: several products a step, towards an equilibrium.

    s₀ = state,  s_{k+1} = s_k + η_k (tanh(L(s_k) + projected) − α s_k),  state' = s_K − state

Only the states are saved. The iterates of a chunk are recomputed with K large products.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from undamped.kernels.coupled.compiled_pass import CompiledPass
from undamped.kernels.coupled.loop import (
    LOOP,
    add_product,
    add_sum,
    at_time,
    backward_loop,
    clear_row,
    copy_row,
    forward_loop,
    rows_plus_input,
    states,
    step_function,
)
from undamped.kernels.shared.jit import njit
from undamped.kernels.shared.pointers import STEPS
from undamped.kernels.shared.tanh import tanh


@step_function
def iterated_forward(chunk: Any, t: int, weights: Any, constants: Any) -> None:
    """See `Iterated`."""
    (old, new), product, sizes = states(chunk, t), chunk.product, weights[0]
    alpha = product.dtype.type(constants[0])
    for k in range(sizes.shape[0]):
        before, step = old if k == 0 else new, sizes[k]
        rows_plus_input(chunk, t, before, product)
        for b in range(product.shape[0]):
            total, state, after = product[b], before[b], new[b]
            for j in range(product.shape[1]):
                after[j] = state[j] + step * (tanh(total[j]) - alpha * state[j])
    for b in range(new.shape[0]):
        start, end = old[b], new[b]
        for j in range(new.shape[1]):
            end[j] -= start[j]


@njit(**LOOP)
def _recompute_iterate(product: Any, before: Any, after: Any, step: Any, decay: float) -> None:
    # One iteration, where the product is overwritten with its tanh, for the slope.
    alpha = product.dtype.type(decay)
    for b in range(product.shape[0]):
        total, old, new = product[b], before[b], after[b]
        for j in range(product.shape[1]):
            total[j] = tanh(total[j])
        for j in range(product.shape[1]):
            new[j] = old[j] + step * (total[j] - alpha * old[j])


@step_function
def _iterate_backward(
    active: Any, before: Any, grad_after: Any, step: Any, decay: float, sums: Any
) -> None:
    # `active` is overwritten with the gradient of the product.
    size, alpha, unit = grad_after.shape[1], active.dtype.type(decay), active.dtype.type(1)
    clear_row(sums)
    factor = unit - step * alpha
    for b in range(grad_after.shape[0]):
        value, old, grad = active[b], before[b], grad_after[b]
        for j in range(size):
            sums[j] += grad[j] * (value[j] - alpha * old[j])
        for j in range(size):
            value[j] = step * grad[j] * (unit - value[j] * value[j])
        for j in range(size):
            grad[j] *= factor


@step_function
def iterated_backward(chunk: Any, t: int, weights: Any, gradients: Any, constants: Any) -> None:
    """The gradient of `iterated_forward`.

    `chunk.product` holds the iterates and `chunk.gradient` their tanh, those of one k after those
    of another.
    """
    sizes, steps, inner = weights[0], chunk.output_gradient[STEPS], chunk.scratch
    for b in range(inner.shape[0]):
        copy_row(chunk.state_gradient[b], inner[b])
    for k in range(sizes.shape[0] - 1, -1, -1):
        before = at_time(chunk, chunk.product, k * steps + t)
        active = at_time(chunk, chunk.gradient, k * steps + t)
        _iterate_backward(active, before, inner, sizes[k], constants[0], chunk.buffer[0])
        add_sum(chunk.buffer[0], gradients[0][k : k + 1])
        add_product(chunk, active, chunk.matrix, inner)
    for b in range(inner.shape[0]):
        start, state_gradient = inner[b], chunk.state_gradient[b]
        for j in range(inner.shape[1]):
            state_gradient[j] = start[j] - state_gradient[j]


class IteratedPass(CompiledPass):
    """The pass of one shard, with K products a step."""

    def prepare_backward(self) -> None:
        """Make the arrays of a chunk: iterates and tanh of each of the K."""
        count = len(self.weights[0])
        self.projected = self.buffer(self.projected_width)
        longest = len(self.projected)
        self.iterates = self.buffer(self.projected_width, (count + 1) * longest)
        self.active = self.buffer(self.projected_width, count * longest)

    def backward_chunk(
        self, chunk: int, start: int, stop: int, x: Tensor, output_gradient: Tensor
    ) -> Tensor:
        """Recompute the iterates, then backpropagate through all of them at every time."""
        sizes, steps = self.weights[0], stop - start
        projected = self.projected[:steps]
        self.projection.recompute(chunk, x, projected)
        hidden_states, _ = self.states_of(start, stop)
        iterates = self.iterates[: (len(sizes) + 1) * steps].unflatten(0, (-1, steps))
        active = self.active[: len(sizes) * steps].unflatten(0, (-1, steps))
        iterates[0] = hidden_states[:-1]
        add = projected.flatten(0, 1)
        for k, size in enumerate(sizes):
            before, after, product = (
                part.flatten(0, 1) for part in (iterates[k], iterates[k + 1], active[k])
            )
            self.operator.apply(before, add, product)
            arrays = product.numpy(), before.numpy(), after.numpy()
            _recompute_iterate(*arrays, size, *self.step.constants)
        self.run_backward_loop(
            start,
            stop,
            output_gradient,
            projected=projected,
            product=iterates.flatten(0, 1),
            gradient=active.flatten(0, 1),
            projected_gradient=projected,
        )
        for before, gradient in zip(iterates, active, strict=False):
            self.add_linear(self.operator.gradients(before.flatten(0, 1), gradient.flatten(0, 1)))
        return active.sum(0)


LOOPS = {"Iterated": (forward_loop(iterated_forward), backward_loop(iterated_backward))}
PASS = IteratedPass
