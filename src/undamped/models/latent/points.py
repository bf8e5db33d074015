"""Parts of latent models: normal distributions, the encoder, and a latent flow.

Inputs and targets of sequences are points in time, which a normal distribution emits. The latent
flow is solved on a regular grid and interpolated at any times.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from undamped._base.contract import Batch
from undamped._base.errors import ShapeError
from undamped.models.irregular.gap_flows import SolvedFlow
from undamped.models.irregular.network import TimestampedNetwork
from undamped.models.timestamped import Points, refuse_before, time_gaps, timestamps_of
from undamped.nn.sequence_tensors import reverse_time

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


def perceptron(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Return two layers with a tanh between them."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs))


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
            self.decoder = perceptron(latent_size, hidden_size, size)
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


UNITS = 5.0
"""Units of the flow's time in the span of a task, so that a small initial field has an effect."""

MOST_STEPS = 20_000
"""Upper bound on the steps of the grid; later times are an error, and would fill the memory."""


class BackwardEncoder(nn.Module):
    """A network that reads a sequence from its last sample to its first, then flows to time 0.

    Time 0 is the same for all sequences, whatever their first sample is, so that latent states of
    different sequences are comparable.

    Args:
        network: The network.
        latent_size: Features of the latent state.
        hidden_size: Width of the layer before mean and standard deviation.
    """

    def __init__(self, network: TimestampedNetwork, latent_size: int, hidden_size: int) -> None:
        super().__init__()
        self.network = network
        self.readout = perceptron(network.output_size, hidden_size, 2 * latent_size)

    def forward(self, batch: Batch, dtype: torch.dtype) -> Normal:
        """Return q(z₀ | x), (batch, latent)."""
        mean, log_std = self.readout(self.features(batch, dtype)).chunk(2, dim=-1)
        # From e⁻⁷ to e³: outside of this range gradients vanish.
        return Normal(mean, 5 * torch.tanh(log_std / 5) - 2)

    def features(self, batch: Batch, dtype: torch.dtype) -> Tensor:
        """Return the output of the network at time 0, (batch, features)."""
        lengths = batch.lengths
        timestamps = timestamps_of(batch, self.network.gap)
        start = timestamps.new_zeros(timestamps.shape[1], dtype=torch.float64)
        timestamps = time_gaps(timestamps, lengths, self.network.gap, start).cumsum(0)
        x = reverse_time(batch.inputs.to(dtype), lengths)
        observed = None if batch.observed is None else reverse_time(batch.observed, lengths)
        reversed_times = reverse_time(timestamps.unsqueeze(-1), lengths).squeeze(-1)
        _, final = self.network.states(x, reversed_times[:1] - reversed_times, observed, lengths)
        back = timestamps[0] / self.network.gap
        return self.network.output(self.network.flow(final[:-1], back))


class LatentFlow(nn.Module):
    """An autonomous flow from time 0 on, solved once on a grid that does not depend on the data.

    Between the points of the grid values are interpolated by cubics with the slopes of the flow (an
    error of the fourth order, as for rk4). So interpolation is cheap, every sequence has its own
    query times, and no value depends on the other query times.

    Args:
        field: dz/dt, a module called with (t, z).
        span: Duration of the sequences.
        steps: Steps of the grid in that time.
        method: The solver.
    """

    def __init__(self, field: nn.Module, *, span: float, steps: int, method: str = "rk4") -> None:
        super().__init__()
        self.span, self.steps = span, steps
        self.step = SolvedFlow(field, method=method)

    def forward(self, z: Tensor, times: Tensor) -> Tensor:
        """Return states (draws, times, batch, size) at times (times, batch) from 0 on."""
        refuse_before(times, 0.0)
        position = times * (self.steps / self.span)
        path, slopes = self.path_until(z, position)
        return cubic(path, slopes, position)

    def path_until(self, z: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        """Return states and slopes up to the last of some positions, in steps of the grid."""
        return self.path(z, max(1, math.ceil(float(position.max()) - 1e-9)))

    def path(self, z: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        """Return states and slopes per step, (grid, draws, batch, size), of `steps` steps."""
        if steps > MOST_STEPS:
            raise ShapeError(
                f"times must be at most {MOST_STEPS / self.steps:,.0f} spans of the task "
                f"({self.span:g} each), got {steps * self.span / self.steps:,.0f}. Count them from "
                "the start of each sequence."
            )
        size = UNITS / self.steps
        rows = z.flatten(0, 1)
        gap = rows.new_full((len(rows),), size)
        states = [rows]
        for _ in range(steps):
            states.append(self.step(states[-1], gap))
        path = torch.stack(states).unflatten(1, z.shape[:2])
        return path, self.step.field(0.0, path) * size


def integral(path: Tensor, slopes: Tensor, rate: Callable[[Tensor], Tensor], end: Tensor) -> Tensor:
    """Return ∫ rate(z) from the grid's first point to an end, (draws, batch, rates).

    Simpson's rule over the steps of the grid; the last, incomplete one lies on the cubic whose
    slopes are the rates themselves.

    Args:
        path: (grid, draws, batch, size).
        slopes: The derivatives there, per step of the grid.
        rate: From states (…, size) to rates (…, rates), per step of the grid.
        end: (batch,) the upper limit, in steps of the grid.
    """
    steps = len(path) - 1
    middles = torch.arange(steps, device=path.device) + 0.5
    between = cubic(path, slopes, middles.unsqueeze(1).expand(-1, path.shape[2]))
    at_points, at_middles = rate(path), rate(between).transpose(0, 1)
    each = (at_points[:-1] + 4 * at_middles + at_points[1:]) / 6
    total = torch.cat([torch.zeros_like(each[:1]), each.cumsum(0)])
    return cubic(total, at_points, end.unsqueeze(0)).squeeze(1)


def cubic(path: Tensor, slopes: Tensor, position: Tensor) -> Tensor:
    """Return values between the points of a grid, interpolated by cubics with given slopes.

    Args:
        path: (grid, draws, batch, size).
        slopes: The derivatives there, per step of the grid.
        position: (times, batch) in steps of the grid.

    Returns:
        (draws, times, batch, size).
    """
    low = position.floor().clamp(0, len(path) - 2).long()
    s = (position - low).to(path.dtype).view(1, *position.shape, 1)
    sequence = torch.arange(position.shape[1], device=position.device)

    def at(values: Tensor, index: Tensor) -> Tensor:
        # (grid, draws, batch, size) at (times, batch): advanced indices come first.
        return values.transpose(1, 2)[index, sequence].permute(2, 0, 1, 3)

    before, after = at(path, low), at(path, low + 1)
    rising, falling = at(slopes, low), at(slopes, low + 1)
    rest = 1 - s
    return rest * rest * ((1 + 2 * s) * before + s * rising) + s * s * (
        (3 - 2 * s) * after - rest * falling
    )
