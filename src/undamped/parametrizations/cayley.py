"""Orthogonal and unitary matrices by the Cayley transform, (I + A)⁻¹(I − A) of a skew A.

`ScaledCayley` maps a free A to W = (I + A)⁻¹(I − A)D with fixed signs D = diag(±1). Without D,
matrices with an eigenvalue −1 are out of reach and those near them need a huge A; some D brings
every orthogonal matrix near.

`Riemannian` makes a multiplicative step along the unitary matrices out of the additive step of any
optimiser, which proposes W + Δ with its own learning rate and normalisation (for the paper
RMSprop). With −Δ as a gradient G the step is

    A = G Wᴴ − W Gᴴ,   W ← (I + A/2)⁻¹ (I − A/2) W.

To first order both steps agree along the set. Rounding accumulates over many products, so W is
projected to the set now and then, by its polar factor.

Reference: K. Helfrich, D. Willmott, Q. Ye. Orthogonal recurrent neural networks with scaled
Cayley transform. ICML, 2018. S. Wisdom, T. Powers, J. Hershey, J. Le Roux, L. Atlas. Full-capacity
unitary recurrent neural networks. NeurIPS, 2016.
"""

from __future__ import annotations

import torch
from torch import Tensor

from undamped._base.options import NonNegativeInt, PositiveInt
from undamped.parametrizations.exponential import skew
from undamped.parametrizations.initial import orthogonal_start, random_orthogonal
from undamped.parametrizations.matrix_set import IsometrySet, nearest_isometry


def cayley_transform(matrix: Tensor) -> Tensor:
    """Return (I + A)⁻¹(I − A), a map that is its own inverse."""
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    return torch.linalg.solve(eye + matrix, eye - matrix)


class ScaledCayley(IsometrySet):
    """W = (I + A)⁻¹(I − A)D: orthogonal, with `negative` entries −1 at the end of D.

    Args:
        size: Rows of the matrix.
        negative: Number of entries of D that are −1; 0 is the plain Cayley transform.

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
        # In double precision: a large A makes the system badly conditioned.
        return cayley_transform(skew(free[0]).double()).to(free[0].dtype) * self.signs

    def right_inverse(self, matrix: Tensor) -> Tensor:
        """Solve for A, which exists unless WD has an eigenvalue −1."""
        self.check(matrix)
        unscaled = (matrix * self.signs.to(matrix)).double()
        try:
            free = cayley_transform(unscaled).triu(1)
        except RuntimeError:  # a singular system
            raise self.refuse(matrix, "WD without an eigenvalue −1") from None
        if not torch.allclose(cayley_transform(skew(free)), unscaled, atol=1e-4):
            raise self.refuse(matrix, "WD without an eigenvalue −1")
        return free.to(matrix.dtype)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw the paper's block rotations with angles in [0, π/2), then apply D."""
        matrix = orthogonal_start("cayley", self.size, generator=generator, dtype=torch.float64)
        return matrix * self.signs


def riemannian_step(previous: Tensor, proposed: Tensor) -> Tensor:
    """Return where the optimiser's step from `previous` to `proposed` leads along the set."""
    descent = previous - proposed
    skew = descent @ previous.mH - previous @ descent.mH
    return cayley_transform(skew / 2) @ previous


class Riemannian(IsometrySet):
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
        self.check(matrix)
        return torch.stack([matrix.real, matrix.imag])

    @torch.no_grad()
    def settle(self, free: Tensor, previous: Tensor, *, project: bool = False) -> None:
        """Replace the optimiser's step from `previous` to `free` by the multiplicative one.

        Args:
            free: The parameter after the optimiser's step; overwritten.
            previous: The parameter before it.
            project: Whether the result is projected to the set, against rounding.
        """
        if not free.isfinite().all():
            return  # so that the loss shows it
        moved = riemannian_step(self.forward(previous.double()), self.forward(free.double()))
        if project:
            moved = nearest_isometry(moved)
        free.copy_(torch.stack([moved.real, moved.imag]))

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw D₁QD₂ with a uniform rotation Q and uniform phases."""
        rotation = random_orthogonal(self.size, generator=generator, dtype=torch.float64)
        phases = torch.rand(2, self.size, generator=generator, dtype=torch.float64)
        first, second = torch.polar(torch.ones_like(phases), 2 * torch.pi * phases)
        return first.unsqueeze(1) * rotation * second
