"""Complex numbers as pairs of real ones side by side: (real | imaginary)."""

from __future__ import annotations

import torch
from torch import Tensor


def real_form(matrix: Tensor) -> Tensor:
    """Return the real matrix (2m, 2n) that does to (real | imaginary) what `matrix` does."""
    re, im = matrix.real, matrix.imag
    return torch.cat([torch.cat([re, -im], dim=1), torch.cat([im, re], dim=1)])


def to_complex(pair: Tensor) -> Tensor:
    """Read (…, 2n) as n complex numbers."""
    re, im = pair.chunk(2, dim=-1)
    return torch.complex(re, im)


def to_pair(values: Tensor) -> Tensor:
    """Write n complex numbers as (…, 2n)."""
    return torch.cat([values.real, values.imag], dim=-1)
