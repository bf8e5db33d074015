"""Promises of methods of solution that no attribute of theirs states."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from undamped._base.promises import HasMethodSteps, HasResidual
from undamped.analysis.promises.result import Result


def _oscillator(t: object, y: Tensor) -> Tensor:
    return torch.stack((y[..., 1], -y[..., 0]), dim=-1)


@torch.no_grad()
def measure_corrected_error(solver: HasResidual, generator: torch.Generator) -> Result:
    """Give a correction that is off by δ, and compare the error of a step with δ h^{p+1}."""
    y = torch.randn(8, 2, generator=generator, dtype=torch.float64)
    h, worst = torch.tensor(0.1, dtype=torch.float64), 0.0
    turn = torch.stack((torch.stack((h.cos(), h.sin())), torch.stack((-h.sin(), h.cos()))))
    exact = y @ turn.T
    true = solver.residual(_oscillator, 0.0, h.item(), y, exact)
    before = solver.correction
    for delta in (1e-1, 1e-2, 1e-3):
        solver.correction = lambda *seen, off=delta: true + off
        found = solver.step(_oscillator, 0.0, h.item(), (y,))[0][0]
        error = (found - exact).abs().max().item()
        worst = max(worst, error / (delta * h.item() ** (solver.order + 1)))
    solver.correction = before
    return worst, 1 + 1e-6, "largest error of a step over δ h^{p+1}"


@torch.no_grad()
def measure_a_stable(solver: HasMethodSteps, generator: torch.Generator) -> Result:
    """Take a step of y' = λ y for many λ of the left half-plane, its edge among them."""
    angle = math.pi * (0.5 + torch.rand(64, generator=generator, dtype=torch.float64))
    angle[:16] = math.pi / 2
    modulus = 10 ** (6 * torch.rand(64, generator=generator, dtype=torch.float64) - 2)
    growth = _amplification(solver, torch.polar(modulus, angle))
    return growth.max().item(), 1 + 1e-7, "largest |y'| / |y| of a step where Re λ ≤ 0"


@torch.no_grad()
def measure_l_stable(solver: HasMethodSteps, generator: torch.Generator) -> Result:
    """Take a step of y' = λ y with λ h far to the left."""
    far = torch.tensor([-1e6, -1e7, -1e8], dtype=torch.float64).to(torch.complex128)
    return _amplification(solver, far).max().item(), 1e-3, "|y'| / |y| of a step at λ h = −10⁶"


def _amplification(solver: HasMethodSteps, rates: Tensor) -> Tensor:
    """Return |y'| / |y| of a step of length one for every λ, each a sample of two real numbers."""

    def field(t: object, y: Tensor) -> Tensor:
        return torch.view_as_real(rates[: len(y)] * torch.view_as_complex(y))

    y = torch.zeros(len(rates), 2, dtype=torch.float64)
    y[:, 0] = 1
    return solver.step(field, 0.0, 1.0, solver.start(field, 0.0, y))[0][0].norm(dim=1)
