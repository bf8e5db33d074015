"""Promises about one step of a cell, or many: measured on random states and inputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from undamped.analysis.promises.result import Result
from undamped.cells.bases.cell import Cell, State

ROUNDING = 1e-9
SAMPLES = 8
STEPS = 200


def _random_step(cell: Cell, generator: torch.Generator) -> tuple[Tensor, State]:
    x = torch.randn(1, cell.input_size, generator=generator, dtype=torch.float64)
    state = tuple(
        torch.randn(1, cell.state_size, generator=generator, dtype=torch.float64)
        for _ in cell.state_names
    )
    return cell.project(x), state


def step_jacobian(cell: Cell, projected: Tensor, state: State) -> Tensor:
    """Return the Jacobian of one step in its state, all parts of the state side by side."""
    constants = cell.constants()
    width = state[0].shape[-1]

    def step(flat: Tensor) -> Tensor:
        parts = tuple(flat[:, i * width : (i + 1) * width] for i in range(len(state)))
        return torch.cat(cell.advance(projected, parts, constants), dim=-1).squeeze(0)

    jacobian = torch.autograd.functional.jacobian(step, torch.cat(state, dim=-1))
    assert isinstance(jacobian, Tensor)
    return jacobian.squeeze(1)


def measure_bounded_step_gradient(cell: Any, generator: torch.Generator) -> Result:
    """Compare the largest ‖∂h'/∂h‖ at random states with the bound declared."""
    norms = [
        torch.linalg.matrix_norm(step_jacobian(cell, *_random_step(cell, generator)), 2).item()
        for _ in range(SAMPLES)
    ]
    bound = cell.step_gradient_bound().item()
    return max(norms), bound * (1 + ROUNDING), "largest ‖∂h'/∂h‖ over random states"


def measure_invertible(cell: Cell, generator: torch.Generator) -> Result:
    """Take a step and take it back."""
    worst = 0.0
    for _ in range(SAMPLES):
        projected, state = _random_step(cell, generator)
        constants = cell.constants()
        back = cell.inverse(projected, cell.advance(projected, state, constants), constants)
        for found, true in zip(back, state, strict=True):
            worst = max(worst, (found - true).abs().max().item())
    return worst, ROUNDING, "largest error after a step forth and back"


def measure_volume_preserving(cell: Cell, generator: torch.Generator) -> Result:
    """Compare the determinant of a step with one."""
    errors = [
        abs(torch.linalg.det(step_jacobian(cell, *_random_step(cell, generator))).item() - 1)
        for _ in range(SAMPLES)
    ]
    return max(errors), ROUNDING, "largest |det J − 1|"


def measure_symplectic(cell: Cell, generator: torch.Generator) -> Result:
    """Compare JᵀΩJ with Ω."""
    size = cell.state_size
    zero, one = torch.zeros(size, size).double(), torch.eye(size).double()
    form = torch.cat([torch.cat([zero, one], 1), torch.cat([-one, zero], 1)])
    worst = 0.0
    for _ in range(SAMPLES):
        jacobian = step_jacobian(cell, *_random_step(cell, generator))
        worst = max(worst, (jacobian.T @ form @ jacobian - form).abs().max().item())
    return worst, ROUNDING, "largest entry of |JᵀΩJ − Ω|"


@torch.no_grad()
def measure_bounded_state(cell: Any, generator: torch.Generator) -> Result:
    """Run on random inputs and compare states with their bound."""
    x = torch.randn(STEPS, SAMPLES, cell.input_size, generator=generator, dtype=torch.float64)
    state, projected, constants = cell.initial_state(SAMPLES, x), cell.project(x), cell.constants()
    worst = 0.0
    for step in range(STEPS):
        state = cell.advance(projected[step], state, constants)
        bounds = cell.state_bound(step + 1)
        ratios = [
            part.abs().max().item() / bound for part, bound in zip(state, bounds, strict=True)
        ]
        worst = max(worst, *ratios)
    return worst, 1.0, "largest state as a share of its bound"


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
