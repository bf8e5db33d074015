"""A multiplicative step along the unitary matrices, made out of any optimiser's additive one.

An optimiser proposes W + Δ in flat space, with its own learning rate and normalisation (for the
paper RMSprop). Read as a gradient, G = −Δ, the step that stays on the set is

    A = G Wᴴ − W Gᴴ,   W ← (I + A/2)⁻¹ (I − A/2) W,

a Cayley transform of a skew-Hermitian matrix. To first order both steps agree along the set.
Rounding accumulates over many products, so now and then W is put back by its polar factor.

Reference: S. Wisdom, T. Powers, J. Hershey, J. Le Roux, L. Atlas. Full-capacity unitary recurrent
neural networks. NeurIPS, 2016.
"""

from __future__ import annotations

import torch
from torch import Tensor

from undamped.parametrizations.cayley import cayley_transform
from undamped.parametrizations.initial import random_orthogonal
from undamped.parametrizations.matrix_set import MatrixSet, isometry_defect, nearest_isometry


def riemannian_step(previous: Tensor, proposed: Tensor) -> Tensor:
    """Return where the optimiser's step from `previous` to `proposed` leads along the set."""
    descent = previous - proposed
    skew = descent @ previous.mH - previous @ descent.mH
    return cayley_transform(skew / 2) @ previous


class Riemannian(MatrixSet):
    """Unitary matrices that are their own parameter, as real and imaginary part (2, n, n).

    The optimiser may move the parameter anywhere; `settle` then replaces its step by the one
    along the set.

    Args:
        size: Rows of the matrix.

    Example:
        >>> maps = Riemannian(4)
        >>> maps.contains(maps(maps.right_inverse(maps.sample())))
        True
    """

    def forward(self, *free: Tensor) -> Tensor:
        """Read the parameter as a complex matrix."""
        return torch.complex(free[0][0], free[0][1])

    def right_inverse(self, matrix: Tensor) -> Tensor:
        """Write a complex matrix as real and imaginary part."""
        if not self.contains(matrix, 1e-3):
            raise self.refuse(matrix, "WᴴW = I")
        return torch.stack([matrix.real, matrix.imag])

    @torch.no_grad()
    def settle(self, free: Tensor, previous: Tensor, *, project: bool = False) -> None:
        """Replace the optimiser's step from `previous` to `free` by the multiplicative one.

        Args:
            free: The parameter after the optimiser's step; overwritten.
            previous: The parameter before it.
            project: Whether to put the result back on the set against rounding.
        """
        if not free.isfinite().all():
            return  # for whoever watches the loss to see
        moved = riemannian_step(self.forward(previous.double()), self.forward(free.double()))
        if project:
            moved = nearest_isometry(moved)
        free.copy_(torch.stack([moved.real, moved.imag]))

    def distance(self, matrix: Tensor) -> Tensor:
        """‖WᴴW − I‖."""
        return isometry_defect(matrix)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw D₁QD₂ with a uniform rotation Q and uniform phases."""
        turn = random_orthogonal(self.size, generator=generator, dtype=torch.float64)
        phases = torch.rand(2, self.size, generator=generator, dtype=torch.float64)
        left, right = torch.polar(torch.ones_like(phases), 2 * torch.pi * phases)
        return left.unsqueeze(1) * turn * right
