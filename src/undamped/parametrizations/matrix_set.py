"""Sets of matrices and the maps onto them, by which a matrix stays in its set during training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError
from undamped._base.options import PositiveInt


class MatrixSet(nn.Module, ABC):
    """A set of square matrices and a map onto it, for `torch.nn.utils.parametrize`.

    Args:
        size: Rows of the matrix.
    """

    def __init__(self, size: PositiveInt) -> None:
        super().__init__()
        self.size = size

    @abstractmethod
    def forward(self, *free: Tensor) -> Tensor:
        """Map free parameters to a matrix of the set."""

    @abstractmethod
    def right_inverse(self, matrix: Tensor) -> Any:
        """Return free parameters that map to `matrix`, which must lie in the set."""

    @abstractmethod
    def distance(self, matrix: Tensor) -> Tensor:
        """Return how far a matrix is from the property that defines the set."""

    @abstractmethod
    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw a matrix of the set, in double precision."""

    def contains(self, matrix: Tensor, tolerance: float = 1e-5) -> bool:
        """Return whether a matrix lies in the set, up to `tolerance`."""
        return bool(self.distance(matrix.detach()) <= tolerance)

    def refuse(self, matrix: Tensor, what: str) -> OptionError:
        """Return the error for a matrix that is not in the set."""
        return OptionError(
            f"{type(self).__name__} of size {self.size} needs {what}, got another matrix of shape "
            f"{tuple(matrix.shape)}. Start from `sample()`, or from a matrix for which `contains` "
            "is true."
        )


class IsometrySet(MatrixSet):
    """A set of orthogonal or unitary matrices."""

    def distance(self, matrix: Tensor) -> Tensor:
        return isometry_defect(matrix)

    def check(self, matrix: Tensor) -> None:
        """Raise an error if a matrix is not an isometry."""
        if not self.contains(matrix, 1e-3):
            raise self.refuse(matrix, "WᴴW = I")


class TransformSet(IsometrySet):
    """Isometries that are products of fast transforms, applied to vectors without the matrix."""

    unitary: bool = True
    """Whether the matrices are complex."""

    @abstractmethod
    def sample_free(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw the free numbers."""

    @abstractmethod
    def transform(self, free: Tensor, rows: Tensor) -> Tensor:
        """Return W applied to each row (…, size)."""

    def forward(self, *free: Tensor) -> Tensor:
        """Form the matrix, by applying the transforms to the identity."""
        dtype, device = free[0].dtype, free[0].device
        if self.unitary:
            dtype = torch.promote_types(dtype, torch.complex32)
        return self.transform(free[0], torch.eye(self.size, dtype=dtype, device=device)).mT

    def right_inverse(self, matrix: Tensor) -> Tensor:
        """Refuse: the free numbers reach a thin subset and cannot be computed from a matrix."""
        raise self.refuse(matrix, "free numbers from `sample_free()`, not a matrix")

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        return self.forward(self.sample_free(generator).double()).detach()


def isometry_defect(matrix: Tensor) -> Tensor:
    """Return ‖WᴴW − I‖ (Frobenius): zero exactly for orthogonal and unitary matrices."""
    wide = matrix.to(torch.complex128 if matrix.is_complex() else torch.float64)
    eye = torch.eye(matrix.shape[-1], dtype=wide.dtype, device=wide.device)
    return torch.linalg.matrix_norm(wide.mH @ wide - eye)


def nearest_isometry(matrix: Tensor) -> Tensor:
    """Return the orthogonal or unitary matrix nearest to `matrix`: its polar factor."""
    u, _, vh = torch.linalg.svd(matrix)
    return u @ vh
