"""Factors or inverses of full matrices, a batch of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

SMALL = 32
"""Numbers in all stages of a system up to which products with an inverse cost less than solves."""


class Factors(Protocol):
    """Factors of (μ − h J) for every system and every μ."""

    def renew(self, scaled: Tensor, shifts: Sequence[complex], chosen: Tensor | None) -> None:
        """Factor some systems, or all.

        Args:
            scaled: Their −h J, as the derivative is kept.
            shifts: The μ.
            chosen: Their numbers; None for all.
        """
        ...

    def solve(self, number: int, right: Tensor) -> Tensor:
        """Return the solutions for the μ of a number, (systems, size); complex for some μ."""
        ...


class FullFactors:
    """LU factors; J is (systems, size, size)."""

    def __init__(self) -> None:
        self._known: list[tuple[Tensor, Tensor]] = []

    def renew(self, scaled: Tensor, shifts: Sequence[complex], chosen: Tensor | None) -> None:
        """Factor some systems, or all."""
        known, self._known = self._known, []
        for number, shift in enumerate(shifts):
            shifted = scaled.clone()
            if isinstance(shift, complex):
                shifted = torch.complex(scaled, torch.zeros_like(scaled))
            shifted.diagonal(dim1=1, dim2=2).add_(shift)
            factors, pivots, _ = torch.linalg.lu_factor_ex(shifted)
            if chosen is not None:
                factors = known[number][0].index_copy(0, chosen, factors)
                pivots = known[number][1].index_copy(0, chosen, pivots)
            self._known.append((factors, pivots))

    def solve(self, number: int, right: Tensor) -> Tensor:
        """Return the solutions for the μ of a number."""
        return torch.linalg.lu_solve(*self._known[number], right.unsqueeze(2)).squeeze(2)


class Inverses:
    """Inverses for small systems: one product solves them for every μ.

    Equation:
        (D ⊗ 1 − 1 ⊗ h J)⁻¹, D with the real μ and [[Re μ, −Im μ], [Im μ, Re μ]] on its diagonal
    """

    def __init__(self) -> None:
        self._inverse = torch.empty(0)
        self._places: list[int] = []

    def renew(self, scaled: Tensor, shifts: Sequence[complex], chosen: Tensor | None) -> None:
        """Invert the matrices of some systems, or all."""
        count, size, _ = scaled.shape
        whole, self._places = _shifted_blocks(tuple(shifts), size, scaled.dtype, scaled.device)
        stages = len(whole) // size
        whole = whole.repeat(count, 1, 1)
        blocks = whole.view(count, stages, size, stages, size).diagonal(dim1=1, dim2=3)
        blocks.add_(scaled.unsqueeze(3))
        inverse = torch.linalg.inv_ex(whole)[0]
        self._inverse = inverse if chosen is None else self._inverse.index_copy(0, chosen, inverse)

    def solve(self, number: int, right: Tensor) -> Tensor:
        """Return the solutions for the real μ of a number."""
        low = self._places[number]
        high = low + right.shape[1]
        return torch.bmm(self._inverse[:, low:high, low:high], right.unsqueeze(2)).squeeze(2)

    def solve_all(self, right: Tensor) -> Tensor:
        """Return the solutions for all μ, (stages, systems, size)."""
        stages, count, size = right.shape
        if count == 1:
            return torch.bmm(self._inverse, right.view(1, -1, 1)).view(right.shape)
        columns = right.transpose(0, 1).reshape(count, -1, 1)
        return torch.bmm(self._inverse, columns).view(count, stages, size).transpose(0, 1)


@lru_cache(maxsize=32)
def _shifted_blocks(
    shifts: tuple[complex, ...], size: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, list[int]]:
    """Return D ⊗ 1, and the row at which every μ begins."""
    blocks, places, low = [], [], 0
    for shift in shifts:
        pair = isinstance(shift, complex)
        real, imag = complex(shift).real, complex(shift).imag
        block = [[real, -imag], [imag, real]] if pair else [[real]]
        blocks.append(torch.tensor(block, dtype=torch.float64))
        places.append(low)
        low += size * len(blocks[-1])
    whole = torch.block_diag(*blocks)
    return torch.kron(whole, torch.eye(size, dtype=torch.float64)).to(device, dtype), places
