"""Promises of methods of solution that no attribute of theirs states."""

from __future__ import annotations

import torch
from torch import Tensor

from undamped.analysis.promises.result import Result
from undamped.promises import HasResidual


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
