"""The projected input V x + b, a chunk of steps at a time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from undamped.kernels.coupled.contract import Projection, ProjectionPass


class Linear(Projection):
    """x → V x + b; tensors: V (answer, input) and, where there is one, b (answer,)."""

    def width(self, tensors: Sequence[Tensor]) -> int:
        """The rows of V."""
        return tensors[0].shape[0]

    def begin(
        self,
        tensors: Sequence[Tensor],
        state: list[Tensor],
        chunks: list[tuple[int, int]],
        share: slice,
        lengths: Tensor | None,
    ) -> ProjectionPass:
        """Begin."""
        return LinearPass(tensors)


class LinearPass(ProjectionPass):
    """One product a chunk, forward and backward."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.weight = tensors[0].contiguous()
        self.transposed = self.weight.t()
        self.bias = tensors[1] if len(tensors) > 1 else None
        self.tensor_gradients = [torch.zeros_like(tensor) for tensor in tensors]
        self.state, self.state_gradient = [], []

    def forward(self, chunk: int, x: Tensor, out: Tensor) -> None:
        """V x + b."""
        rows, answer = x.flatten(0, 1), out.flatten(0, 1)
        if self.bias is None:
            torch.mm(rows, self.transposed, out=answer)
        else:
            torch.addmm(self.bias, rows, self.transposed, out=answer)

    def recompute(self, chunk: int, x: Tensor, out: Tensor) -> None:
        """Nothing is carried, so the same."""
        self.forward(chunk, x, out)

    def backward(
        self, chunk: int, x: Tensor, gradient: Tensor, input_gradient: Tensor | None
    ) -> None:
        """Two products and a sum."""
        rows = gradient.flatten(0, 1)
        self.tensor_gradients[0].addmm_(rows.t(), x.flatten(0, 1))
        if self.bias is not None:
            self.tensor_gradients[1] += rows.sum(0)
        if input_gradient is not None:
            input_gradient.copy_((rows @ self.weight).view(input_gradient.shape))
