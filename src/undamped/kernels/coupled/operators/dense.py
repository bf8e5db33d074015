"""The linear part of `coupled_scan` that is a dense matrix."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from undamped.kernels.coupled.contract import DenseOperator


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
