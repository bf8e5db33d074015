"""A readout that is told how long ago the last sample was."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from undamped._base.options import PositiveFloat, PositiveInt
from undamped.models.stamped import gap_feature, last_before, refuse_before


class HeadAtTimes(nn.Module):
    """A perceptron of the features at the last sample, and of the time that has passed since.

    What a network without a flow can say about a moment without a sample: the state stands still,
    and the readout learns what becomes of it. Linear in the state alone it could not even let a
    value decay, hence one hidden layer.

    Args:
        in_features: Features of the network's output.
        out_features: Features of an answer.
        gap: The usual time between two samples.
    """

    def __init__(
        self, in_features: PositiveInt, out_features: PositiveInt, *, gap: PositiveFloat = 1.0
    ) -> None:
        super().__init__()
        self.in_features, self.out_features, self.gap = in_features, out_features, gap
        self.hidden = nn.Linear(in_features + 1, max(in_features, 16))
        self.readout = nn.Linear(self.hidden.out_features, out_features)

    def forward(
        self, features: Tensor, times: Tensor, lengths: Tensor | None, asked: Tensor
    ) -> Tensor:
        """Return answers (outputs, batch, out).

        Args:
            features: (time, batch, in) the network's outputs.
            times: (time, batch) when the samples came.
            lengths: (batch,) how many samples count.
            asked: (outputs, batch) the times of the answers.
        """
        refuse_before(asked, 0.0)
        place, since = last_before(times, lengths, asked)
        index = place.clamp(min=0).unsqueeze(-1).expand(*place.shape, features.shape[-1])
        known = features.gather(0, index).masked_fill((place < 0).unsqueeze(-1), 0)
        ago = gap_feature(since, self.gap).unsqueeze(-1).to(features.dtype)
        return self.readout(torch.tanh(self.hidden(torch.cat([known, ago], -1))))
