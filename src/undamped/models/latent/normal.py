"""Normal distributions with independent coordinates."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

_LOG_ROOT = 0.5 * math.log(2 * math.pi)


class Normal(NamedTuple):
    """A normal distribution, one for each row; independent coordinates.

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
        """Return the logarithm of the density at values (…, size), summed over coordinates."""
        return log_normal(value, self.mean, self.log_std).sum(-1)

    def divergence(self) -> Tensor:
        """Return the divergence from the standard normal distribution, KL(self ‖ N(0, 1))."""
        variance = (2 * self.log_std).exp()
        return (0.5 * (variance + self.mean.square() - 1) - self.log_std).sum(-1)


def standard(like: Tensor) -> Normal:
    """Return the standard normal distribution of values (…, size)."""
    return Normal(torch.zeros_like(like), torch.zeros_like(like))


def log_normal(value: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Return log N(value; mean, std²), coordinate by coordinate."""
    error = (value - mean) * torch.exp(-log_std)
    return -0.5 * error.square() - log_std - _LOG_ROOT
