"""The linear part of `coupled_scan` for W = D₃ R₂ F⁻¹ D₂ Π R₁ F D₁: O(n log n) a row.

The transforms are torch's; what lies between two of them (phases, reflection, permutation) is one
kernel that goes over a row while it is in the nearest cache. Rows are (real | imaginary)
outside and complex inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numba import njit
from torch import Tensor

from undamped.kernels.coupled.contract import StructuredOperator

ROWS = 64
"""Rows whose gradients are taken together: what the caches freeze_finished."""


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _along(vector: Any, row: Any) -> Any:
    """vᴴ z. The order of the sum is the compiler's, so that it can take several at once."""
    re, im = vector[0].real * 0, vector[0].real * 0
    for j in range(row.shape[0]):
        v, z = vector[j], row[j]
        re += v.real * z.real + v.imag * z.imag
        im += v.real * z.imag - v.imag * z.real
    return complex(re, im)


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def _turn_in(rows: Any, phases: Any, out: Any) -> None:
    # out = D h
    size = phases.shape[0]
    for b in range(rows.shape[0]):
        re, im, result = rows[b, :size], rows[b, size:], out[b]
        for j in range(size):
            d = phases[j]
            result[j] = complex(d.real * re[j] - d.imag * im[j], d.real * im[j] + d.imag * re[j])


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def _reflect(rows: Any, vector: Any, scaled: Any) -> None:
    # rows = R rows, in place; `scaled` is 2v/‖v‖²
    for b in range(rows.shape[0]):
        row = rows[b]
        a = _along(vector, row)
        for j in range(row.shape[0]):
            s, z = scaled[j], row[j]
            row[j] = complex(
                z.real - s.real * a.real + s.imag * a.imag,
                z.imag - s.real * a.imag - s.imag * a.real,
            )


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def _gather_turn(rows: Any, index: Any, phases: Any, out: Any) -> None:
    # out = D Π rows
    for b in range(rows.shape[0]):
        row, result = rows[b], out[b]
        for j in range(row.shape[0]):
            d, z = phases[j], row[index[j]]
            result[j] = complex(
                d.real * z.real - d.imag * z.imag, d.real * z.imag + d.imag * z.real
            )


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def _turn_out(rows: Any, phases: Any, out: Any, adds: bool) -> None:
    # out = D rows, plus what is there
    size = phases.shape[0]
    for b in range(rows.shape[0]):
        row, re, im = rows[b], out[b, :size], out[b, size:]
        if not adds:
            out[b] = 0
        for j in range(size):
            re[j] += phases[j].real * row[j].real - phases[j].imag * row[j].imag
        for j in range(size):
            im[j] += phases[j].real * row[j].imag + phases[j].imag * row[j].real


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def _reflection_gradient(
    rows: Any, given: Any, vector: Any, scaled: Any, phase: Any, total: Any, both: Any
) -> None:
    # R z = z − c v (vᴴz), c = 2/‖v‖², and g the gradient of it. With α = vᴴz and β = gᴴv the
    # gradient of v is −c Σ(ᾱ g + β z) + c² Re(Σ β α) v: `total` and `both` collect the sums.
    # A phase behind R has −Im Σ ḡ (R z).
    for b in range(rows.shape[0]):
        z, g = rows[b], given[b]
        a, beta = _along(vector, z), _along(g, vector)
        both[0] += beta.real * a.real - beta.imag * a.imag
        for j in range(z.shape[0]):
            total[j] += a.conjugate() * g[j] + beta * z[j]
        for j in range(z.shape[0]):
            re = z[j].real - scaled[j].real * a.real + scaled[j].imag * a.imag
            im = z[j].imag - scaled[j].real * a.imag - scaled[j].imag * a.real
            phase[j] += g[j].imag * re - g[j].real * im


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def _phase_gradient(rows: Any, given: Any, phase: Any) -> None:
    # −Im Σ ḡ z
    for b in range(rows.shape[0]):
        z, g = rows[b], given[b]
        for j in range(z.shape[0]):
            phase[j] += g[j].imag * z[j].real - g[j].real * z[j].imag


