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


def reference_linear_scan(
    inputs: Tensor,  # (time, batch, hidden), or pairs (time, batch, hidden, 2)
    coefficients: Tensor,
    state: Tensor,  # one step of the inputs
    lengths: Tensor | None = None,  # (batch,)
) -> tuple[Tensor, Tensor]:
    """h' = a h + u, step after step; see `linear_scan` for the shapes."""
    per_step = coefficients.dim() >= inputs.dim()
    matrices = coefficients.dim() - 2 * per_step == inputs.dim() - 1 == 3
    hidden, outputs = state, []
    for t, input_t in enumerate(inputs.unbind(0)):
        advanced = _times(coefficients[t] if per_step else coefficients, hidden, matrices) + input_t
        if lengths is None:
            hidden = advanced
            outputs.append(hidden)
        else:
            running = (t < lengths).view(-1, *[1] * (state.dim() - 1))
            hidden = torch.where(running, advanced, hidden)
            outputs.append(torch.where(running, hidden, torch.zeros_like(hidden)))
    return torch.stack(outputs), hidden


def _times(coefficients: Tensor, state: Tensor, matrices: bool) -> Tensor:
    """Return a h for numbers, for pairs that are complex numbers, or for pairs and matrices."""
    if matrices:
        return (coefficients * state.unsqueeze(-2)).sum(-1)
    if state.dim() == 3:
        (a, b), (x, y) = coefficients.unbind(-1), state.unbind(-1)
        return torch.stack([a * x - b * y, b * x + a * y], -1)
    return coefficients * state


def reference_linear_oscillator_scan(
    inputs: Tensor,  # (time, batch, hidden)
    coefficients: Tensor,  # (a, k, f, s; hidden)
    state: PositionVelocity,  # (batch, hidden) each
    lengths: Tensor | None = None,  # (batch,)
) -> tuple[Tensor, PositionVelocity]:
    """z' = a z − k x + f u, x' = x + s z', step after step."""
    decay, stiffness, gain, step = coefficients.unbind(0)
    position, velocity = state
    outputs = []
    for t, input_t in enumerate(inputs.unbind(0)):
        moved = decay * velocity + (gain * input_t - stiffness * position)
        arrived = position + step * moved
        if lengths is None:
            position, velocity = arrived, moved
            outputs.append(position)
        else:
            running = (t < lengths).unsqueeze(-1)
            position = torch.where(running, arrived, position)
            velocity = torch.where(running, moved, velocity)
            outputs.append(torch.where(running, position, torch.zeros_like(position)))
    return torch.stack(outputs), (position, velocity)
