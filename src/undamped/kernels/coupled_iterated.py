"""The walk of the incremental RNN: several products a step, towards an equilibrium.

    s₀ = carried,  s_{k+1} = s_k + η_k (tanh(L(s_k) + projected) − α s_k),  carried' = s_K − carried

Only the states are kept. A chunk's iterates are found again with K large products.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from undamped.kernels.coupled import Now, Step
from undamped.kernels.coupled_squash import tanh
from undamped.kernels.coupled_walk import Walk


@njit(nogil=True, cache=True, error_model="numpy")
def _iterate(product: Any, before: Any, after: Any, step: Any, decay: float) -> None:
    alpha = product.dtype.type(decay)
    for b in range(product.shape[0]):
        total, old, new = product[b], before[b], after[b]
        for j in range(product.shape[1]):
            new[j] = old[j] + step * (tanh(total[j]) - alpha * old[j])


@njit(nogil=True, cache=True, error_model="numpy")
def _iterate_again(product: Any, before: Any, after: Any, step: Any, decay: float) -> None:
    # As `_iterate`, but the product is overwritten with its tanh, for the slope.
    alpha = product.dtype.type(decay)
    for b in range(product.shape[0]):
        total, old, new = product[b], before[b], after[b]
        for j in range(product.shape[1]):
            total[j] = tanh(total[j])
        for j in range(product.shape[1]):
            new[j] = old[j] + step * (total[j] - alpha * old[j])


@njit(nogil=True, cache=True, error_model="numpy")
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


class Iterated(Step):
    """K steps towards the equilibrium, then the increment; parameters: η (K,).

    Args:
        decay: The number α.
    """

    def __init__(self, decay: float) -> None:
        self.decay = decay

    def walk(self) -> type[Walk]:
        """Several products a step."""
        return IteratedWalk

    def forward(self, now: Now) -> None:
        """Take the old state off the last iterate."""
        now.new -= now.old

    def backward(self, now: Now) -> None:
        """Nothing is left to do: the walk does it between its products."""


class IteratedWalk(Walk):
    """The way of one share, with K products a step."""

    @property
    def _sizes(self) -> Any:
        return self.now.parameters[0]

    @property
    def _decay(self) -> float:
        assert isinstance(self.step, Iterated)
        return self.step.decay

    def forward_chunk(self, start: int, stop: int, projected: Tensor) -> None:
        """Iterate in the place of the new state."""
        states = self.share.carried[start : stop + 1].unbind()
        arrays = self.share.carried[start : stop + 1].numpy()
        inputs, product = projected.unbind(), self.scratch.numpy()
        for i in range(stop - start):
            self.now.old, self.now.new = arrays[i], arrays[i + 1]
            read, before = states[i], self.now.old
            for size in self._sizes:
                self.operator.apply(read, inputs[i], self.scratch)
                _iterate(product, before, self.now.new, size, self._decay)
                read, before = states[i + 1], self.now.new
            self.step.forward(self.now)
            if self.share.lengths is not None:
                self.hold(start + i)

    def prepare_backward(self) -> None:
        """Make the arrays of a chunk: iterates and tanh of each of the K."""
        count = len(self._sizes)
        self.projected = self.buffer(self.projected_width)
        self.iterates = [self.buffer(self.projected_width) for _ in range(count + 1)]
        self.active = [self.buffer(self.projected_width) for _ in range(count)]

    def backward_chunk(
        self, chunk: int, start: int, stop: int, x: Tensor, output_gradient: Tensor
    ) -> Tensor:
        """Find the iterates again, then go back through all of them at every time."""
        steps, share, flow = stop - start, self.share, self.flow
        projected = self.projected[:steps]
        self.projection.again(chunk, x, projected)
        self._iterates_again(start, stop, projected.flatten(0, 1))
        active = [part[:steps].numpy() for part in self.active]
        gradients = [part[:steps].unbind() for part in self.active]
        iterates = [part[:steps].numpy() for part in self.iterates]
        step_gradients = self.now.parameter_gradients[0]
        given = output_gradient[start:stop].unbind()
        inner = torch.empty_like(flow)
        inner_array = inner.numpy()
        for i in range(steps - 1, -1, -1):
            over = share.finished(start + i)
            waiting = None if over is None else self.set_aside(over)
            flow += given[i] if over is None else given[i].index_fill(0, over, 0)
            inner.copy_(flow)
            for k in range(len(active) - 1, -1, -1):
                size, part = self._sizes[k], step_gradients[k : k + 1]
                _iterate_back(active[k][i], iterates[k][i], inner_array, size, self._decay, part)
                self.operator.transpose(gradients[k][i], inner, inner)
            torch.sub(inner, flow, out=flow)
            if waiting is not None:
                self.bring_back(over, waiting)
        for before, gradient in zip(self.iterates, self.active, strict=False):
            rows = gradient[:steps].flatten(0, 1)
            self.add_linear(self.operator.gradients(before[:steps].flatten(0, 1), rows))
        for other in self.active[1:]:
            self.active[0][:steps] += other[:steps]
        return self.active[0][:steps]

    def _iterates_again(self, start: int, stop: int, projected: Tensor) -> None:
        steps = stop - start
        self.iterates[0][:steps] = self.share.carried[start:stop]
        rows = [part[:steps].flatten(0, 1) for part in self.iterates]
        for k, active in enumerate(self.active):
            product = active[:steps].flatten(0, 1)
            self.operator.apply(rows[k], projected, product)
            before, after = rows[k].numpy(), rows[k + 1].numpy()
            _iterate_again(product.numpy(), before, after, self._sizes[k], self._decay)
