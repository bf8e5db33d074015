"""The walk of the incremental RNN: several products a step, towards an equilibrium.

    s₀ = carried,  s_{k+1} = s_k + η_k (tanh(L(s_k) + projected) − α s_k),  carried' = s_K − carried

Only the states are kept. A chunk's iterates are found again with K large products.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from torch import Tensor

from undamped.kernels.coupled.contract import Operator, Step
from undamped.kernels.coupled.loop import (
    LOOP,
    PART,
    LoopWalk,
    at_time,
    bring_back,
    hold,
    move,
    receive,
    states,
    sum_of,
)
from undamped.kernels.coupled.passes import Walk
from undamped.kernels.shared.gemm import multiply
from undamped.kernels.shared.pointers import STEPS
from undamped.kernels.shared.squash import tanh


@njit(**PART)
def _iterate(product: Any, before: Any, after: Any, step: Any, decay: float) -> None:
    alpha = product.dtype.type(decay)
    for b in range(product.shape[0]):
        total, old, new = product[b], before[b], after[b]
        for j in range(product.shape[1]):
            new[j] = old[j] + step * (tanh(total[j]) - alpha * old[j])


@njit(**LOOP)
def _iterate_again(product: Any, before: Any, after: Any, step: Any, decay: float) -> None:
    # As `_iterate`, but the product is overwritten with its tanh, for the slope.
    alpha = product.dtype.type(decay)
    for b in range(product.shape[0]):
        total, old, new = product[b], before[b], after[b]
        for j in range(product.shape[1]):
            total[j] = tanh(total[j])
        for j in range(product.shape[1]):
            new[j] = old[j] + step * (total[j] - alpha * old[j])


@njit(**PART)
def _iterate_back(
    active: Any, before: Any, flow: Any, step: Any, decay: float, step_gradient: Any
) -> None:
    # `active` is overwritten with the gradient of the product.
    size, alpha, one = flow.shape[1], active.dtype.type(decay), active.dtype.type(1)
    sums = np.zeros(size, active.dtype)
    keep = one - step * alpha
    for b in range(flow.shape[0]):
        value, old, given = active[b], before[b], flow[b]
        for j in range(size):
            sums[j] += given[j] * (value[j] - alpha * old[j])
        for j in range(size):
            value[j] = step * given[j] * (one - value[j] * value[j])
        for j in range(size):
            given[j] *= keep
    step_gradient[0] += sums.sum()


@njit(**LOOP)
def _iterated_there(way: Any, parameters: Any, numbers: Any) -> None:
    sizes = parameters[0]
    for t in range(way.projected[STEPS]):
        old, new = states(way, t)
        for k in range(sizes.shape[0]):
            before = old if k == 0 else new
            sum_of(way, t, before, way.product)
            _iterate(way.product, before, new, sizes[k], numbers[0])
        for b in range(new.shape[0]):
            begun, reached = old[b], new[b]
            for j in range(new.shape[1]):
                reached[j] -= begun[j]
        hold(way, way.carried, t)


@njit(**LOOP)
def _iterated_back(way: Any, parameters: Any, gradients: Any, numbers: Any) -> None:
    # `product` holds the iterates and `gradient` their tanh, those of one k after those of another.
    sizes, steps, inner = parameters[0], way.given[STEPS], np.empty_like(way.flow)
    for t in range(steps - 1, -1, -1):
        receive(way, t)
        for b in range(inner.shape[0]):
            move(way.flow[b], inner[b])
        for k in range(sizes.shape[0] - 1, -1, -1):
            before = at_time(way, way.product, k * steps + t)
            active = at_time(way, way.gradient, k * steps + t)
            _iterate_back(active, before, inner, sizes[k], numbers[0], gradients[0][k : k + 1])
            multiply(way.blas, active, way.matrix, inner, True)
        for b in range(inner.shape[0]):
            reached, flow = inner[b], way.flow[b]
            for j in range(inner.shape[1]):
                flow[j] = reached[j] - flow[j]
        bring_back(way, t)


class Iterated(Step):
    """K steps towards the equilibrium, then the increment; parameters: η (K,).

    Args:
        decay: The number α.
    """

    loops = _iterated_there, _iterated_back

    def __init__(self, decay: float) -> None:
        self.numbers = (decay,)

    def walk(self, operator: Operator) -> type[Walk]:
        """Several products a step."""
        return IteratedWalk


class IteratedWalk(LoopWalk):
    """The way of one share, with K products a step."""

    def prepare_backward(self) -> None:
        """Make the arrays of a chunk: iterates and tanh of each of the K."""
        count = len(self.parameters[0])
        self.projected = self.buffer(self.projected_width)
        longest = len(self.projected)
        self.iterates = self.buffer(self.projected_width, (count + 1) * longest)
        self.active = self.buffer(self.projected_width, count * longest)

    def backward_chunk(
        self, chunk: int, start: int, stop: int, x: Tensor, output_gradient: Tensor
    ) -> Tensor:
        """Find the iterates again, then go back through all of them at every time."""
        sizes, steps = self.parameters[0], stop - start
        projected = self.projected[:steps]
        self.projection.again(chunk, x, projected)
        carried, _ = self.states_of(start, stop)
        iterates = self.iterates[: (len(sizes) + 1) * steps].unflatten(0, (-1, steps))
        active = self.active[: len(sizes) * steps].unflatten(0, (-1, steps))
        iterates[0] = carried[:-1]
        add = projected.flatten(0, 1)
        for k, size in enumerate(sizes):
            before, after, product = (
                part.flatten(0, 1) for part in (iterates[k], iterates[k + 1], active[k])
            )
            self.operator.apply(before, add, product)
            arrays = product.numpy(), before.numpy(), after.numpy()
            _iterate_again(*arrays, size, *self.step.numbers)
        self.loop_back(
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
