"""The elementwise part of an LSTM: four gates, and a memory that no product reads."""

from __future__ import annotations

from typing import Any

from numba import njit

from undamped.kernels.coupled import Step
from undamped.kernels.coupled_squash import sigmoid_rows, tanh_rows


@njit(nogil=True, cache=True, error_model="numpy")
def _lstm_memory(product: Any, memory: Any, t: int) -> None:
    size = memory.shape[2]
    for b in range(product.shape[1]):
        i, f, g = product[t, b, :size], product[t, b, size : 2 * size], product[t, b, 2 * size :]
        old, new = memory[t, b], memory[t + 1, b]
        for j in range(size):
            new[j] = f[j] * old[j] + i[j] * g[j]


@njit(nogil=True, cache=True, error_model="numpy")
def _lstm_show(product: Any, carried: Any, t: int) -> None:
    size = carried.shape[2]
    for b in range(product.shape[1]):
        for j in range(size):
            carried[t + 1, b, j] *= product[t, b, j + 3 * size]


@njit(nogil=True, cache=True, error_model="numpy")
def _lstm_backward(
    product: Any, memory: Any, shown: Any, t: int, flow: Any, memory_flow: Any, gradient: Any
) -> None:
    size, one = memory.shape[2], product.dtype.type(1)
    for b in range(flow.shape[0]):
        # One array written per loop: the compiler then vectorises it.
        i, f = product[t, b, :size], product[t, b, size : 2 * size]
        g, o = product[t, b, 2 * size : 3 * size], product[t, b, 3 * size :]
        g_i, g_f = gradient[t, b, :size], gradient[t, b, size : 2 * size]
        g_g, g_o = gradient[t, b, 2 * size : 3 * size], gradient[t, b, 3 * size :]
        squashed, given, kept, old = shown[b], flow[b], memory_flow[b], memory[t, b]
        for j in range(size):
            kept[j] += given[j] * o[j] * (one - squashed[j] * squashed[j])
        for j in range(size):
            g_i[j] = kept[j] * g[j] * i[j] * (one - i[j])
        for j in range(size):
            g_f[j] = kept[j] * old[j] * f[j] * (one - f[j])
        for j in range(size):
            g_g[j] = kept[j] * i[j] * (one - g[j] * g[j])
        for j in range(size):
            g_o[j] = given[j] * squashed[j] * o[j] * (one - o[j])
        for j in range(size):
            kept[j] *= f[j]


class LongShort(Step):
    """The LSTM step: gates i, f, g, o from product + projected, a memory beside the state."""

    has_memory = True

    def forward(self, t: int) -> None:
        """Keep the values of all gates."""
        size = self.carried.shape[2]
        sigmoid_rows(self.product, self.product_rows, t, 0, 2 * size)
        tanh_rows(self.product, self.product_rows, t, 2 * size, 3 * size)
        sigmoid_rows(self.product, self.product_rows, t, 3 * size)
        _lstm_memory(self.product, self.memory, t)
        self.carried_rows[t + 1] = self.memory_rows[t + 1]
        tanh_rows(self.carried, self.carried_rows, t + 1)
        _lstm_show(self.product, self.carried, t)

    def backward(self, t: int, carried_gradient: Any, memory_gradient: Any) -> None:
        """The squashed memory is computed again rather than kept."""
        shown = self.memory_rows[t + 1 : t + 2].clone()
        tanh_rows(shown.numpy(), shown, 0)
        _lstm_backward(
            self.product,
            self.memory,
            shown.numpy()[0],
            t,
            carried_gradient,
            memory_gradient,
            self.gradient,
        )
