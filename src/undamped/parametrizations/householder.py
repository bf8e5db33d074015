"""Orthogonal matrices as products of m Householder reflections, applied in O(mn).

W = H₁ … H_m, H_i = I − 2 v_i v_iᵀ/‖v_i‖², where v_i starts with i − 1 zeros, so that m = n
reflections reach all matrices of one determinant, up to the signs S = diag(±1). The product is
never needed as a matrix: W = I − V T⁻¹ Vᵀ with T the strict upper triangle of VᵀV plus half its
diagonal (multiply two reflections out and compare; induction does the rest).

Reference: Z. Mhammedi, A. Hellicar, A. Rahman, J. Bailey. Efficient orthogonal parametrisation
of recurrent neural networks using Householder reflections. ICML, 2017.
"""

from __future__ import annotations

import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped._base.options import PositiveInt
from undamped.parametrizations.matrix_set import IsometrySet


def reflection_factors(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Return V (n, m), of unit columns, and T⁻¹Vᵀ (m, n): W = I − V (T⁻¹Vᵀ).

    Args:
        vectors: (n, m) free; what lies above the diagonal is not used.
    """
    lower = vectors.tril()
    unit = lower / torch.linalg.vector_norm(lower, dim=0, keepdim=True)
    gram = unit.mT @ unit
    triangle = gram.triu(1) + 0.5 * torch.eye(gram.shape[0], dtype=gram.dtype, device=gram.device)
    return unit, torch.linalg.solve_triangular(triangle, unit.mT, upper=True)


class Householder(IsometrySet):
    """W = H₁ … H_m S: orthogonal, m reflections, fixed signs S (all 1 unless read from a matrix).

    Args:
        size: Rows of the matrix.
        reflections: The number m.

    Example:
        >>> maps = Householder(6, reflections=2)
        >>> maps.contains(maps(torch.randn(6, 2)), tolerance=1e-4)
        True
    """

    signs: Tensor

    def __init__(self, size: PositiveInt, reflections: PositiveInt) -> None:
        super().__init__(size)
        if reflections > size:
            raise OptionError(
                f"reflections must be at most {size}, the size of the matrix, got {reflections}."
            )
        self.reflections = reflections
        self.register_buffer("signs", torch.ones(size))

    def forward(self, *free: Tensor) -> Tensor:
        """Multiply the reflections out."""
        unit, rest = reflection_factors(free[0])
        eye = torch.eye(self.size, dtype=unit.dtype, device=unit.device)
        return (eye - unit @ rest) * self.signs

    def right_inverse(self, matrix: Tensor) -> Tensor:
        """Reflect one column after the other onto its axis; signs that remain become S."""
        rest = matrix.detach().double().clone()
        vectors = torch.zeros(self.size, self.reflections, dtype=rest.dtype)
        for i in range(self.reflections):
            axis = torch.eye(self.size, dtype=rest.dtype)[i]
            vector = torch.where(torch.arange(self.size) < i, 0.0, rest[:, i] - axis)
            length = torch.linalg.vector_norm(vector)
            # A column that lies on its axis changes its sign, for which S compensates.
            vector = vector / length if length > 1e-7 else axis
            vectors[:, i] = vector
            rest = rest - 2 * torch.outer(vector, vector @ rest)
        signs = torch.diagonal(rest).sign()
        if not self.contains(matrix, 1e-3) or not torch.allclose(
            rest, torch.diag(signs), atol=1e-4
        ):
            raise self.refuse(matrix, f"a product of {self.reflections} reflections and signs")
        self.signs = signs.to(matrix)
        return vectors.to(matrix.dtype)

    def sample_vectors(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw the vectors (n, m) as the paper does, uniform in [−1, 1] and then of length one."""
        shape = (self.size, self.reflections)
        values = (2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1).tril()
        return values / torch.linalg.vector_norm(values, dim=0, keepdim=True)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw the vectors and multiply out."""
        unit, rest = reflection_factors(self.sample_vectors(generator))
        return torch.eye(self.size, dtype=unit.dtype) - unit @ rest
