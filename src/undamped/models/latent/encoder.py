"""From a sequence to what it says about its beginning: a network that reads it backwards."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.contract import Batch
from undamped.models.irregular.network import StampedNetwork
from undamped.models.latent.normal import Normal
from undamped.models.stamped import stamps_of, time_gaps
from undamped.nn.sequence_tensors import reverse_time


class BackwardEncoder(nn.Module):
    """Read a sequence from its last sample to its first, then flow on to time 0.

    Time 0 is the same moment for all sequences, whatever their first sample is and whatever else
    is in a batch, so that a latent state there means the same for all of them.

    Args:
        network: What reads.
        latent_size: Features of the latent state.
        hidden_size: Width of the layer between the network's state and mean and deviation.
    """

    def __init__(self, network: StampedNetwork, latent_size: int, hidden_size: int) -> None:
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
        # From e⁻⁷ to e³: a deviation of nothing, or of everything, ends all learning.
        return Normal(mean, 5 * torch.tanh(log_std / 5) - 2)

    def features(self, batch: Batch, dtype: torch.dtype) -> Tensor:
        """Return what the network knows at time 0, (batch, features)."""
        lengths = batch.lengths
        stamps = stamps_of(batch, self.network.gap)
        start = stamps.new_zeros(stamps.shape[1], dtype=torch.float64)
        stamps = time_gaps(stamps, lengths, self.network.gap, start).cumsum(0)
        x = reverse_time(batch.inputs.to(dtype), lengths)
        observed = None
        if batch.observed is not None:
            observed = reverse_time(batch.observed, lengths)
        turned = reverse_time(stamps.unsqueeze(-1), lengths).squeeze(-1)
        _, final = self.network.states(x, turned[:1] - turned, observed, lengths)
        back = stamps[0] / self.network.gap
        return self.network.output(self.network.flow(final[:-1], back))


def remembering(width: int) -> dict[str, Any]:
    """Return how a GRU begins that is to remember all of a sequence, and to see its few numbers.

    Args:
        width: How many numbers it reads.
    """
    return {"input_std": 1 / math.sqrt(width), "update_bias": 2.5}
