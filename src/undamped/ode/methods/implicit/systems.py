"""How a state is divided into independent systems of equations.

Rows of a batch are usually samples, each with its own equations; rows of a graph, a matrix or a
grid are not. A derivative computed row by row would be wrong for the latter, so whether rows are
coupled is never assumed: it is tested with a random direction.

Equation:
    (Jᵀw)_i = Σ_k J_kiᵀ w_k, which is (Σ_k J_kiᵀ) w_i for every w only if J_ki = 0 for all k ≠ i
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_SEED = 20_230_111


@dataclass(frozen=True)
class Systems:
    """The number of systems and their size.

    Args:
        count: How many systems.
        size: How many numbers each.
        shape: Shape of the state they make up.
    """

    count: int
    size: int
    shape: torch.Size

    @classmethod
    def by_row(cls, y: Tensor, lanes: int = 1) -> Systems:
        """Take every row of a state for a system; a state of one dimension is one.

        Args:
            y: The state.
            lanes: Step sizes; where there are several, every number of such a state has its own.
        """
        count = y.shape[0] if y.dim() > 1 or lanes > 1 else 1
        return cls(count, y.numel() // max(count, 1), y.shape)

    def joined(self) -> Systems:
        """Return the same numbers as one system."""
        return Systems(1, self.count * self.size, self.shape)

    def rows(self, state: Tensor) -> Tensor:
        """Return a state with one system a row."""
        return state.reshape(self.count, self.size)

    def state(self, rows: Tensor) -> Tensor:
        """Return rows in the shape of the state."""
        return rows.reshape(self.shape)


def directions(count: int, y: Tensor) -> Tensor:
    """Return random numbers (count, *y.shape) from a separate generator, the same each time."""
    generator = torch.Generator().manual_seed(_SEED)
    values = torch.randn((count, *y.shape), generator=generator, dtype=torch.float64)
    return values.to(y.device, y.dtype)


def agree(first: Tensor, second: Tensor, tolerance: float) -> bool:
    """Whether two products with a derivative, (systems, size), are equal but for rounding."""
    difference = (first - second).abs().amax(1)
    scale = torch.maximum(first.abs().amax(1), second.abs().amax(1))
    return bool((difference <= tolerance * scale).all())
