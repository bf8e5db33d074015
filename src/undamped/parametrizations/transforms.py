"""Unitary and orthogonal matrices as products of fast transforms, applied without the matrix.

`Givens`: W = D F_L … F_1, layers of plane rotations, in O(layers · n). A layer rotates disjoint
pairs of coordinates,

    y_p = cos α h_p − e^{iφ} sin α h_q,   y_q = sin α h_p + e^{iφ} cos α h_q,

and D = diag(e^{iω}). "tunable" layers pair neighbours, (0,1)(2,3)… and (1,2)(3,4)… in turn;
"fft" layers pair coordinates 1, 2, 4, … apart, so that log₂ n layers mix everything. The real
variant has φ = 0 and no D.

`FourierUnitary`, the matrices of the uRNN: W = D₃ R₂ F⁻¹ D₂ Π R₁ F D₁, in O(n log n). D are
diagonal phases, R reflections I − 2vvᴴ/‖v‖², F the unitary Fourier transform, Π a fixed
permutation: 7n free numbers (three phases, and two complex vectors). Cells store complex numbers as
pairs of real ones, (real | imaginary).

Reference: L. Jing, Y. Shen, T. Dubček, J. Peurifoy, S. Skirlo, Y. LeCun, M. Tegmark, M. Soljačić.
Tunable efficient unitary neural networks (EUNN) and their application to RNNs. ICML, 2017.
M. Arjovsky, A. Shah, Y. Bengio. Unitary evolution recurrent neural networks. ICML, 2016.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped._base.options import PositiveInt
from undamped.parametrizations.matrix_set import TransformSet

GivensStyle = Literal["tunable", "fft"]


class Givens(TransformSet):
    """W = D F_L … F_1, layers of plane rotations.

    Args:
        size: Rows of the matrix; a power of two for the style "fft".
        layers: Number of layers; for "fft" at most log₂ of the size, which is the default there.
        style: Which coordinates are paired.
        unitary: Whether rotations and D have phases; if not, the matrix is real.

    Example:
        >>> maps = Givens(8, layers=2)
        >>> maps.contains(maps(maps.sample_free()), tolerance=1e-5)
        True
    """

    partner: Tensor
    slot: Tensor
    second: Tensor

    def __init__(
        self,
        size: PositiveInt,
        layers: PositiveInt | None = None,
        style: GivensStyle = "tunable",
        *,
        unitary: bool = True,
    ) -> None:
        super().__init__(size)
        self.layers = _layer_count(size, layers, style)
        self.style, self.unitary = style, unitary
        pairs = [_pairs(size, layer, style) for layer in range(self.layers)]
        partner = torch.arange(size).repeat(self.layers, 1)
        # A coordinate without a partner has the last slot, a rotation by the angle zero.
        self.angles = sum(len(first) for first in pairs)
        slot = torch.full((self.layers, size), self.angles)
        second = torch.zeros(self.layers, size, dtype=torch.bool)
        count = 0
        for layer, first in enumerate(pairs):
            last = first + (1 if style == "tunable" else 2**layer)
            partner[layer, first], partner[layer, last] = last, first
            slot[layer, first] = slot[layer, last] = torch.arange(count, count + len(first))
            second[layer, last] = True
            count += len(first)
        self.register_buffer("partner", partner, persistent=False)
        self.register_buffer("slot", slot, persistent=False)
        self.register_buffer("second", second, persistent=False)

    @property
    def free_size(self) -> int:
        """Number of free numbers: angles, and for unitary matrices phases and D."""
        return 2 * self.angles + self.size if self.unitary else self.angles

    def sample_free(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw all angles uniformly from [−π, π)."""
        return math.pi * (2 * torch.rand(self.free_size, generator=generator) - 1)

    def coefficients(self, free: Tensor) -> Tensor:
        """Return (layers, 4, size): real and imaginary parts of d and o in y = d h + o h[partner].

        D is one more layer, without partners.
        """
        padded = torch.nn.functional.pad(free[: self.angles], (0, 1))[self.slot]
        cosine, sine = torch.cos(padded), torch.sin(padded)
        zero = torch.zeros_like(cosine)
        if not self.unitary:
            off = torch.where(self.second, sine, -sine)
            return torch.stack([cosine, zero, off, zero], dim=1)
        phases = torch.nn.functional.pad(free[self.angles : 2 * self.angles], (0, 1))[self.slot]
        re, im = torch.cos(phases), torch.sin(phases)
        on_re = torch.where(self.second, re * cosine, cosine)
        on_im = torch.where(self.second, im * cosine, zero)
        off_re = torch.where(self.second, sine, -re * sine)
        off_im = torch.where(self.second, zero, -im * sine)
        rotations = torch.stack([on_re, on_im, off_re, off_im], dim=1)
        last = free[2 * self.angles :]
        zeros = torch.zeros_like(last)
        diagonal = torch.stack([torch.cos(last), torch.sin(last), zeros, zeros])
        return torch.cat([rotations, diagonal.unsqueeze(0)])

    def partners(self) -> Tensor:
        """Return (layers, size), each coordinate's partner, as `coefficients` counts layers."""
        if not self.unitary:
            return self.partner
        identity = torch.arange(self.size, device=self.partner.device).unsqueeze(0)
        return torch.cat([self.partner, identity])

    def transform(self, free: Tensor, rows: Tensor) -> Tensor:
        for (on_re, on_im, off_re, off_im), partner in zip(
            self.coefficients(free), self.partners(), strict=True
        ):
            on, off = on_re, off_re
            if self.unitary:
                on, off = torch.complex(on_re, on_im), torch.complex(off_re, off_im)
            rows = on * rows + off * rows[..., partner]
        return rows


def _pairs(size: int, layer: int, style: GivensStyle) -> Tensor:
    """Return the first coordinate of each pair of a layer."""
    every = torch.arange(size)
    if style == "tunable":
        return every[layer % 2 : size - 1 : 2]
    return every[(every // 2**layer) % 2 == 0]


def _layer_count(size: int, layers: int | None, style: GivensStyle) -> int:
    if style == "tunable":
        return 2 if layers is None else layers
    most = size.bit_length() - 1
    if size != 2**most or size < 2:
        raise OptionError(
            f"fft-style rotations need a size that is a power of two, at least 2, got {size}. "
            "Use another size, or style='tunable'."
        )
    if layers is not None and layers > most:
        raise OptionError(
            f"fft-style rotations of size {size} have at most {most} layers, got {layers}."
        )
    return layers or most


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
