"""The exponential of skew matrices, orthogonal to rounding.

For a single matrix `torch.matrix_exp` (up to 2.14 at least, pytorch/pytorch#196592) has a wrong
coefficient where it takes its polynomial of degree eight: it is off by up to 1e-10 in double
precision and 2e-5 in single, which a thousand small steps would show. This one is a Taylor
polynomial of degree sixteen in six products, of the matrix halved until its norm is at most a
half, squared as often.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from undamped.kernels.dispatch import inside_transform

LARGEST = 0.5
"""Norm up to which the terms left out are below 4e-20."""
INVERSE_FACTORIALS = tuple(1 / math.factorial(k) for k in range(17))


def skew_exponential(matrix: Tensor) -> Tensor:
    """Return exp(A), a rotation, for skew matrices (…, n, n).

    Args:
        matrix: A. Nothing in here but the norm of the result supposes that it is skew.
    """
    if inside_transform():
        return torch.matrix_exp(matrix)  # where numbers cannot be looked at
    norm = float(torch.linalg.matrix_norm(matrix.detach(), 1).amax()) if matrix.numel() else 0.0
    if not math.isfinite(norm):
        return torch.full_like(matrix, math.nan) + matrix
    halvings = math.ceil(math.log2(norm / LARGEST)) if norm > LARGEST else 0
    found = _taylor(matrix / 2**halvings if halvings else matrix)
    for _ in range(halvings):
        found = found @ found
    return found


def _taylor(first: Tensor) -> Tensor:
    """Add up seventeen terms, four at a time (Paterson and Stockmeyer)."""
    c = INVERSE_FACTORIALS
    second = first @ first
    third, fourth = second @ first, second @ second
    eye = torch.eye(first.shape[-1], dtype=first.dtype, device=first.device)
    total = c[16] * fourth
    for k in (12, 8, 4, 0):
        four = c[k] * eye + c[k + 1] * first + c[k + 2] * second + c[k + 3] * third
        total = total @ fourth + four if k < 12 else total + four
    return total
