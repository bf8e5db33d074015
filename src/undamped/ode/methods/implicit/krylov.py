"""GMRES on every system of a batch at once: the matrix is only ever applied, never formed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Operator = Callable[[Tensor], Tensor]
RESTARTS = 20
"""Times that a full Krylov space is let go and begun anew from what it found."""


def gmres(
    operator: Operator, right: Tensor, *, tolerance: float, dimension: int
) -> tuple[Tensor, float]:
    """Solve A x = b for rows of `right` (systems, size), each with its own Krylov space.

    Returns the x, and the largest residual over a row's b: what was asked for may not have been
    reached, and whoever calls has to look.

    Args:
        operator: Applies A to a tensor like `right`.
        right: The b.
        tolerance: Residual, relative to b, at which to stop.
        dimension: Largest Krylov space; where it is not enough another is begun.
    """
    if not right.numel():
        return right, 0.0
    tiny = torch.finfo(right.dtype).tiny
    length = torch.linalg.vector_norm(right, dim=1)
    found, rest, before = torch.zeros_like(right), right, float("inf")
    for _ in range(RESTARTS):
        size = torch.linalg.vector_norm(rest, dim=1).clamp_min(tiny)
        # A row that is done would only bring rounding errors into its basis.
        goal = (tolerance * length / size).clamp(max=1.0)
        found = found + _cycle(operator, rest, goal, dimension)
        rest = right - operator(found)
        left = float((torch.linalg.vector_norm(rest, dim=1) / length.clamp_min(tiny)).max())
        # A cycle that hardly helped would be followed by others that hardly help.
        if left <= tolerance or not left < 0.9 * before:
            return found, left
        before = left
    return found, before


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
            turned = cosines[i] * column[i] + sines[i] * column[i + 1]
            column[i + 1] = cosines[i] * column[i + 1] - sines[i] * column[i]
            column[i] = turned
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
    # A row whose space is exhausted leaves a zero on the diagonal; its part is zero.
    empty = diagonal.abs() <= tiny
    diagonal.masked_fill_(empty, 1.0)
    wanted = target[:, :used].masked_fill(empty, 0.0)
    weights = torch.linalg.solve_triangular(corner, wanted.unsqueeze(2), upper=True).squeeze(2)
    return torch.einsum("sj,jsn->sn", weights, torch.stack(basis[:used]))
