"""Promises about a flow in continuous time or depth."""

from __future__ import annotations

from typing import Any

import torch

from undamped.analysis.promises.result import Result


@torch.no_grad()
def measure_stable_flow(cell: Any, generator: torch.Generator) -> Result:
    """Look at the Jacobian's eigenvalues of the flow at random states."""
    x = torch.randn(32, cell.input_size, generator=generator, dtype=torch.float64)
    state = (torch.randn(32, cell.hidden_size, generator=generator, dtype=torch.float64),)
    real = torch.linalg.eigvals(cell.flow_jacobian(cell.project(x), state)).real
    outside = max(real.max().item(), -cell.diffusion - real.min().item(), 0.0)
    return outside, 1e-9, "how far real parts lie outside [−γ, 0]"
