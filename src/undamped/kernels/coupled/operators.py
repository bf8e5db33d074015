"""The linear maps of `coupled_scan`: dense and low-rank matrices, transforms, plane rotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from undamped.kernels.coupled.contract import DenseOperator, StructuredOperator

ROWS = 64
"""Rows whose gradients `Fourier` computes together: as many as fit in the caches."""


def kernels() -> Any:
    """Import the compiled part, and with it Numba."""
    from undamped.kernels.coupled import operator_kernels

    return operator_kernels


class Dense(DenseOperator):
    """rows → rows Wᵀ for a matrix W (answer, read)."""

    def bind(self, tensors: Sequence[Tensor]) -> None:
        """Store W, and a contiguous copy of its transpose, which the product reads."""
        self.matrix = tensors[0].contiguous()
        self.transposed = self.matrix.t().contiguous()
        self.width = self.matrix.shape[0]

    def apply(self, rows: Tensor, add: Tensor | None, out: Tensor) -> None:
        assert self.transposed is not None
        if add is None:
            torch.mm(rows, self.transposed, out=out)
        else:
            torch.addmm(add, rows, self.transposed, out=out)

    def gradients(self, inputs: Tensor, gradients: Tensor) -> tuple[Tensor, ...]:
        return (gradients.t() @ inputs,)


class LowRank(StructuredOperator):
    """rows → rows − (rows A) B for A (size, m) and B (m, size): O(m·size) a row."""

    def bind(self, tensors: Sequence[Tensor]) -> None:
        self.down, self.up = (tensor.contiguous() for tensor in tensors)
        self.down_transposed, self.up_transposed = self.down.t(), self.up.t()

    def apply(self, rows: Tensor, add: Tensor | None, out: Tensor) -> None:
        torch.addmm(rows, rows @ self.down, self.up, alpha=-1, out=out)
        if add is not None:
            out += add

    def transpose(self, rows: Tensor, out: Tensor) -> None:
        torch.addmm(rows, rows @ self.up_transposed, self.down_transposed, alpha=-1, out=out)

    def gradients(self, inputs: Tensor, gradients: Tensor) -> tuple[Tensor, ...]:
        return -inputs.t() @ (gradients @ self.up_transposed), -(inputs @ self.down).t() @ gradients


class Nothing(DenseOperator):
    """The operator of a recurrence without a product."""

    width = 1  # a column that is never read

    def bind(self, tensors: Sequence[Tensor]) -> None:
        """Do nothing: there are no tensors."""

    def apply(self, rows: Tensor, add: Tensor | None, out: Tensor) -> None:
        """Do nothing: the elementwise part fills the array."""

    def gradients(self, inputs: Tensor, gradients: Tensor) -> tuple[Tensor, ...]:
        return ()


class Fourier(StructuredOperator):
    """rows → rows Wᵀ for W = D₃ R₂ F⁻¹ D₂ Π R₁ F D₁, in O(n log n); tensors: its numbers (7, n).

    The transforms are torch's; phases, reflection and permutation between two of them are one
    kernel over rows in the first-level cache. Rows are (real | imaginary) outside and complex
    inside.

    Args:
        permutation: Π, (n,): the answer's coordinate j is the coordinate permutation[j].
    """

    def __init__(self, permutation: Tensor) -> None:
        self.permutation = permutation

    def describe(self) -> tuple[list[float], list[Tensor]]:
        return [], [self.permutation]

    @classmethod
    def restore(cls, numbers: Sequence[float], tensors: Sequence[Tensor]) -> Self:
        return cls(tensors[0])

    def bind(self, tensors: Sequence[Tensor]) -> None:
        """Store phases and vectors in the forms that both directions read."""
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
        kernels().apply_first_phase(rows.numpy(), self.phases[0], inner.numpy())
        return inner, torch.fft.fft(inner, norm="ortho")

    def _before_second(self, first: Tensor, scratch: Tensor) -> Tensor:
        """F⁻¹ D₂ Π R₁ of the argument of R₁, which is overwritten."""
        kernels().reflect(first.numpy(), self.vectors[0], self.scaled[0])
        kernels().apply_permuted_phase(first.numpy(), self.index, self.phases[1], scratch.numpy())
        return torch.fft.ifft(scratch, norm="ortho")

    def apply(self, rows: Tensor, add: Tensor | None, out: Tensor) -> None:
        """Two transforms, and the rest between them."""
        inner, first = self._before_first(rows)
        second = self._before_second(first, inner)
        kernels().reflect(second.numpy(), self.vectors[1], self.scaled[1])
        if add is not None:
            out.copy_(add)
        kernels().apply_last_phase(second.numpy(), self.phases[2], out.numpy(), add is not None)

    def _after_second(self, rows: Tensor) -> Tensor:
        """D₃ᴴ g: the gradient of the result of R₂."""
        inner = torch.empty(len(rows), len(self.index), dtype=self.kind, device="cpu")
        kernels().apply_first_phase(rows.numpy(), self.conjugate[2], inner.numpy())
        return inner

    def _after_first(self, outer: Tensor) -> Tensor:
        """Πᵀ D₂ᴴ F R₂ of it, overwritten: the gradient of the result of R₁."""
        kernels().reflect(outer.numpy(), self.vectors[1], self.scaled[1])
        middle = torch.fft.fft(outer, norm="ortho")
        kernels().apply_permuted_phase(
            middle.numpy(), self.back, self.conjugate_middle, outer.numpy()
        )
        return outer

    def transpose(self, rows: Tensor, out: Tensor) -> None:
        """The adjoint: for (real | imaginary) rows it is the transpose."""
        inner = self._after_first(self._after_second(rows))
        kernels().reflect(inner.numpy(), self.vectors[0], self.scaled[0])
        last = torch.fft.ifft(inner, norm="ortho")
        kernels().apply_last_phase(last.numpy(), self.conjugate[0], out.numpy(), False)

    def gradients(self, inputs: Tensor, gradients: Tensor) -> tuple[Tensor, ...]:
        """Recompute both directions for blocks of rows, with the sums for phases and vectors."""
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


class Layers(StructuredOperator):
    """Layers y_j = d_j h_j + o_j h_partner(j), complex ones as (real | imaginary).

    A row costs O(layers · size).

    Args:
        partners: (layers, size), the partner of each coordinate.
        paired: Whether rows are complex.
    """

    def __init__(self, partners: Tensor, paired: bool) -> None:
        self.partner_table, self.paired = partners, paired

    def describe(self) -> tuple[list[float], list[Tensor]]:
        """Return whether rows are complex, and the partners."""
        return [float(self.paired)], [self.partner_table]

    @classmethod
    def restore(cls, numbers: Sequence[float], tensors: Sequence[Tensor]) -> Self:
        return cls(tensors[0], bool(numbers[0]))

    def bind(self, tensors: Sequence[Tensor]) -> None:
        """Store (layers, 4, size), and compute the layers of the transposed map."""
        (coefficients,) = tensors
        self.partners = self.partner_table.contiguous().numpy()
        self.backwards = np.ascontiguousarray(self.partners[::-1])
        self.coefficients = coefficients.contiguous().numpy()
        transposed = coefficients.clone()
        for layer, partner in enumerate(self.partners):
            transposed[layer, 2:] = coefficients[layer, 2:, torch.from_numpy(partner)]
        transposed[:, 1::2] *= -1
        self.transposed = transposed.flip(0).contiguous().numpy()

    def apply(self, rows: Tensor, add: Tensor | None, out: Tensor) -> None:
        """Write the product of all layers with each row."""
        kernels().layers(rows.numpy(), self.coefficients, self.partners, self.paired, out.numpy())
        if add is not None:
            out += add

    def transpose(self, rows: Tensor, out: Tensor) -> None:
        """Write the product of the transposed layers, last one first."""
        kernels().layers(rows.numpy(), self.transposed, self.backwards, self.paired, out.numpy())

    def gradients(self, inputs: Tensor, gradients: Tensor) -> tuple[Tensor, ...]:
        """Run the layers once for all steps and sequences."""
        result = np.zeros_like(self.coefficients)
        kernels().layer_gradients(
            inputs.numpy(), gradients.numpy(), self.coefficients, self.partners, self.paired, result
        )
        return (torch.from_numpy(result),)
