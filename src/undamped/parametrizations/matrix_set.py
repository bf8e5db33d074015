"""What a set of matrices must offer to keep one inside it during training."""

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
        """Measure how far a matrix is from having the property that makes the set."""

    @abstractmethod
    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw a matrix of the set, in double precision."""

    def contains(self, matrix: Tensor, tolerance: float = 1e-5) -> bool:
        """Say whether a matrix lies in the set, up to `tolerance`."""
        return bool(self.distance(matrix.detach()) <= tolerance)

    def refuse(self, matrix: Tensor, what: str) -> OptionError:
        """Return the error for a matrix that is not in the set."""
        return OptionError(
            f"{type(self).__name__} of size {self.size} needs {what}, got another matrix of shape "
            f"{tuple(matrix.shape)}. Start from `sample()`, or from a matrix for which `contains` "
            "is true."
        )


def isometry_defect(matrix: Tensor) -> Tensor:
    """‖WᴴW − I‖ (Frobenius): zero exactly for orthogonal and unitary matrices."""
    wide = matrix.to(torch.complex128 if matrix.is_complex() else torch.float64)
    eye = torch.eye(matrix.shape[-1], dtype=wide.dtype, device=wide.device)
    return torch.linalg.matrix_norm(wide.mH @ wide - eye)


def nearest_isometry(matrix: Tensor) -> Tensor:
    """Return the orthogonal or unitary matrix nearest to `matrix`: its polar factor."""
    left, _, right = torch.linalg.svd(matrix)
    return left @ right
