"""Skew-symmetric matrices, and rotations as their exponentials about a base point that can move.

A = −Aᵀ is the strict upper triangle of a free matrix minus its transpose. W = B exp(A) with B
orthogonal: if B stays the identity, this is the exponential parametrisation; if B moves to W every
K steps and A restarts at zero, it is dynamic trivialisation, which stays where the map is nearly
the identity and gradients are undistorted.

Reference: M. Lezcano-Casado, D. Martínez-Rubio. Cheap orthogonal constraints in neural networks.
ICML, 2019. M. Lezcano-Casado. Trivializations for gradient-based optimization on manifolds.
NeurIPS, 2019.
"""

from __future__ import annotations

import torch
from torch import Tensor

from undamped._base.options import PositiveInt
from undamped.parametrizations.initial import random_orthogonal
from undamped.parametrizations.matrix_set import IsometrySet, MatrixSet, nearest_isometry


def skew(free: Tensor) -> Tensor:
    """Return U − Uᵀ for the strict upper triangle U of `free`."""
    upper = free.triu(1)
    return upper - upper.mT


def rotation(free: Tensor) -> Tensor:
    """Return exp(U − Uᵀ), a rotation.

    It is computed in double precision: in single, ‖WᵀW − I‖ of 128 units is about 1e-5.
    """
    return torch.matrix_exp(skew(free).double()).to(free.dtype)


class Skew(MatrixSet):
    """A = U − Uᵀ, U strictly upper triangular: n(n − 1)/2 free numbers, an imaginary spectrum.

    Args:
        size: Rows of the matrix.

    Example:
        >>> bool(torch.equal(skew(torch.ones(2, 2)), torch.tensor([[0.0, 1.0], [-1.0, 0.0]])))
        True
    """

    def forward(self, *free: Tensor) -> Tensor:
        return skew(free[0])

    def right_inverse(self, matrix: Tensor) -> Tensor:
        if not self.contains(matrix):
            raise self.refuse(matrix, "A = −Aᵀ")
        return matrix.triu(1)

    def distance(self, matrix: Tensor) -> Tensor:
        return torch.linalg.matrix_norm(matrix + matrix.mT)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw the upper triangle from a Gaussian."""
        return skew(torch.randn(self.size, self.size, generator=generator, dtype=torch.float64))


def rotation_logarithm(matrix: Tensor) -> Tensor:
    """Return the skew A of least size with exp(A) = `matrix`, for a rotation without angle π."""
    values, vectors = torch.linalg.eig(matrix.double())
    logarithm = vectors @ torch.diag(1j * values.angle()) @ torch.linalg.inv(vectors)
    real = logarithm.real
    return ((real - real.mT) / 2).to(matrix.dtype)


class Exponential(IsometrySet):
    """W = B exp(A) with A skew: rotations, all of those that share B's determinant.

    Args:
        size: Rows of the matrix.

    Example:
        >>> module = nn.utils.parametrize.register_parametrization(
        ...     nn.Linear(8, 8, bias=False), "weight", Exponential(8), unsafe=True)
    """

    base: Tensor

    def __init__(self, size: PositiveInt) -> None:
        super().__init__(size)
        self.register_buffer("base", torch.eye(size))

    def forward(self, *free: Tensor) -> Tensor:
        """Map a free matrix to B exp(A)."""
        return self.base @ rotation(free[0])

    def right_inverse(self, matrix: Tensor) -> Tensor:
        """Return the logarithm about B = I; where there is none, move B to the matrix."""
        self.check(matrix)
        logarithm = rotation_logarithm(matrix)
        reached = torch.matrix_exp(logarithm.double())
        if torch.linalg.matrix_norm(reached - matrix.double()) < 1e-4:
            self.base = torch.eye(self.size, dtype=matrix.dtype, device=matrix.device)
            return logarithm.triu(1)
        self.base = matrix.detach().clone()
        return torch.zeros_like(matrix)

    @torch.no_grad()
    def rebase(self, free: Tensor, *, project: bool = False) -> None:
        """Move B to W and restart at A = 0, so that W does not change.

        Args:
            free: The free parameter, which is set to zero.
            project: Whether B is also projected to the set, against the drift of many products.
        """
        matrix = self.forward(free)
        self.base.copy_(nearest_isometry(matrix.double()) if project else matrix)
        free.zero_()

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw a rotation uniformly."""
        return random_orthogonal(self.size, generator=generator, dtype=torch.float64)
