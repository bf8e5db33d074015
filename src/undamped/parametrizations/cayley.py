"""Orthogonal matrices by the scaled Cayley transform: W = (I + A)⁻¹(I − A)D.

A is skew and D = diag(±1) is fixed. Without D, matrices with an eigenvalue −1 are out of reach
and those near them need a huge A; some D brings every orthogonal matrix near.

Reference: K. Helfrich, D. Willmott, Q. Ye. Orthogonal recurrent neural networks with scaled
Cayley transform. ICML, 2018.
"""

from __future__ import annotations

import torch
from torch import Tensor

from undamped._base.options import NonNegativeInt, PositiveInt
from undamped.parametrizations.initial import cayley as cayley_start
from undamped.parametrizations.matrix_set import MatrixSet, isometry_defect
from undamped.parametrizations.skew import skew


def cayley_transform(matrix: Tensor) -> Tensor:
    """(I + A)⁻¹(I − A), its own inverse."""
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    return torch.linalg.solve(eye + matrix, eye - matrix)


class ScaledCayley(MatrixSet):
    """W = (I + A)⁻¹(I − A)D: orthogonal, with `negative` entries −1 at the end of D.

    Args:
        size: Rows of the matrix.
        negative: How many entries of D are −1; 0 is the plain Cayley transform.

    Example:
        >>> maps = ScaledCayley(6, negative=3)
        >>> maps.contains(maps(torch.randn(6, 6)), tolerance=1e-4)
        True
    """

    signs: Tensor

    def __init__(self, size: PositiveInt, negative: NonNegativeInt = 0) -> None:
        super().__init__(size)
        signs = torch.ones(size)
        signs[size - negative :] = -1
        self.register_buffer("signs", signs)

    def forward(self, *free: Tensor) -> Tensor:
        """Map a free matrix to an orthogonal one."""
        # In double precision: a large A makes the system badly conditioned.
        return cayley_transform(skew(free[0]).double()).to(free[0].dtype) * self.signs

    def right_inverse(self, matrix: Tensor) -> Tensor:
        """Solve for A, which exists unless WD has an eigenvalue −1."""
        if not self.contains(matrix, 1e-3):
            raise self.refuse(matrix, "WᵀW = I")
        unscaled = (matrix * self.signs.to(matrix)).double()
        try:
            free = cayley_transform(unscaled).triu(1)
        except RuntimeError:  # a singular system
            raise self.refuse(matrix, "WD without an eigenvalue −1") from None
        if not torch.allclose(cayley_transform(skew(free)), unscaled, atol=1e-4):
            raise self.refuse(matrix, "WD without an eigenvalue −1")
        return free.to(matrix.dtype)

    def distance(self, matrix: Tensor) -> Tensor:
        """‖WᵀW − I‖."""
        return isometry_defect(matrix)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw the paper's block rotations with angles in [0, π/2), then apply D."""
        return cayley_start(self.size, generator=generator, dtype=torch.float64) * self.signs
