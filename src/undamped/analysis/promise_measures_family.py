"""Ways to measure the promises that only some recurrent cells make.

Each function takes a cell in double precision (a copy, which it may change) and returns the
measured value, the limit it must not exceed, and what the value means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from undamped.promises import Kind

Result = tuple[float, float, str]


def _noise(like: Tensor, generator: torch.Generator, size: float = 0.5) -> Tensor:
    return size * torch.randn(like.shape, generator=generator, dtype=like.dtype)


@torch.no_grad()
def measure_singular_band(cell: Any, generator: torch.Generator) -> Result:
    """Move all free parameters, as training would, and look at the singular values."""
    for parameter in cell.free_parameters():
        parameter.add_(_noise(parameter, generator))
    values = torch.linalg.svdvals(cell.recurrent_matrix())
    # The bases were drawn in single precision.
    return (values - 1).abs().max().item(), cell.margin + 1e-5, "largest |σ − 1|"


@torch.no_grad()
def measure_scaled_spectrum(cell: Any, generator: torch.Generator) -> Result:
    """Move all free parameters and compare eigenvalue moduli with those declared."""
    for parameter in cell.free_parameters():
        parameter.add_(_noise(parameter, generator, 0.2))
    found = torch.linalg.eigvals(cell.recurrent_matrix()).abs().sort().values
    error = (found - cell.spectrum().sort().values).abs().max().item()
    return error, 1e-5, "largest difference between |λ| and γ"


@torch.no_grad()
def measure_polynomial_growth(cell: Any, generator: torch.Generator) -> Result:
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


@torch.no_grad()
def measure_stable_flow(cell: Any, generator: torch.Generator) -> Result:
    """Look at the Jacobian's eigenvalues of the flow at random states."""
    x = torch.randn(32, cell.input_size, generator=generator, dtype=torch.float64)
    state = (torch.randn(32, cell.hidden_size, generator=generator, dtype=torch.float64),)
    real = torch.linalg.eigvals(cell.flow_jacobian(cell.project(x), state)).real
    outside = max(real.max().item(), -cell.diffusion - real.min().item(), 0.0)
    return outside, 1e-9, "how far real parts lie outside [−γ, 0]"


@torch.no_grad()
def measure_slower_vanishing(cell: Any, generator: torch.Generator) -> Result:
    """Multiply ∂h'/∂h over 50 steps, with and without momentum, on the same small input."""
    x = 0.1 * torch.randn(50, 1, cell.input_size, generator=generator, dtype=torch.float64)
    pushes, matrix = cell.project(x)[:, 0], cell.weight_hh
    plain = h = torch.zeros(cell.hidden_size, dtype=torch.float64)
    velocity = torch.zeros_like(h)
    without = with_momentum = torch.eye(cell.hidden_size, dtype=torch.float64)
    for push in pushes:
        plain = torch.tanh(matrix @ plain + cell.drive.step * push)
        without = (1 - plain**2).unsqueeze(1) * matrix @ without
        slope = torch.diag(cell.drive.momentum / (1 - h**2))
        velocity = cell.drive.momentum * velocity + cell.drive.step * push
        h = torch.tanh(matrix @ h + velocity)
        with_momentum = (1 - h**2).unsqueeze(1) * (matrix + slope) @ with_momentum
    norms = [torch.linalg.matrix_norm(p, 2).item() for p in (without, with_momentum)]
    return norms[0] / norms[1], 1.0, "‖∂h_T/∂h_0‖ without momentum over that with it, T = 50"


def measure_unit_gradient(cell: Any, generator: torch.Generator) -> Result:
    """Iterate to the equilibrium and compare ∂h'/∂h with minus the identity."""
    cell.steps = torch.nn.Parameter(torch.full((600,), 0.1, dtype=torch.float64))
    x = torch.randn(1, cell.input_size, generator=generator, dtype=torch.float64)
    state = torch.randn(1, cell.hidden_size, generator=generator, dtype=torch.float64)
    projected = cell.project(x).detach()
    jacobian = torch.autograd.functional.jacobian(
        lambda h: cell.advance(projected, (h,), cell.constants())[0].squeeze(0), state
    )
    assert isinstance(jacobian, Tensor)
    eye = torch.eye(cell.hidden_size, dtype=torch.float64)
    return (jacobian.squeeze(1) + eye).abs().max().item(), 1e-6, "largest entry of |∂h'/∂h + I|"


FAMILY_MEASURES: dict[Kind, Callable[[Any, torch.Generator], Result]] = {
    Kind.SINGULAR_BAND: measure_singular_band,
    Kind.SCALED_SPECTRUM: measure_scaled_spectrum,
    Kind.POLYNOMIAL_GROWTH: measure_polynomial_growth,
    Kind.STABLE_FLOW: measure_stable_flow,
    Kind.SLOWER_VANISHING: measure_slower_vanishing,
    Kind.UNIT_GRADIENT: measure_unit_gradient,
}
