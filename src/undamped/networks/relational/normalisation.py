"""Temporal context normalisation: every feature has mean zero and variance one over a sequence."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

EPSILON = 1e-8


class TemporalContextNorm(nn.Module):
    """z = γ (u − mean u) / √(var u + 1e-8) + β, over the steps of a sequence or of each segment.

    The variance is the unbiased one, so that a segment needs two steps. All steps have to be
    there: what comes behind it cannot answer sample by sample.

    Args:
        features: Features of a step.
        segments: Steps of each part that is normalised on its own; none for the whole sequence.

    Reference:
        T. W. Webb and others. Learning representations that support extrapolation. ICML, 2020.
    """

    def __init__(self, features: int, segments: Sequence[int] = ()) -> None:
        super().__init__()
        self.segments = tuple(segments)
        self.gamma = nn.Parameter(torch.ones(features))
        self.beta = nn.Parameter(torch.zeros(features))

    def forward(self, codes: Tensor) -> Tensor:
        """Return (time, batch, features) with mean zero and variance one in time."""
        if len(self.segments) > 1:
            parts = [_standardised(part) for part in codes.split(self.segments)]
            return torch.cat(parts) * self.gamma + self.beta
        return _standardised(codes) * self.gamma + self.beta


def _standardised(codes: Tensor) -> Tensor:
    variance, mean = torch.var_mean(codes, 0)
    return (codes - mean) / torch.sqrt(variance + EPSILON)
