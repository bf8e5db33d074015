"""Matrices whose singular values stay in [1 − m, 1 + m], and a penalty with the same purpose.

W = U diag(s) Vᵀ with U and V rotations and s = 1 + 2m(σ̂(p) − ½).

Reference: E. Vorontsov, C. Trabelsi, S. Kadoury, C. Pal. On orthogonality and learning recurrent
networks with long term dependencies. ICML, 2017.
"""

from __future__ import annotations

import torch
from torch import Tensor

from undamped._base.options import Fraction, PositiveInt
from undamped.parametrizations.exponential import rotation
from undamped.parametrizations.initial import random_orthogonal
from undamped.parametrizations.matrix_set import MatrixSet


def orthogonality_penalty(matrix: Tensor) -> Tensor:
    """Return ‖WᵀW − I‖² (Frobenius: every singular value is penalised unless it is one)."""
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    return (matrix.mT @ matrix - eye).square().sum()


class SingularBand(MatrixSet):
    """W = U diag(s) Vᵀ, s in [1 − m, 1 + m]; U and V are exponentials about base points.

    Args:
        size: Rows of the matrix.
        margin: The number m; 0 keeps the matrix orthogonal.

    Example:
        >>> maps = SingularBand(6, margin=0.1)
        >>> maps.contains(maps(torch.randn(6, 6), torch.randn(6, 6), torch.randn(6)), 1e-4)
        True
    """

    left: Tensor
    right: Tensor

    def __init__(self, size: PositiveInt, margin: Fraction = 0.01) -> None:
        super().__init__(size)
        self.margin = margin
        self.register_buffer("left", torch.eye(size))
        self.register_buffer("right", torch.eye(size))

    def forward(self, *free: Tensor) -> Tensor:
        """Map two free matrices and a free vector to U diag(s) Vᵀ."""
        free_u, free_v, logits = free
        values = 1 + 2 * self.margin * (torch.sigmoid(logits) - 0.5)
        u = self.left @ rotation(free_u)
        v = self.right @ rotation(free_v)
        return (u * values) @ v.mT

    def right_inverse(self, matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Use the singular value decomposition as the base point."""
        u, values, vh = torch.linalg.svd(matrix)
        if bool((values - 1).abs().max() > self.margin + 1e-4):
            raise self.refuse(matrix, f"singular values in [1 − {self.margin}, 1 + {self.margin}]")
        self.left, self.right = u.contiguous(), vh.mT.contiguous()
        fraction = (values - 1) / (2 * self.margin) + 0.5 if self.margin else 0.5 + 0 * values
        logits = torch.logit(fraction.clamp(1e-6, 1 - 1e-6))
        zeros = torch.zeros(matrix.shape, dtype=matrix.dtype, device=matrix.device)
        return zeros, zeros.clone(), logits

    def distance(self, matrix: Tensor) -> Tensor:
        """Return how far the worst singular value lies outside the band."""
        values = torch.linalg.svdvals(matrix.double())
        return ((values - 1).abs() - self.margin).clamp(min=0).max()

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw two rotations, and singular values uniformly from the band."""
        u, v = (
            random_orthogonal(self.size, generator=generator, dtype=torch.float64) for _ in range(2)
        )
        fraction = torch.rand(self.size, generator=generator, dtype=torch.float64)
        return (u * (1 + self.margin * (2 * fraction - 1))) @ v.mT
