"""Normal distributions with independent coordinates, and the emission of measurements."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from undamped.models.latent.points import Points

SMALLEST_NOISE = 1e-3
"""Lower bound of learned noise, without which the likelihood is unbounded."""
_LOG_ROOT = 0.5 * math.log(2 * math.pi)


class Normal(NamedTuple):
    """A normal distribution with independent coordinates for each row.

    Args:
        mean: (…, size).
        log_std: (…, size) logarithms of the standard deviations.
    """

    mean: Tensor
    log_std: Tensor

    def draw(self, count: int) -> Tensor:
        """Return `count` draws (count, …, size), differentiably."""
        noise = torch.randn(count, *self.mean.shape, dtype=self.mean.dtype, device=self.mean.device)
        return self.mean + self.log_std.exp() * noise

    def log_density(self, value: Tensor) -> Tensor:
        """Return the log-density at values (…, size), summed over coordinates."""
        return log_normal(value, self.mean, self.log_std).sum(-1)

    def divergence(self) -> Tensor:
        """Return the divergence from the standard normal distribution, KL(self ‖ N(0, 1))."""
        variance = (2 * self.log_std).exp()
        return (0.5 * (variance + self.mean.square() - 1) - self.log_std).sum(-1)


def standard(like: Tensor) -> Normal:
    """Return the standard normal distribution of values (…, size)."""
    return Normal(torch.zeros_like(like), torch.zeros_like(like))


def log_normal(value: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Return log N(value; mean, std²) of every coordinate."""
    error = (value - mean) * torch.exp(-log_std)
    return -0.5 * error.square() - log_std - _LOG_ROOT


class Emission(nn.Module):
    """x ~ N(decoder(z), σ²): a linear decoder, or one with a hidden layer, and noise.

    Args:
        latent_size: Features of a latent state.
        size: Features of a measurement.
        hidden_size: Width of a hidden layer; 0 for a linear decoder.
        noise: σ, the same for all features; by default it is learned for each.
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
        if self.fixed:
            return self._log_noise
        return self._log_noise.clamp(min=math.log(SMALLEST_NOISE))

    def forward(self, z: Tensor) -> Tensor:
        """Return the mean of measurements, (…, size)."""
        return self.decoder(z)

    def log_likelihood(self, z: Tensor, points: Points) -> Tensor:
        """Return the log-likelihood of all measured values of each sequence, (draws, batch).

        Args:
            z: (draws, points, batch, latent) the states at the times of the points.
            points: The measurements.
        """
        each = log_normal(points.values, self(z), self.log_noise)
        return torch.where(points.mask, each, 0.0).sum((1, 3))
