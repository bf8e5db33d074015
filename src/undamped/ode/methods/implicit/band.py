"""Derivatives with few nonzero diagonals: computed, stored and solved as a band.

Grids in one dimension have such derivatives, since each point depends on a few neighbors. A few
products instead of one per number compute them, and their systems are solved by LAPACK's band
routines in time and memory proportional to the number of points.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import OptionError, shortened

SMALLEST = 64
"""Numbers of a system below which a full matrix costs no more."""
NARROW = 4
"""A band is narrow if the system has so many times as many numbers."""


class Band(NamedTuple):
    """How many diagonals below and above the main one are not zero.

    A band is stored by columns: (systems, lower + 1 + upper, size), the entry of row i and column j
    at (upper + i − j, j).
    """

    lower: int
    upper: int

    @classmethod
    def read(cls, value: Any) -> Band | None:
        """Return a band as the user wrote it."""
        if value is None:
            return None
        integers = isinstance(value, Sequence) and all(isinstance(count, int) for count in value)
        if not integers or len(value) != 2 or min(value) < 0:
            raise OptionError(
                "band must be the numbers of diagonals below and above the main one, such as "
                f"(1, 1), got {shortened(value)}."
            )
        return cls(*value)

    @classmethod
    def of(cls, matrix: Tensor) -> Band:
        """Find the band of full matrices, (systems, size, size)."""
        _, rows, columns = matrix.nonzero(as_tuple=True)
        if not len(rows):
            return cls(0, 0)
        below = rows - columns
        return cls(max(int(below.max()), 0), max(int(-below.min()), 0))

    @property
    def width(self) -> int:
        """Number of diagonals."""
        return self.lower + 1 + self.upper

    def joined(self, band: Band | None) -> Band:
        """Return the band that holds both."""
        if band is None:
            return self
        return Band(max(self.lower, band.lower), max(self.upper, band.upper))

    def groups(self, size: int, like: Tensor) -> Tensor:
        """Return rows that no column of the band sees two of, (width, size) of ones and zeros."""
        rows = torch.arange(size, device=like.device)
        classes = torch.arange(self.width, device=like.device).unsqueeze(1)
        return (rows % self.width == classes).to(like.dtype)

    def from_products(self, products: Tensor) -> Tensor:
        """Return the stored band from Jᵀ times each of the groups, (width, systems, size)."""
        rows, exists = self._rows(products.shape[2], products.device)
        group = (rows % self.width).unsqueeze(1).expand_as(products)
        return (products.gather(0, group) * exists.unsqueeze(1)).transpose(0, 1)

    def from_differences(self, changes: Tensor, moves: Tensor) -> Tensor:
        """Return the stored band from what moving each of the groups of columns changed.

        Args:
            changes: Of the field, (width, systems, size).
            moves: How far every number was moved, (systems, size).
        """
        size = moves.shape[1]
        rows, exists = self._rows(size, moves.device)
        group = torch.arange(size, device=moves.device) % self.width
        entries = changes[group, :, rows.clamp(0, size - 1)]  # (width, size, systems)
        return (entries * exists.unsqueeze(2)).permute(2, 0, 1) / moves.unsqueeze(1)

    def stored(self, matrix: Tensor) -> Tensor:
        """Return the stored band of full matrices, (systems, size, size)."""
        size = matrix.shape[-1]
        rows, exists = self._rows(size, matrix.device)
        columns = torch.arange(size, device=matrix.device)
        return matrix[:, rows.clamp(0, size - 1), columns] * exists

    def _rows(self, size: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the row of every stored entry, and whether the matrix has it, (width, size)."""
        offsets = torch.arange(-self.upper, self.lower + 1, device=device).unsqueeze(1)
        rows = torch.arange(size, device=device) + offsets
        return rows, (rows >= 0) & (rows < size)

    def product(self, stored: Tensor, v: Tensor) -> Tensor:
        """Return Jv for every system, (systems, size)."""
        size = v.shape[1]
        rows, exists = self._rows(size, v.device)
        terms = (stored * v.unsqueeze(1) * exists).flatten(1)
        return torch.zeros_like(v).index_add(1, rows.clamp(0, size - 1).flatten(), terms)

    def transposed_product(self, stored: Tensor, w: Tensor) -> Tensor:
        """Return Jᵀw for every system, (systems, size)."""
        beyond = torch.nn.functional.pad(w, (self.upper, self.lower))
        return torch.einsum("sdj,sjd->sj", stored, beyond.unfold(1, self.width, 1))


