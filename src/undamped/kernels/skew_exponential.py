"""The exponential of skew matrices, orthogonal up to rounding.

For a single matrix `torch.matrix_exp` (up to 2.14 at least, pytorch/pytorch#196592) has a wrong
coefficient where it takes its polynomial of degree eight: its error is up to 1e-10 in double
precision and 2e-5 in single, which is visible after a thousand small steps. This one is a Taylor
polynomial of degree sixteen of the matrix halved until it is small, squared as often. The matrices
are small, so the number of calls matters most: all sums of powers are one product.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from undamped.kernels.dispatch import inside_transform

LARGEST = {torch.float32: 2.5, torch.float64: 0.75}
"""Spectral norm up to which the omitted terms are below rounding."""
FINEST = 0.1
"""An angle with a larger error than this, in radians, is meaningless."""


def skew_exponential(matrix: Tensor) -> Tensor:
    """Return exp(A), a rotation, for skew matrices (…, n, n).

    Args:
        matrix: A; whether it is skew is not checked.
    """
    if inside_transform() or matrix.dtype not in LARGEST:
        return torch.matrix_exp(matrix)  # values are unknown
    if not matrix.numel():
        return matrix
    # Eigenvalues of a skew matrix come in pairs, so this bounds the largest.
    rows = torch.linalg.vector_norm(matrix.detach().flatten(-2), dim=-1)
    norm = rows.amax().item() / math.sqrt(2)
    if not norm * torch.finfo(matrix.dtype).eps < FINEST:
        return matrix * math.nan
    largest = LARGEST[matrix.dtype]
    halvings = math.ceil(math.log2(norm / largest)) if norm > largest else 0
    result = _taylor(matrix / 2**halvings if halvings else matrix)
    for _ in range(halvings):
        result = result @ result
    return result


def _taylor(first: Tensor) -> Tensor:
    """Sum seventeen terms, four at a time (Paterson and Stockmeyer)."""
    shape, size = first.shape, first.shape[-1]
    first = first.reshape(-1, size, size)
    second = first @ first
    third, fourth = second @ first, second @ second
    eye = torch.eye(size, dtype=first.dtype, device=first.device).expand_as(first)
    powers = torch.stack((eye, first, second, third, fourth)).flatten(1)
    sums = (_coefficients(first.dtype, first.device) @ powers).reshape(4, *first.shape)
    total, *rest = sums.unbind()
    for four in rest:
        total = torch.baddbmm(four, total, fourth)
    return total.reshape(shape)


@lru_cache(maxsize=8)
def _coefficients(dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return 1/k! for the powers 0 to 4 in four sums, the highest first."""
    rows = [[1 / math.factorial(begin + k) for k in range(4)] for begin in (12, 8, 4, 0)]
    last = (1 / math.factorial(16), 0.0, 0.0, 0.0)
    matrix = [[*row, end] for row, end in zip(rows, last, strict=True)]
    with torch.inference_mode(False):  # cached, also for passes with gradients
        return torch.tensor(matrix, dtype=dtype, device=device)
