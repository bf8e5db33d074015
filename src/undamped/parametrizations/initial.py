"""Orthogonal initialisation: random, Henaff, Cayley and the identity.

All matrices are rotations (determinant one), which the exponential and Cayley maps of a skew matrix
can reach. Angles are drawn per 2 × 2 block; for an odd size the last row is that of the identity.

Reference: Henaff, Szlam and LeCun (2016) for the block rotations; Helfrich, Willmott and Ye
(2018) for the Cayley variant; both as listed in appendix D of the thesis this library follows.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

OrthogonalStart = Literal["random", "henaff", "henaff-half", "cayley", "identity"]
# The programs published with the non-normal and the relevance-screened networks draw "henaff-half".
# "cayley" is the Cayley transform of blocks −tan(s/2), s in [0, π/2): the rotations by s.
_ANGLES = {
    "henaff": (-math.pi, math.pi),
    "henaff-half": (-math.pi, 0.0),
    "cayley": (0.0, math.pi / 2),
}


def random_orthogonal(
    size: int, *, generator: torch.Generator | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Draw a rotation uniformly (Haar), by QR of a Gaussian matrix with corrected signs."""
    gaussian = torch.randn(size, size, generator=generator, dtype=torch.float64)
    q, r = torch.linalg.qr(gaussian)
    # Without this sign fix the distribution depends on the QR algorithm.
    q = q * torch.sign(torch.diagonal(r))
    if torch.linalg.det(q) < 0:
        q[:, 0] = -q[:, 0]
    # LAPACK writes column after column; a parameter has no gaps row after row.
    return q.contiguous().to(dtype or torch.get_default_dtype())


def block_diagonal(scales: Tensor, angles: Tensor, size: int) -> Tensor:
    """Return Λ: one scale per block (for an odd size one more), one angle per 2 × 2 block."""
    pairs = size // 2
    first = torch.arange(0, 2 * pairs, 2, device=angles.device)
    cosine, sine = scales[:pairs] * torch.cos(angles), scales[:pairs] * torch.sin(angles)
    rows = torch.cat([first, first + 1, first, first + 1])
    columns = torch.cat([first, first + 1, first + 1, first])
    values = torch.cat([cosine, cosine, -sine, sine])
    matrix = torch.zeros(size, size, dtype=angles.dtype, device=angles.device)
    matrix = matrix.index_put((rows, columns), values)
    if size % 2:
        last = torch.tensor([size - 1], device=angles.device)
        matrix = matrix.index_put((last, last), scales[pairs:])
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
    angles = low + (high - low) * torch.rand(size // 2, generator=generator, dtype=torch.float64)
    ones = angles.new_ones((size + 1) // 2)
    return block_diagonal(ones, angles, size).to(dtype or torch.get_default_dtype())


def orthogonal_start(
    kind: OrthogonalStart,
    size: int,
    *,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Draw an orthogonal matrix by the name of its initialisation."""
    if kind == "identity":
        return torch.eye(size, dtype=dtype)
    if kind == "random":
        return random_orthogonal(size, generator=generator, dtype=dtype)
    low, high = _ANGLES[kind]
    return henaff(size, low=low, high=high, generator=generator, dtype=dtype)
