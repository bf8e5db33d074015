"""Promises about densities that a flow carries."""

from __future__ import annotations

import torch

from undamped._base.promises import HasDensity
from undamped.analysis.promises.flow import SOLVED, STATES, jacobian_of_flow, solve_finely
from undamped.analysis.promises.result import Result

GRID = 100
"""Points along each side of the grid on which a density is added up."""


def measure_log_determinant(model: HasDensity, generator: torch.Generator) -> Result:
    """Compare what the log-density changed by with the determinant of the flow's Jacobian."""
    solve_finely(model)
    x, given = model.example(STATES, generator)
    worst = 0.0
    for k in range(STATES):
        point, beside = x[k : k + 1], None if given is None else given[k : k + 1]
        wanted = torch.linalg.slogdet(jacobian_of_flow(model, point, beside)).logabsdet
        with torch.no_grad():
            base = model.base_log_prob(model.carry(point, beside))
            found = model.log_prob(point, beside) - base
        worst = max(worst, (found - wanted).abs().item())
    return worst, SOLVED, "largest |change of log p − log det|"


@torch.no_grad()
def measure_normalised_density(model: HasDensity, generator: torch.Generator) -> Result:
    """Add the density up on a grid around where the flow puts its samples."""
    z = torch.randn(2000, model.size, generator=generator, dtype=torch.float64)
    _, given = model.example(1, generator)
    x = model.carry_back(z, None if given is None else given.expand(len(z), -1))
    low, high = x.min(0).values, x.max(0).values
    margin = 0.5 * (high - low)
    sides = [
        torch.linspace(a, b, GRID, dtype=torch.float64)
        for a, b in zip((low - margin).tolist(), (high + margin).tolist(), strict=True)
    ]
    points = torch.cartesian_prod(*sides).reshape(-1, model.size)
    context = None if given is None else given.expand(len(points), -1)
    cell = torch.stack([side[1] - side[0] for side in sides]).prod()
    total = (model.log_prob(points, context).exp().sum() * cell).item()
    return abs(total - 1), 1e-2, "|∫ p − 1|"
