"""From latent states to what is measured, and how likely that was."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from undamped.models.latent.normal import log_normal
from undamped.models.latent.points import Points

SMALLEST = 1e-3
"""Learnt noise stays above this: a likelihood without bound would end in a single point."""


class Emission(nn.Module):
    """x ~ N(decoder(z), σ²): a linear decoder, or one with a hidden layer, and noise.

    Args:
        latent_size: Features of a latent state.
        size: Features of a measurement.
        hidden_size: Width of a hidden layer; 0 for a linear decoder.
        noise: σ, the same for all features; learnt for each if not given.
    """

    def __init__(
        self, latent_size: int, size: int, *, hidden_size: int = 0, noise: float | None = None
    ) -> None:
        super().__init__()
        self.decoder: nn.Module = nn.Linear(latent_size, size)
        if hidden_size:
            self.decoder = nn.Sequential(
                nn.Linear(latent_size, hidden_size), nn.Tanh(), nn.Linear(hidden_size, size)
            )
        self.fixed = noise
        start = 0.3 if noise is None else noise
        self._log_noise = nn.Parameter(torch.full((size,), math.log(start)))
        self._log_noise.requires_grad_(noise is None)

    @property
    def log_noise(self) -> Tensor:
        """log σ (size,)."""
        return self._log_noise if self.fixed else self._log_noise.clamp(min=math.log(SMALLEST))

    def forward(self, z: Tensor) -> Tensor:
        """Return the mean of what is measured, (…, size)."""
        return self.decoder(z)

    def log_likelihood(self, z: Tensor, points: Points) -> Tensor:
        """Return the log-likelihood of all known values of each sequence, (draws, batch).

        Args:
            z: (draws, points, batch, latent) the states at the times of the points.
            points: What was measured.
        """
        each = log_normal(points.values, self(z), self.log_noise)
        return torch.where(points.known, each, 0.0).sum((1, 3))
