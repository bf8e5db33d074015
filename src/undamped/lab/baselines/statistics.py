"""Sufficient statistics of a ridge regression, to which samples can be added without the old ones.

    R = the triangular factor of √weight · (1, F, Y),    RᵀR = the normal equations

The factor has at most as many rows as the table has columns, so that memory is constant. Its first
row holds the means, and the rows below it are the factor of the centred table, from which the
readout follows for any penalty. A factor of the table loses half as many digits as its normal
equations would.
"""

from __future__ import annotations

import torch
from torch import Tensor

from undamped._base.errors import DataError


class RidgeStatistics:
    """The samples of a ridge regression, in constant memory.

    Args:
        factor: (rows, 1 + features + outputs) float64, with the normal equations of all samples.
        features: The number of features.
        samples: The number of samples.

    Example:
        >>> statistics = RidgeStatistics.empty(features=3, outputs=1)
        >>> statistics.add(torch.randn(10, 3), torch.randn(10, 1))
        >>> weight, bias = statistics.solve(penalty=1.0)
        >>> weight.shape
        torch.Size([1, 3])
    """

    def __init__(self, factor: Tensor, features: int, samples: int) -> None:
        self.factor, self.features, self.samples = factor, features, samples

    @classmethod
    def empty(cls, features: int, outputs: int) -> RidgeStatistics:
        """Return the statistics of no samples."""
        return cls(torch.zeros(0, 1 + features + outputs, dtype=torch.float64), features, 0)

    def add(self, features: Tensor, targets: Tensor, weights: Tensor | None = None) -> None:
        """Add samples.

        Args:
            features: (samples, features).
            targets: (samples, outputs).
            weights: (samples,) weights of the samples; 1 by default.
        """
        ones = torch.ones(len(features), 1, dtype=torch.float64)
        rows = torch.cat((ones, features.double(), targets.double()), dim=1)
        if weights is not None:
            rows *= weights.double().sqrt().unsqueeze(1)
        self.samples += len(rows)
        self.factor = torch.cat((self.factor, rows))
        if len(self.factor) > 2 * self.factor.shape[1]:
            self.factor = _triangular(self.factor)

    def solve(self, penalty: float) -> tuple[Tensor, Tensor]:
        """Return weight (outputs, features) and bias (outputs,), as `fit_ridge` does.

        Args:
            penalty: λ.
        """
        if self.samples < 2:
            raise DataError(f"A ridge regression needs at least two samples, got {self.samples}.")
        factor = _triangular(self.factor)
        means = factor[0, 1:] / factor[0, 0]
        x, y = factor[1:, 1 : 1 + self.features], factor[1:, 1 + self.features :]
        left, values, right = torch.linalg.svd(x, full_matrices=False)
        shrink = values / (values.square() + penalty)
        weight = ((left.T @ y) * shrink.unsqueeze(1)).T @ right
        return weight, means[self.features :] - weight @ means[: self.features]


def _triangular(table: Tensor) -> Tensor:
    return torch.linalg.qr(table, mode="r").R
