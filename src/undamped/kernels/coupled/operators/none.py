"""The operator of a recurrence that multiplies nothing."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from undamped.kernels.coupled.contract import DenseOperator


class Nothing(DenseOperator):
    """The operator of a recurrence that has none."""

    width = 1  # a column that nobody reads

    def bind(self, tensors: Sequence[Tensor]) -> None:
        """There is nothing to take."""

    def apply(self, rows: Tensor, add: Tensor | None, out: Tensor) -> None:
        """Leave the array to the elementwise part."""

    def gradients(self, inputs: Tensor, gradients: Tensor) -> tuple[Tensor, ...]:
        """There are no tensors."""
        return ()
