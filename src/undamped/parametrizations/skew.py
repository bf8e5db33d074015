"""Skew-symmetric matrices: A = −Aᵀ, the strict upper triangle of a free matrix less its mirror."""

from __future__ import annotations

import torch
from torch import Tensor

from undamped.parametrizations.matrix_set import MatrixSet


def skew(free: Tensor) -> Tensor:
    """Return U − Uᵀ for the strict upper triangle U of `free`."""
    upper = free.triu(1)
    return upper - upper.mT


def rotation(free: Tensor) -> Tensor:
    """Return exp(U − Uᵀ), a rotation.

    Computed in double precision: in single, ‖WᵀW − I‖ of 128 units is already some 1e-5.
    """
    return torch.matrix_exp(skew(free).double()).to(free.dtype)


class Skew(MatrixSet):
    """A = U − Uᵀ, U strictly upper triangular: n(n − 1)/2 free numbers, purely imaginary spectrum.

    Args:
        size: Rows of the matrix.

    Example:
        >>> bool(torch.equal(skew(torch.ones(2, 2)), torch.tensor([[0.0, 1.0], [-1.0, 0.0]])))
        True
    """

    def forward(self, *free: Tensor) -> Tensor:
        """Map a free matrix to a skew one."""
        return skew(free[0])

    def right_inverse(self, matrix: Tensor) -> Tensor:
        """Keep the upper triangle."""
        if not self.contains(matrix):
            raise self.refuse(matrix, "A = −Aᵀ")
        return matrix.triu(1)

    def distance(self, matrix: Tensor) -> Tensor:
        """‖A + Aᵀ‖."""
        return torch.linalg.matrix_norm(matrix + matrix.mT)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw the upper triangle from a Gaussian."""
        return skew(torch.randn(self.size, self.size, generator=generator, dtype=torch.float64))
