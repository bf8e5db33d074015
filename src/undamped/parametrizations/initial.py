"""Orthogonal matrices to start from: random, Henaff, Cayley and the identity.

All return a rotation (determinant one), because that is what the exponential and Cayley
maps of a skew matrix can reach. Angles are drawn per 2 × 2 block; for an odd size the last row
stands alone with eigenvalue one.

Reference: Henaff, Szlam and LeCun (2016) for the block rotations; Helfrich, Willmott and Ye
(2018) for the Cayley variant; both as listed in appendix D of the thesis this library follows.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

OrthogonalStart = Literal["random", "henaff", "henaff-half", "cayley", "identity"]
"""Names of initialisations. "henaff-half" draws angles from (−π, 0), as the programs published
with the non-normal and the relevance-screened networks do; "henaff" from (−π, π)."""


def random_orthogonal(
    size: int, *, generator: torch.Generator | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Draw a rotation uniformly (Haar), by QR of a Gaussian matrix with the signs put right."""
    gaussian = torch.randn(size, size, generator=generator, dtype=torch.float64)
    q, r = torch.linalg.qr(gaussian)
    # Without this sign fix the distribution depends on the QR algorithm.
    q = q * torch.sign(torch.diagonal(r))
    if torch.linalg.det(q) < 0:
        q[:, 0] = -q[:, 0]
    # LAPACK writes column after column; a parameter has no gaps row after row.
    return q.contiguous().to(dtype or torch.get_default_dtype())


def block_rotations(angles: Tensor, size: int) -> Tensor:
    """Return the block-diagonal rotation of `size` with one angle per 2 × 2 block."""
    matrix = torch.eye(size, dtype=angles.dtype)
    first = torch.arange(0, size - 1, 2)
    matrix[first, first] = torch.cos(angles)
    matrix[first + 1, first + 1] = torch.cos(angles)
    matrix[first, first + 1] = -torch.sin(angles)
    matrix[first + 1, first] = torch.sin(angles)
    return matrix


def henaff(
    size: int,
    *,
    low: float = -math.pi,
    high: float = math.pi,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Draw block rotations with angles uniform in [low, high)."""
    uniform = torch.rand(size // 2, generator=generator, dtype=torch.float64)
    return block_rotations(low + (high - low) * uniform, size).to(
        dtype or torch.get_default_dtype()
    )


def cayley(
    size: int,
    *,
    high: float = math.pi / 2,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Draw the Cayley transform of blocks −tan(s/2), s uniform in [0, high).

    (I + A)⁻¹(I − A) with a block [[0, a], [−a, 0]], a = −tan(s/2), is the rotation by s, so the
    matrix is written down directly instead of by solving a linear system.
    """
    return henaff(size, low=0.0, high=high, generator=generator, dtype=dtype)


def orthogonal_start(
    kind: OrthogonalStart, size: int, *, generator: torch.Generator | None = None
) -> Tensor:
    """Draw an orthogonal matrix by the name of its initialisation."""
    if kind == "identity":
        return torch.eye(size)
    if kind == "henaff-half":
        return henaff(size, high=0.0, generator=generator)
    draw = {"random": random_orthogonal, "henaff": henaff, "cayley": cayley}[kind]
    return draw(size, generator=generator)
