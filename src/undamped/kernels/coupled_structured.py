"""The linear part of `coupled_scan` for a unitary map given as two functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from undamped.kernels.coupled import Operator

CHUNK = 1 << 18
"""Numbers per chunk when the gradient of all steps is taken: what the caches hold."""


class Structured(Operator):
    """rows → apply(tensor, rows) on complex rows, kept as (real | imaginary).

    Args:
        apply: The map, differentiable in its tensor.
        adjoint: Its conjugate transpose.
    """

    def __init__(
        self, apply: Callable[[Tensor, Tensor], Tensor], adjoint: Callable[[Tensor, Tensor], Tensor]
    ) -> None:
        self.map, self.adjoint = apply, adjoint

    def bind(self, tensors: Sequence[Tensor]) -> None:
        """Take the tensor that both functions read."""
        (self.tensor,) = tensors

    def apply(self, rows: Tensor, add: Tensor | None, out: Tensor) -> None:
        """Write the map of each row."""
        self._write(self.map, rows, add, out)

    def transpose(self, rows: Tensor, add: Tensor | None, out: Tensor) -> None:
        """Write the adjoint map: for real pairs it is the transpose."""
        self._write(self.adjoint, rows, add, out)

    def _write(self, function: Callable, rows: Tensor, add: Tensor | None, out: Tensor) -> None:
        size = rows.shape[1] // 2
        answer = function(self.tensor, torch.complex(rows[:, :size], rows[:, size:]))
        if add is None:
            out[:, :size], out[:, size:] = answer.real, answer.imag
        else:
            torch.add(add[:, :size], answer.real, out=out[:, :size])
            torch.add(add[:, size:], answer.imag, out=out[:, size:])

    def gradients(self, inputs: Tensor, gradients: Tensor) -> tuple[Tensor, ...]:
        """Differentiate the map on all rows, a chunk at a time."""
        size = inputs.shape[1] // 2
        rows = max(1, CHUNK // inputs.shape[1])
        total = torch.zeros_like(self.tensor)
        for some, given in zip(inputs.split(rows), gradients.split(rows), strict=True):
            with torch.enable_grad():
                leaf = self.tensor.detach().requires_grad_()
                answer = self.map(leaf, torch.complex(some[:, :size], some[:, size:]))
                product = (answer.real * given[:, :size] + answer.imag * given[:, size:]).sum()
            total += torch.autograd.grad(product, leaf)[0]
        return (total,)
