"""Points in time, which inputs and targets of sequences are, and their normal distributions."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from undamped._base.contract import Batch
from undamped.models.timestamped import timestamps_of
from undamped.nn.sequence_tensors import padding_mask

SMALLEST_NOISE = 1e-3
"""Lower bound of learned noise, without which the likelihood is unbounded."""
_LOG_ROOT = 0.5 * math.log(2 * math.pi)


class Points(NamedTuple):
    """Values with one timestamp per point and sequence.

    Args:
        times: (points, batch) timestamps; anything where the mask is false.
        values: (points, batch, features); finite everywhere.
        mask: (points, batch, features) which values are measured.
    """

    times: Tensor
    values: Tensor
    mask: Tensor

    def joined(self, points: Points) -> Points:
        """Return these points followed by others."""
        return Points(*(torch.cat(pair) for pair in zip(self, points, strict=True)))


def observed_points(batch: Batch, gap: float, dtype: torch.dtype) -> Points:
    """Return the inputs of a batch as points.

    Args:
        batch: The batch.
        gap: The time between regular steps.
        dtype: The type of the values.
    """
    x = batch.inputs
    mask = torch.ones_like(x, dtype=torch.bool) if batch.observed is None else batch.observed
    times = timestamps_of(batch, gap).double()
    if batch.lengths is not None:
        running = ~padding_mask(x, batch.lengths)
        mask = mask & running
        times = torch.where(running.squeeze(-1), times, 0.0)
    return Points(times, x.to(dtype).masked_fill(~mask, 0), mask)


def target_points(batch: Batch, dtype: torch.dtype) -> Points:
    """Return the targets of a batch with target times as points."""
    assert batch.target_times is not None
    mask = torch.ones_like(batch.targets, dtype=torch.bool)
    if (target_mask := batch.target_mask) is not None:
        matches = target_mask.dim() == mask.dim()
        mask = target_mask if matches else target_mask.unsqueeze(-1).expand_as(mask)
    values = batch.targets.to(dtype).masked_fill(~mask, 0)
    return Points(batch.target_times.double(), values, mask)


def without(points: Points, excluded: Points) -> Points:
    """Return points without those that `excluded` holds at the same time, to count none twice."""
    same = points.times.unsqueeze(1) == excluded.times.unsqueeze(0)  # (points, excluded, batch)
    repeated = (same.unsqueeze(-1) & excluded.mask.unsqueeze(0)).any(1)
    return points._replace(mask=points.mask & ~repeated)


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
        """Return the log-likelihood (draws, batch) of points, given states at their times."""
        each = log_normal(points.values, self(z), self.log_noise)
        return torch.where(points.mask, each, 0.0).sum((1, 3))
