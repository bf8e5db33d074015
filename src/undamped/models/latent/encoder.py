"""The encoder of latent models: a network that reads a sequence backwards to time 0."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.contract import Batch
from undamped.models.irregular.network import TimestampedNetwork
from undamped.models.latent.normal import Normal
from undamped.models.timestamped import time_gaps, timestamps_of
from undamped.nn.sequence_tensors import reverse_time


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
        self.readout = nn.Sequential(
            nn.Linear(network.output_size, hidden_size),
            nn.Tanh(),
            nn.Linear(hidden_size, 2 * latent_size),
        )

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
        observed = None
        if batch.observed is not None:
            observed = reverse_time(batch.observed, lengths)
        reversed_times = reverse_time(timestamps.unsqueeze(-1), lengths).squeeze(-1)
        _, final = self.network.states(x, reversed_times[:1] - reversed_times, observed, lengths)
        back = timestamps[0] / self.network.gap
        return self.network.output(self.network.flow(final[:-1], back))


def long_memory_options(width: int) -> dict[str, Any]:
    """Return initial values of a GRU with long memory and few inputs, as cell options.

    Args:
        width: Number of inputs.
    """
    return {"input_std": 1 / math.sqrt(width), "update_bias": 2.5}
