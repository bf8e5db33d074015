"""Linear parts of `coupled_scan`: a dense matrix, and the identity less a product of two."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from undamped.kernels.coupled.contract import InLoops, Structured


class Dense(InLoops):
    """rows → rows Wᵀ for a matrix W (answer, read)."""

    def bind(self, tensors: Sequence[Tensor]) -> None:
        """Take W, and its transpose in memory: the order that the product reads."""
        self.matrix = tensors[0].contiguous()
        self.turned = self.matrix.t().contiguous()
        self.width = self.matrix.shape[0]

    def apply(self, rows: Tensor, add: Tensor | None, out: Tensor) -> None:
        """Write rows Wᵀ."""
        assert self.turned is not None
        if add is None:
            torch.mm(rows, self.turned, out=out)
        else:
            torch.addmm(add, rows, self.turned, out=out)

    def gradients(self, inputs: Tensor, gradients: Tensor) -> tuple[Tensor, ...]:
        """One product over all steps and sequences."""
        return (gradients.t() @ inputs,)


class LowRank(Structured):
    """rows → rows − (rows A) B for A (size, m) and B (m, size): O(m·size) a row."""

    def bind(self, tensors: Sequence[Tensor]) -> None:
        """Take A and B."""
        self.down, self.up = (tensor.contiguous() for tensor in tensors)
        self.down_turned, self.up_turned = self.down.t(), self.up.t()

    def apply(self, rows: Tensor, add: Tensor | None, out: Tensor) -> None:
        """Write rows − (rows A) B."""
        torch.addmm(rows, rows @ self.down, self.up, alpha=-1, out=out)
        if add is not None:
            out += add

    def transpose(self, rows: Tensor, out: Tensor) -> None:
        """Write rows − (rows Bᵀ) Aᵀ."""
        torch.addmm(rows, rows @ self.up_turned, self.down_turned, alpha=-1, out=out)

    def gradients(self, inputs: Tensor, gradients: Tensor) -> tuple[Tensor, ...]:
        """Three thin products over all steps and sequences."""
        return -inputs.t() @ (gradients @ self.up_turned), -(inputs @ self.down).t() @ gradients
