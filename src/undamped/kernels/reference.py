"""The scans as plain loops: what every kernel means, and what runs where no kernel fits."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

PositionVelocity = tuple[Tensor, Tensor]


def reference_oscillator_scan(
    projected: Tensor,  # (time, batch, hidden)
    weight: Tensor,  # (hidden,)
    step: Tensor,  # (hidden,)
    alpha: float,
    state: PositionVelocity,  # (batch, hidden) each
    lengths: Tensor | None = None,  # (batch,)
) -> tuple[Tensor, PositionVelocity]:
    """z' = z − s ⊙ (tanh(w ⊙ y + p) + α y), y' = y + s ⊙ z', step after step."""
    position, velocity = state
    positions = []
    for t, projected_t in enumerate(projected.unbind(0)):
        force = torch.tanh(weight * position + projected_t) + alpha * position
        moved = velocity - step * force
        arrived = position + step * moved
        if lengths is None:
            position, velocity = arrived, moved
            positions.append(position)
        else:
            running = (t < lengths).unsqueeze(-1)
            position = torch.where(running, arrived, position)
            velocity = torch.where(running, moved, velocity)
            positions.append(torch.where(running, position, torch.zeros_like(position)))
    return torch.stack(positions), (position, velocity)


def reference_independent_scan(
    projected: Tensor,  # (time, batch, hidden)
    weight: Tensor,  # (hidden,)
    state: Tensor,  # (batch, hidden)
    nonlinearity: Literal["relu", "tanh"] = "relu",
    lengths: Tensor | None = None,  # (batch,)
) -> tuple[Tensor, Tensor]:
    """h' = φ(w ⊙ h + p), step after step."""
    hidden = state
    outputs = []
    for t, projected_t in enumerate(projected.unbind(0)):
        total = weight * hidden + projected_t
        advanced = torch.relu(total) if nonlinearity == "relu" else torch.tanh(total)
        if lengths is None:
            hidden = advanced
            outputs.append(hidden)
        else:
            running = (t < lengths).unsqueeze(-1)
            hidden = torch.where(running, advanced, hidden)
            outputs.append(torch.where(running, hidden, torch.zeros_like(hidden)))
    return torch.stack(outputs), hidden