def can_solve(like: Tensor) -> bool:
    """Whether LAPACK's band routines take systems of this kind."""
    plain = like.dtype in (torch.float32, torch.float64) and like.device.type == "cpu"
    return plain and find_spec("scipy") is not None


class BandSystem:
    """One banded matrix, factored.

    Args:
        stored: The band, (width, size); real or complex.
        band: Its diagonals.
    """

    def __init__(self, stored: np.ndarray, band: Band) -> None:
        from scipy.linalg import get_lapack_funcs

        self.band = band
        # LAPACK needs space for what pivoting fills in.
        buffer = np.zeros((band.lower + band.width, stored.shape[1]), stored.dtype, order="F")
        buffer[band.lower :] = stored
        factor, self._solve = get_lapack_funcs(("gbtrf", "gbtrs"), (buffer,))
        self._factors, self._pivots, _ = factor(buffer, band.lower, band.upper, overwrite_ab=True)

    def solve(self, right: np.ndarray, *, transposed: bool = False) -> np.ndarray:
        """Return the solution for a right side (size,)."""
        solution, _ = self._solve(
            self._factors,
            self.band.lower,
            self.band.upper,
            right,
            self._pivots,
            trans=1 if transposed else 0,
        )
        return solution


class BandFactors:
    """Factors of (μ − h J) for every system and every μ.

    Args:
        band: The diagonals of J.
    """

    def __init__(self, band: Band) -> None:
        self.band = band
        self._systems: list[list[BandSystem]] = []

    def renew(self, scaled: Tensor, shifts: Sequence[complex], indices: Tensor | None) -> None:
        """Factor some systems, or all; arguments as for `FullFactors`."""
        if indices is None:
            self._systems = [[] for _ in shifts]
        for index, shift in enumerate(shifts):
            array = scaled.numpy().copy()
            if isinstance(shift, complex):
                array = array.astype(np.result_type(array, np.complex64(0)))
            array[:, self.band.upper] += shift
            systems = [BandSystem(stored, self.band) for stored in array]
            if indices is None:
                self._systems[index] = systems
            else:
                for row, system in zip(indices.tolist(), systems, strict=True):
                    self._systems[index][row] = system

    def solve(self, index: int, right: Tensor) -> Tensor:
        """Return the solutions for the μ of an index, (systems, size)."""
        pairs = zip(self._systems[index], right.numpy(), strict=True)
        return torch.from_numpy(np.stack([system.solve(row) for system, row in pairs]))


def solve_stages(
    jacobians: Sequence[Tensor],
    h: float | Tensor,
    matrix: Sequence[Sequence[float]],
    band: Band,
    right: Tensor,
) -> Tensor:
    """Solve (I − h (a_ij J_j))ᵀ w = r for all stages of a step together, (stages, systems, size).

    The stages of a number stand side by side, so that the matrix of all of them has a band again.

    Args:
        jacobians: The J_j at every stage, stored, (systems, width, size).
        h: Step size, a number or one for every system, (systems, 1, 1).
        matrix: The a.
        band: Of the J.
        right: The r.
    """
    stages, systems, size = right.shape
    wide = Band((band.lower + 1) * stages - 1, (band.upper + 1) * stages - 1)
    matrices = right.new_zeros(systems, wide.width, size, stages)
    matrices[:, wide.upper] = 1.0
    for j, jacobian in enumerate(jacobians):
        scaled = h * jacobian
        for i, row in enumerate(matrix):
            # Row (p, i) and column (q, j) of the matrix, for p − q from −upper to lower.
            first = wide.upper - band.upper * stages + i - j
            matrices[:, first : first + band.width * stages : stages, :, j] -= row[j] * scaled
    columns = right.permute(1, 2, 0).reshape(systems, -1).numpy()
    solutions = [
        BandSystem(stored, wide).solve(column, transposed=True)
        for stored, column in zip(matrices.flatten(2).numpy(), columns, strict=True)
    ]
    return torch.from_numpy(np.stack(solutions)).view(systems, size, stages).permute(2, 0, 1)
