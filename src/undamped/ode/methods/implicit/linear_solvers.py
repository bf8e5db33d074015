"""Solvers of linear systems, a batch of them at once: LU factors, inverses and GMRES."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

Operator = Callable[[Tensor], Tensor]
RESTARTS = 20
"""How often a full Krylov space is replaced by a new one."""
SMALL = 32
"""Numbers in all stages of a system up to which products with an inverse cost less than solves."""


class FullFactors:
    """LU factors of (μ − h J) for every system and every μ; J is (systems, size, size)."""

    def __init__(self) -> None:
        self._factors: list[tuple[Tensor, Tensor]] = []

    def renew(self, scaled: Tensor, shifts: Sequence[complex], indices: Tensor | None) -> None:
        """Factor some systems, or all.

        Args:
            scaled: Their −h J, as the derivative is stored.
            shifts: The μ.
            indices: Their indices; None for all.
        """
        before, self._factors = self._factors, []
        for index, shift in enumerate(shifts):
            shifted = scaled.clone()
            if isinstance(shift, complex):
                shifted = torch.complex(scaled, torch.zeros_like(scaled))
            shifted.diagonal(dim1=1, dim2=2).add_(shift)
            factors, pivots, _ = torch.linalg.lu_factor_ex(shifted)
            if indices is not None:
                factors = before[index][0].index_copy(0, indices, factors)
                pivots = before[index][1].index_copy(0, indices, pivots)
            self._factors.append((factors, pivots))

    def solve(self, index: int, right: Tensor) -> Tensor:
        """Return the solutions for the μ of an index, (systems, size); complex for some μ."""
        return torch.linalg.lu_solve(*self._factors[index], right.unsqueeze(2)).squeeze(2)


class Inverses:
    """Inverses for small systems: one product solves them for every μ.

    Equation:
        (D ⊗ 1 − 1 ⊗ h J)⁻¹, D with the real μ and [[Re μ, −Im μ], [Im μ, Re μ]] on its diagonal
    """

    def __init__(self) -> None:
        self._inverse = torch.empty(0)
        self._starts: list[int] = []

    def renew(self, scaled: Tensor, shifts: Sequence[complex], indices: Tensor | None) -> None:
        """Invert the matrices of some systems, or all."""
        count, size, _ = scaled.shape
        matrix, self._starts = _shifted_blocks(tuple(shifts), size, scaled.dtype, scaled.device)
        stages = len(matrix) // size
        matrix = matrix.repeat(count, 1, 1)
        blocks = matrix.view(count, stages, size, stages, size).diagonal(dim1=1, dim2=3)
        blocks.add_(scaled.unsqueeze(3))
        inverse = torch.linalg.inv_ex(matrix)[0]
        self._inverse = (
            inverse if indices is None else self._inverse.index_copy(0, indices, inverse)
        )

    def solve(self, index: int, right: Tensor) -> Tensor:
        """Return the solutions for the real μ of an index."""
        low = self._starts[index]
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
    blocks, starts, low = [], [], 0
    for shift in shifts:
        pair = isinstance(shift, complex)
        real, imag = complex(shift).real, complex(shift).imag
        block = [[real, -imag], [imag, real]] if pair else [[real]]
        blocks.append(torch.tensor(block, dtype=torch.float64))
        starts.append(low)
        low += size * len(blocks[-1])
    matrix = torch.block_diag(*blocks)
    return torch.kron(matrix, torch.eye(size, dtype=torch.float64)).to(device, dtype), starts


def gmres(
    operator: Operator, right: Tensor, *, tolerance: float, dimension: int
) -> tuple[Tensor, float]:
    """Solve A x = b for rows of `right` (systems, size), each with its own Krylov space.

    Returns the x, and the largest residual over a row's b, which may be above the tolerance: the
    caller has to check.

    Args:
        operator: Applies A to a tensor like `right`.
        right: The b.
        tolerance: Residual, relative to b, at which to stop.
        dimension: Largest Krylov space; where it does not suffice, another is built.
    """
    if not right.numel():
        return right, 0.0
    tiny = torch.finfo(right.dtype).tiny
    length = torch.linalg.vector_norm(right, dim=1)
    solution, rest, before = torch.zeros_like(right), right, float("inf")
    for _ in range(RESTARTS):
        size = torch.linalg.vector_norm(rest, dim=1).clamp_min(tiny)
        # A row that is done would only bring rounding errors into its basis.
        goal = (tolerance * length / size).clamp(max=1.0)
        solution = solution + _cycle(operator, rest, goal, dimension)
        rest = right - operator(solution)
        residual = float((torch.linalg.vector_norm(rest, dim=1) / length.clamp_min(tiny)).max())
        # A cycle that hardly helped would be followed by others that hardly help.
        if residual <= tolerance or not residual < 0.9 * before:
            return solution, residual
        before = residual
    return solution, before


def _cycle(operator: Operator, right: Tensor, goal: Tensor, dimension: int) -> Tensor:
    """Solve in one Krylov space; `goal` is a relative residual for every row."""
    systems, size = right.shape
    dimension = min(dimension, size)
    tiny = torch.finfo(right.dtype).tiny
    length = torch.linalg.vector_norm(right, dim=1)
    basis = [right / length.clamp_min(tiny).unsqueeze(1)]
    triangle = right.new_zeros(systems, dimension, dimension)
    target = right.new_zeros(systems, dimension + 1)
    target[:, 0] = length
    cosines: list[Tensor] = []
    sines: list[Tensor] = []
    used = 0
    for j in range(dimension):
        w = operator(basis[j])
        column = []
        for direction in basis:
            along = (w * direction).sum(1)
            w = w - along.unsqueeze(1) * direction
            column.append(along)
        rest = torch.linalg.vector_norm(w, dim=1)
        basis.append(w / rest.clamp_min(tiny).unsqueeze(1))
        for i in range(j):
            rotated = cosines[i] * column[i] + sines[i] * column[i + 1]
            column[i + 1] = cosines[i] * column[i + 1] - sines[i] * column[i]
            column[i] = rotated
        radius = torch.hypot(column[j], rest)
        safe = radius.clamp_min(tiny)
        cosines.append(torch.where(radius > 0, column[j] / safe, torch.ones_like(radius)))
        sines.append(rest / safe)
        column[j] = radius
        triangle[:, : j + 1, j] = torch.stack(column, dim=1)
        target[:, j + 1] = -sines[j] * target[:, j]
        target[:, j] = cosines[j] * target[:, j]
        used = j + 1
        if bool((target[:, j + 1].abs() <= goal * length).all()):
            break
    corner = triangle[:, :used, :used]
    diagonal = corner.diagonal(dim1=1, dim2=2)
    # A row whose space is exhausted leaves a zero on the diagonal; its component is zero.
    empty = diagonal.abs() <= tiny
    diagonal.masked_fill_(empty, 1.0)
    head = target[:, :used].masked_fill(empty, 0.0)
    weights = torch.linalg.solve_triangular(corner, head.unsqueeze(2), upper=True).squeeze(2)
    return torch.einsum("sj,jsn->sn", weights, torch.stack(basis[:used]))
