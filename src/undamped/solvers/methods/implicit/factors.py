"""Factors of full matrices, a batch of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor


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
