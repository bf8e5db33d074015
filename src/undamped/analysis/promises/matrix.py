"""Promises about the recurrent matrix of a cell, at the start or after its parameters moved."""

from __future__ import annotations

import torch
from torch import Tensor

from undamped._base.promises import HasFreeMatrix, HasMargin, HasRecurrentMatrix, HasSpectrum
from undamped.analysis.promises.result import Result


def _noise(like: Tensor, generator: torch.Generator, size: float = 0.5) -> Tensor:
    return size * torch.randn(like.shape, generator=generator, dtype=like.dtype)


def measure_isometric(cell: HasRecurrentMatrix, generator: torch.Generator) -> Result:
    """Compare WᵀW with the identity."""
    matrix = cell.recurrent_matrix().detach()
    identity = torch.eye(matrix.shape[0], dtype=matrix.dtype)
    # Weights are drawn in single precision, so that is how orthogonal they can be.
    return (matrix.mH @ matrix - identity).abs().max().item(), 1e-5, "largest entry of |WᵀW − I|"


@torch.no_grad()
def measure_singular_band(cell: HasMargin, generator: torch.Generator) -> Result:
    """Move all free parameters, as training would, and look at the singular values."""
    for parameter in cell.free_parameters():
        parameter.add_(_noise(parameter, generator))
    values = torch.linalg.svdvals(cell.recurrent_matrix())
    # The bases were drawn in single precision.
    return (values - 1).abs().max().item(), cell.margin + 1e-5, "largest |σ − 1|"


@torch.no_grad()
def measure_scaled_spectrum(cell: HasSpectrum, generator: torch.Generator) -> Result:
    """Move all free parameters and compare eigenvalue moduli with those declared."""
    for parameter in cell.free_parameters():
        parameter.add_(_noise(parameter, generator, 0.2))
    found = torch.linalg.eigvals(cell.recurrent_matrix()).abs().sort().values
    error = (found - cell.spectrum().sort().values).abs().max().item()
    return error, 1e-5, "largest difference between |λ| and γ"


@torch.no_grad()
def measure_polynomial_growth(cell: HasFreeMatrix, generator: torch.Generator) -> Result:
    """With γ = 1 and a random T, measure the power of t with which ‖Wᵗ‖ grows late."""
    _, scales, _, lower = cell.free_parameters()
    scales.fill_(1.0)
    lower.add_(_noise(lower, generator, 0.2))
    matrix, norms = cell.recurrent_matrix(), []
    for _ in range(12):
        matrix = matrix @ matrix
        norms.append(torch.linalg.matrix_norm(matrix, 2).log2().item())
    # Between t and 4t; a power of t larger than the number of blocks would be exponential.
    power = (norms[-1] - norms[-3]) / 2
    return power, len(scales) - 1 + 0.1, "power p with ‖Wᵗ‖ ~ tᵖ at t = 4096"