class Fourier(StructuredOperator):
    """rows → rows Wᵀ for W = D₃ R₂ F⁻¹ D₂ Π R₁ F D₁; tensors: its free constants (7, n).

    Args:
        permutation: Π, (n,): the answer's coordinate j is the coordinate permutation[j].
    """

    def __init__(self, permutation: Tensor) -> None:
        self.permutation = permutation

    def describe(self) -> tuple[list[float], list[Tensor]]:
        """Its permutation."""
        return [], [self.permutation]

    @classmethod
    def restore(cls, numbers: Sequence[float], tensors: Sequence[Tensor]) -> Self:
        """Make one from what `describe` returned."""
        return cls(tensors[0])

    def bind(self, tensors: Sequence[Tensor]) -> None:
        """Take phases and vectors, and make what both directions read."""
        (free,) = tensors
        self.index = self.permutation.numpy()
        self.back = np.argsort(self.index)
        phases = torch.polar(torch.ones_like(free[:3]), free[:3])
        vectors = torch.complex(free[3:7:2], free[4:7:2])
        self.sizes = vectors.abs().square().sum(1, keepdim=True)
        self.vectors = vectors.numpy()
        self.scaled = (2 * vectors / self.sizes).numpy()
        self.phases = phases.numpy()
        self.conjugate = phases.conj().resolve_conj().numpy()
        self.conjugate_middle = np.ascontiguousarray(self.conjugate[1][self.back])
        self.kind = vectors.dtype

    def _before_first(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """D₁ h, and F D₁ h."""
        inner = torch.empty(len(rows), len(self.index), dtype=self.kind, device="cpu")
        _turn_in(rows.numpy(), self.phases[0], inner.numpy())
        return inner, torch.fft.fft(inner, norm="ortho")

    def _before_second(self, first: Tensor, scratch: Tensor) -> Tensor:
        """F⁻¹ D₂ Π R₁ of what comes before R₁, which is overwritten."""
        _reflect(first.numpy(), self.vectors[0], self.scaled[0])
        _gather_turn(first.numpy(), self.index, self.phases[1], scratch.numpy())
        return torch.fft.ifft(scratch, norm="ortho")

    def apply(self, rows: Tensor, add: Tensor | None, out: Tensor) -> None:
        """Two transforms, and the rest between them."""
        inner, first = self._before_first(rows)
        second = self._before_second(first, inner)
        _reflect(second.numpy(), self.vectors[1], self.scaled[1])
        if add is not None:
            out.copy_(add)
        _turn_out(second.numpy(), self.phases[2], out.numpy(), add is not None)

    def _after_second(self, rows: Tensor) -> Tensor:
        """D₃ᴴ g: the gradient of what comes out of R₂."""
        inner = torch.empty(len(rows), len(self.index), dtype=self.kind, device="cpu")
        _turn_in(rows.numpy(), self.conjugate[2], inner.numpy())
        return inner

    def _after_first(self, outer: Tensor) -> Tensor:
        """Πᵀ D₂ᴴ F R₂ of it, overwritten: the gradient of what comes out of R₁."""
        _reflect(outer.numpy(), self.vectors[1], self.scaled[1])
        middle = torch.fft.fft(outer, norm="ortho")
        _gather_turn(middle.numpy(), self.back, self.conjugate_middle, outer.numpy())
        return outer

    def transpose(self, rows: Tensor, out: Tensor) -> None:
        """The adjoint: for (real | imaginary) rows it is the transpose."""
        inner = self._after_first(self._after_second(rows))
        _reflect(inner.numpy(), self.vectors[0], self.scaled[0])
        last = torch.fft.ifft(inner, norm="ortho")
        _turn_out(last.numpy(), self.conjugate[0], out.numpy(), False)

    def gradients(self, inputs: Tensor, gradients: Tensor) -> tuple[Tensor, ...]:
        """Both ways again, some rows at a time, with the sums that phases and vectors need."""
        size = len(self.index)
        phases = np.zeros((3, size), gradients.numpy().dtype)
        totals, both = np.zeros_like(self.vectors), np.zeros((2, 1), phases.dtype)
        for some, given in zip(inputs.split(ROWS), gradients.split(ROWS), strict=True):
            start, first = self._before_first(some)
            scratch = torch.empty_like(first)
            outer = self._after_second(given)
            second = self._before_second(first.clone(), scratch)
            reflected = (self.vectors[1], self.scaled[1], phases[2], totals[1], both[1])
            _reflection_gradient(second.numpy(), outer.numpy(), *reflected)
            inner = self._after_first(outer)
            reflected = (self.vectors[0], self.scaled[0], phases[1], totals[0], both[0])
            _reflection_gradient(first.numpy(), inner.numpy(), *reflected)
            _reflect(inner.numpy(), self.vectors[0], self.scaled[0])
            last = torch.fft.ifft(inner, norm="ortho")
            _phase_gradient(start.numpy(), last.numpy(), phases[0])
        phases[1] = phases[1][self.index]
        scale = (2 / self.sizes).numpy()
        vectors = -scale * totals + scale * scale * both * self.vectors
        halves = np.stack([np.real(vectors), np.imag(vectors)], axis=1).reshape(4, size)
        return (torch.from_numpy(np.concatenate([phases, halves])),)
