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
from torch import Tensor

from undamped.kernels.coupled.contract import StructuredOperator

ROWS = 64
"""Rows whose gradients are taken together: what the caches freeze_finished."""


def kernels() -> Any:
    """Return the compiled part, which brings Numba."""
    from undamped.kernels.coupled.operators import fourier_kernels

    return fourier_kernels


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
        kernels().turn_in(rows.numpy(), self.phases[0], inner.numpy())
        return inner, torch.fft.fft(inner, norm="ortho")

    def _before_second(self, first: Tensor, scratch: Tensor) -> Tensor:
        """F⁻¹ D₂ Π R₁ of what comes before R₁, which is overwritten."""
        kernels().reflect(first.numpy(), self.vectors[0], self.scaled[0])
        kernels().gather_turn(first.numpy(), self.index, self.phases[1], scratch.numpy())
        return torch.fft.ifft(scratch, norm="ortho")

    def apply(self, rows: Tensor, add: Tensor | None, out: Tensor) -> None:
        """Two transforms, and the rest between them."""
        inner, first = self._before_first(rows)
        second = self._before_second(first, inner)
        kernels().reflect(second.numpy(), self.vectors[1], self.scaled[1])
        if add is not None:
            out.copy_(add)
        kernels().turn_out(second.numpy(), self.phases[2], out.numpy(), add is not None)

    def _after_second(self, rows: Tensor) -> Tensor:
        """D₃ᴴ g: the gradient of what comes out of R₂."""
        inner = torch.empty(len(rows), len(self.index), dtype=self.kind, device="cpu")
        kernels().turn_in(rows.numpy(), self.conjugate[2], inner.numpy())
        return inner

    def _after_first(self, outer: Tensor) -> Tensor:
        """Πᵀ D₂ᴴ F R₂ of it, overwritten: the gradient of what comes out of R₁."""
        kernels().reflect(outer.numpy(), self.vectors[1], self.scaled[1])
        middle = torch.fft.fft(outer, norm="ortho")
        kernels().gather_turn(middle.numpy(), self.back, self.conjugate_middle, outer.numpy())
        return outer

    def transpose(self, rows: Tensor, out: Tensor) -> None:
        """The adjoint: for (real | imaginary) rows it is the transpose."""
        inner = self._after_first(self._after_second(rows))
        kernels().reflect(inner.numpy(), self.vectors[0], self.scaled[0])
        last = torch.fft.ifft(inner, norm="ortho")
        kernels().turn_out(last.numpy(), self.conjugate[0], out.numpy(), False)

    def gradients(self, inputs: Tensor, gradients: Tensor) -> tuple[Tensor, ...]:
        """Both ways again, some rows at a time, with the sums that phases and vectors need."""
        size = len(self.index)
        phases = np.zeros((3, size), gradients.numpy().dtype)
        totals, both = np.zeros_like(self.vectors), np.zeros((2, 1), phases.dtype)
        for rows, grad_rows in zip(inputs.split(ROWS), gradients.split(ROWS), strict=True):
            start, first = self._before_first(rows)
            scratch = torch.empty_like(first)
            outer = self._after_second(grad_rows)
            second = self._before_second(first.clone(), scratch)
            reflected = (self.vectors[1], self.scaled[1], phases[2], totals[1], both[1])
            kernels().reflection_gradient(second.numpy(), outer.numpy(), *reflected)
            inner = self._after_first(outer)
            reflected = (self.vectors[0], self.scaled[0], phases[1], totals[0], both[0])
            kernels().reflection_gradient(first.numpy(), inner.numpy(), *reflected)
            kernels().reflect(inner.numpy(), self.vectors[0], self.scaled[0])
            last = torch.fft.ifft(inner, norm="ortho")
            kernels().phase_gradient(start.numpy(), last.numpy(), phases[0])
        phases[1] = phases[1][self.index]
        scale = (2 / self.sizes).numpy()
        vectors = -scale * totals + scale * scale * both * self.vectors
        halves = np.stack([np.real(vectors), np.imag(vectors)], axis=1).reshape(4, size)
        return (torch.from_numpy(np.concatenate([phases, halves])),)
