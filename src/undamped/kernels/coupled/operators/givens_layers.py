"""The linear part of `coupled_scan` for layers of plane rotations: O(layers · size) a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from undamped.kernels.coupled.contract import StructuredOperator


def kernels() -> Any:
    """Return the compiled part, which brings Numba."""
    from undamped.kernels.coupled.operators import givens_layers_kernels

    return givens_layers_kernels


class Layers(StructuredOperator):
    """Layers y_j = d_j h_j + o_j h_partner(j), complex ones as (real | imaginary).

    Args:
        partners: (layers, size), which coordinate stands beside which.
        paired: Whether rows are complex.
    """

    def __init__(self, partners: Tensor, paired: bool) -> None:
        self.partner_table, self.paired = partners, paired

    def describe(self) -> tuple[list[float], list[Tensor]]:
        """Whether rows are complex, and which coordinates stand together."""
        return [float(self.paired)], [self.partner_table]

    @classmethod
    def restore(cls, numbers: Sequence[float], tensors: Sequence[Tensor]) -> Self:
        """Make one from what `describe` returned."""
        return cls(tensors[0], bool(numbers[0]))

    def bind(self, tensors: Sequence[Tensor]) -> None:
        """Take (layers, 4, size), and make the layers of the transposed map."""
        (coefficients,) = tensors
        self.partners = self.partner_table.contiguous().numpy()
        self.backwards = np.ascontiguousarray(self.partners[::-1])
        self.coefficients = coefficients.contiguous().numpy()
        transposed = coefficients.clone()
        for layer, partner in enumerate(self.partners):
            transposed[layer, 2:] = coefficients[layer, 2:, torch.from_numpy(partner)]
        transposed[:, 1::2] *= -1
        self.transposed = transposed.flip(0).contiguous().numpy()

    def apply(self, rows: Tensor, add: Tensor | None, out: Tensor) -> None:
        """Write the product of all layers with each row."""
        kernels().layers(rows.numpy(), self.coefficients, self.partners, self.paired, out.numpy())
        if add is not None:
            out += add

    def transpose(self, rows: Tensor, out: Tensor) -> None:
        """Write the product of the transposed layers, last one first."""
        kernels().layers(rows.numpy(), self.transposed, self.backwards, self.paired, out.numpy())

    def gradients(self, inputs: Tensor, gradients: Tensor) -> tuple[Tensor, ...]:
        """Pass through the layers once for all steps and sequences."""
        result = np.zeros_like(self.coefficients)
        kernels().layer_gradients(
            inputs.numpy(),
            gradients.numpy(),
            self.coefficients,
            self.partners,
            self.paired,
            result,
        )
        return (torch.from_numpy(result),)
