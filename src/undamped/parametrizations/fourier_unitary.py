"""The unitary matrices of the uRNN: W = D₃ R₂ F⁻¹ D₂ Π R₁ F D₁, applied in O(n log n).

D are diagonal phases, R reflections I − 2vvᴴ/‖v‖², F the unitary Fourier transform, Π a fixed
permutation: 7n free numbers (three phases, and two complex vectors). Cells store complex numbers as
pairs of real ones, (real | imaginary).

Reference: M. Arjovsky, A. Shah, Y. Bengio. Unitary evolution recurrent neural networks.
ICML, 2016.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from undamped._base.options import PositiveInt
from undamped.parametrizations.matrix_set import TransformSet


class FourierUnitary(TransformSet):
    """W = D₃ R₂ F⁻¹ D₂ Π R₁ F D₁.

    Args:
        size: Rows of the matrix.
        generator: Generator that draws the permutation.

    Example:
        >>> maps = FourierUnitary(8)
        >>> maps.contains(maps(maps.sample_free()), tolerance=1e-5)
        True
    """

    permutation: Tensor

    def __init__(self, size: PositiveInt, generator: torch.Generator | None = None) -> None:
        super().__init__(size)
        self.register_buffer("permutation", torch.randperm(size, generator=generator))

    def sample_free(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw (7, n): phases in [−π, π), and reflections (real and imaginary) in [−1, 1)."""
        values = 2 * torch.rand(7, self.size, generator=generator) - 1
        values[:3] *= math.pi
        return values

    def transform(self, free: Tensor, rows: Tensor) -> Tensor:
        """Return W applied to each complex row (…, size)."""
        first, second, third = torch.polar(torch.ones_like(free[:3]), free[:3])
        reflect_first, reflect_second = torch.complex(free[3:7:2], free[4:7:2])
        rows = torch.fft.fft(first * rows, norm="ortho")
        rows = _reflect(reflect_first, rows)[..., self.permutation]
        rows = _reflect(reflect_second, torch.fft.ifft(second * rows, norm="ortho"))
        return third * rows


def _reflect(vector: Tensor, rows: Tensor) -> Tensor:
    size = (vector.conj() * vector).real.sum()
    flat = rows.reshape(-1, rows.shape[-1])
    along = (flat @ vector.conj()).unsqueeze(1)
    return torch.addmm(flat, along, (2 / size * vector).unsqueeze(0), alpha=-1).view(rows.shape)


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
