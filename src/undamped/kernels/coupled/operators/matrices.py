"""Linear maps of `coupled_scan` by products: a dense matrix, a thin correction, none at all."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from undamped.kernels.coupled.contract import DenseOperator, StructuredOperator


class Dense(DenseOperator):
    """rows → rows Wᵀ for a matrix W (answer, read)."""

    def bind(self, tensors: Sequence[Tensor]) -> None:
        """Take W, and its transpose in memory: the order that the product reads."""
        self.matrix = tensors[0].contiguous()
        self.transposed = self.matrix.t().contiguous()
        self.width = self.matrix.shape[0]

    def apply(self, rows: Tensor, add: Tensor | None, out: Tensor) -> None:
        """Write rows Wᵀ."""
        assert self.transposed is not None
        if add is None:
            torch.mm(rows, self.transposed, out=out)
        else:
            torch.addmm(add, rows, self.transposed, out=out)

    def gradients(self, inputs: Tensor, gradients: Tensor) -> tuple[Tensor, ...]:
        """One product over all steps and sequences."""
        return (gradients.t() @ inputs,)


class LowRank(StructuredOperator):
    """rows → rows − (rows A) B for A (size, m) and B (m, size): O(m·size) a row."""

    def bind(self, tensors: Sequence[Tensor]) -> None:
        """Take A and B."""
        self.down, self.up = (tensor.contiguous() for tensor in tensors)
        self.down_transposed, self.up_transposed = self.down.t(), self.up.t()

    def apply(self, rows: Tensor, add: Tensor | None, out: Tensor) -> None:
        """Write rows − (rows A) B."""
        torch.addmm(rows, rows @ self.down, self.up, alpha=-1, out=out)
        if add is not None:
            out += add

    def transpose(self, rows: Tensor, out: Tensor) -> None:
        """Write rows − (rows Bᵀ) Aᵀ."""
        torch.addmm(rows, rows @ self.up_transposed, self.down_transposed, alpha=-1, out=out)

    def gradients(self, inputs: Tensor, gradients: Tensor) -> tuple[Tensor, ...]:
        """Three thin products over all steps and sequences."""
        return -inputs.t() @ (gradients @ self.up_transposed), -(inputs @ self.down).t() @ gradients


class Nothing(DenseOperator):
    """The operator of a recurrence that has none."""

    width = 1  # a column that is never read

    def bind(self, tensors: Sequence[Tensor]) -> None:
        """Do nothing: there are no tensors."""

    def apply(self, rows: Tensor, add: Tensor | None, out: Tensor) -> None:
        """Leave the array to the elementwise part."""

    def gradients(self, inputs: Tensor, gradients: Tensor) -> tuple[Tensor, ...]:
        """Return no gradients: there are no tensors."""
        return ()
