"""The light recurrence of the SRU: gates that read the memory unit by unit, no product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from numba import njit
from torch import Tensor

from undamped.kernels.coupled import Operator, Step


@njit(nogil=True, cache=True)
def _gates(projected: Any, product: Any, memory: Any, t: int, forget: Any, reset: Any) -> None:
    size = memory.shape[2]
    for b in range(memory.shape[1]):
        for j in range(size):
            c = memory[t, b, j]
            product[t, b, j] = projected[t, b, j + size] + forget[j] * c
            product[t, b, j + size] = projected[t, b, j + 2 * size] + reset[j] * c


@njit(nogil=True, cache=True)
def _light_forward(projected: Any, product: Any, memory: Any, carried: Any, t: int) -> None:
    size, one = memory.shape[2], product.dtype.type(1)
    for b in range(memory.shape[1]):
        for j in range(size):
            f, r = product[t, b, j], product[t, b, j + size]
            new = f * memory[t, b, j] + (one - f) * projected[t, b, j]
            memory[t + 1, b, j] = new
            carried[t + 1, b, j] = r * new + (one - r) * projected[t, b, j + 3 * size]


@njit(nogil=True, cache=True)
def _light_backward(
    projected: Any,
    product: Any,
    memory: Any,
    t: int,
    flow: Any,
    memory_flow: Any,
    projected_gradient: Any,
    forget: Any,
    reset: Any,
    forget_gradient: Any,
    reset_gradient: Any,
) -> None:
    size, one = memory.shape[2], product.dtype.type(1)
    for b in range(memory.shape[1]):
        for j in range(size):
            f, r, old = product[t, b, j], product[t, b, j + size], memory[t, b, j]
            given = flow[b, j]
            kept = memory_flow[b, j] + given * r
            passing = projected[t, b, j + 3 * size]
            opening = given * (memory[t + 1, b, j] - passing) * r * (one - r)
            forgetting = kept * (old - projected[t, b, j]) * f * (one - f)
            projected_gradient[t, b, j] = kept * (one - f)
            projected_gradient[t, b, j + size] = forgetting
            projected_gradient[t, b, j + 2 * size] = opening
            projected_gradient[t, b, j + 3 * size] = given * (one - r)
            forget_gradient[j] += forgetting * old
            reset_gradient[j] += opening * old
            memory_flow[b, j] = kept * f + forgetting * forget[j] + opening * reset[j]


class Nothing(Operator):
    """The operator of a recurrence that has none.

    Args:
        width: How many numbers a row of the elementwise part's working array holds.
    """

    def __init__(self, width: int) -> None:
        self.width = width

    def bind(self, tensors: Sequence[Tensor]) -> None:
        """There is nothing to take."""

    def apply(self, rows: Tensor, add: Tensor | None, out: Tensor) -> None:
        """Leave the array to the elementwise part."""

    def transpose(self, rows: Tensor, add: Tensor | None, out: Tensor) -> None:
        """Nothing reads the state, so nothing comes back to it."""
        out.zero_()

    def gradients(self, inputs: Tensor, gradients: Tensor) -> tuple[Tensor, ...]:
        """There are no tensors."""
        return ()


class LightRecurrence(Step):
    """Forget and reset gates; parameters: their recurrent weights (hidden,) each."""

    adds_projection = False
    keeps_projection = True
    has_memory = True

    def forward(self, t: int) -> None:
        """Keep the gates."""
        _gates(self.projected, self.product, self.memory, t, *self.parameters)
        torch.sigmoid_(self.product_rows[t])
        _light_forward(self.projected, self.product, self.memory, self.carried, t)

    def backward(self, t: int, carried_gradient: Any, memory_gradient: Any) -> None:
        """All four parts of the projection at once."""
        _light_backward(
            self.projected,
            self.product,
            self.memory,
            t,
            carried_gradient,
            memory_gradient,
            self.projected_gradient,
            *self.parameters,
            *self.parameter_gradients,
        )
