"""The linear part of `coupled_scan` that is the identity less a product of two thin matrices."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from undamped.kernels.coupled.contract import StructuredOperator


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
