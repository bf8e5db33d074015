"""GMRES on every sample of a batch at once: the matrix is only ever applied, never formed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Operator = Callable[[Tensor], Tensor]


def gmres(operator: Operator, right: Tensor, *, tolerance: float, dimension: int) -> Tensor:
    """Solve A x = b for rows of `right` (samples, size), each with its own Krylov space.

    Args:
        operator: Applies A to a tensor like `right`.
        right: The b.
        tolerance: Residual, relative to b, at which to stop.
        dimension: Largest Krylov space.
    """
    if not right.numel():
        return right
    samples, size = right.shape
    dimension = min(dimension, size)
    tiny = torch.finfo(right.dtype).tiny
    length = torch.linalg.vector_norm(right, dim=1)
    basis = [right / length.clamp_min(tiny).unsqueeze(1)]
    triangle = right.new_zeros(samples, dimension, dimension)
    target = right.new_zeros(samples, dimension + 1)
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
        if bool((target[:, j + 1].abs() <= tolerance * length).all()):
            break
    corner = triangle[:, :used, :used]
    diagonal = corner.diagonal(dim1=1, dim2=2)
    # A sample whose space is exhausted leaves a zero on the diagonal; its part is nought.
    empty = diagonal.abs() <= tiny
    diagonal.masked_fill_(empty, 1.0)
    wanted = target[:, :used].masked_fill(empty, 0.0)
    weights = torch.linalg.solve_triangular(corner, wanted.unsqueeze(2), upper=True).squeeze(2)
    return torch.einsum("sj,jsn->sn", weights, torch.stack(basis[:used]))
