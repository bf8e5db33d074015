"""The light recurrence of the SRU: gates that read the memory unit by unit, no product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numba import njit
from torch import Tensor

from undamped.kernels.coupled import Operator, Step
from undamped.kernels.coupled_squash import sigmoid_rows


@njit(nogil=True, cache=True, error_model="numpy")
def _gates(projected: Any, product: Any, memory: Any, t: int, forget: Any, reset: Any) -> None:
    size = memory.shape[2]
    for b in range(memory.shape[1]):
        c, given = memory[t, b], projected[t, b, size : 3 * size]
        f, r = product[t, b, :size], product[t, b, size:]
        for j in range(size):
            f[j] = given[j] + forget[j] * c[j]
        for j in range(size):
            r[j] = given[j + size] + reset[j] * c[j]


@njit(nogil=True, cache=True, error_model="numpy")
def _light_forward(projected: Any, product: Any, memory: Any, carried: Any, t: int) -> None:
    size, one = memory.shape[2], product.dtype.type(1)
    for b in range(memory.shape[1]):
        # One array written per loop: the compiler then vectorises it.
        f, r = product[t, b, :size], product[t, b, size:]
        candidate, passing = projected[t, b, :size], projected[t, b, 3 * size :]
        old, new, shown = memory[t, b], memory[t + 1, b], carried[t + 1, b]
        for j in range(size):
            new[j] = f[j] * old[j] + (one - f[j]) * candidate[j]
        for j in range(size):
            shown[j] = r[j] * new[j] + (one - r[j]) * passing[j]


@njit(nogil=True, cache=True, error_model="numpy")
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
        f, r = product[t, b, :size], product[t, b, size:]
        candidate, passing = projected[t, b, :size], projected[t, b, 3 * size :]
        old, new = memory[t, b], memory[t + 1, b]
        given, kept = flow[b], memory_flow[b]
        first, passed = projected_gradient[t, b, :size], projected_gradient[t, b, 3 * size :]
        forgetting = projected_gradient[t, b, size : 2 * size]
        opening = projected_gradient[t, b, 2 * size : 3 * size]
        for j in range(size):
            kept[j] += given[j] * r[j]
        for j in range(size):
            opening[j] = given[j] * (new[j] - passing[j]) * r[j] * (one - r[j])
        for j in range(size):
            forgetting[j] = kept[j] * (old[j] - candidate[j]) * f[j] * (one - f[j])
        for j in range(size):
            first[j] = kept[j] * (one - f[j])
        for j in range(size):
            passed[j] = given[j] * (one - r[j])
        for j in range(size):
            forget_gradient[j] += forgetting[j] * old[j]
        for j in range(size):
            reset_gradient[j] += opening[j] * old[j]
        for j in range(size):
            kept[j] = kept[j] * f[j] + forgetting[j] * forget[j] + opening[j] * reset[j]


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
        sigmoid_rows(self.product, self.product_rows, t)
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
