"""Rotations as exponentials of skew matrices, about a base point that can move.

W = B exp(A), A skew, B orthogonal. With B = I for good this is the exponential
parametrisation; when B moves to W every K steps and A starts again at zero, it is dynamic
trivialisation, which stays where the map is nearly the identity and gradients are undistorted.

Reference: M. Lezcano-Casado, D. Martínez-Rubio. Cheap orthogonal constraints in neural networks.
ICML, 2019. M. Lezcano-Casado. Trivializations for gradient-based optimization on manifolds.
NeurIPS, 2019.
"""

from __future__ import annotations

import torch
from torch import Tensor

from undamped._base.options import PositiveInt
from undamped.parametrizations.initial import random_orthogonal
from undamped.parametrizations.matrix_set import MatrixSet, isometry_defect, nearest_isometry
from undamped.parametrizations.skew import rotation


def rotation_logarithm(matrix: Tensor) -> Tensor:
    """Return the skew A of least size with exp(A) = `matrix`, for a rotation without angle π."""
    values, vectors = torch.linalg.eig(matrix.double())
    logarithm = vectors @ torch.diag(1j * values.angle()) @ torch.linalg.inv(vectors)
    real = logarithm.real
    return ((real - real.mT) / 2).to(matrix.dtype)


class Exponential(MatrixSet):
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
        if not self.contains(matrix, 1e-3):
            raise self.refuse(matrix, "WᵀW = I")
        logarithm = rotation_logarithm(matrix)
        reached = torch.matrix_exp(logarithm.double())
        if torch.linalg.matrix_norm(reached - matrix.double()) < 1e-4:
            self.base = torch.eye(self.size, dtype=matrix.dtype, device=matrix.device)
            return logarithm.triu(1)
        self.base = matrix.detach().clone()
        return torch.zeros_like(matrix)

    @torch.no_grad()
    def rebase(self, free: Tensor, *, project: bool = False) -> None:
        """Move B to W and start again at A = 0; W stays as it is.

        Args:
            free: The free parameter, which is set to zero.
            project: Whether B is also put back on the set, against the drift of many products.
        """
        matrix = self.forward(free)
        self.base.copy_(nearest_isometry(matrix.double()) if project else matrix)
        free.zero_()

    def distance(self, matrix: Tensor) -> Tensor:
        """‖WᵀW − I‖."""
        return isometry_defect(matrix)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw a rotation uniformly."""
        return random_orthogonal(self.size, generator=generator, dtype=torch.float64)
