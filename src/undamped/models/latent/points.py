"""Values of sequences as points in time, whether they are inputs or targets."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from undamped._base.contract import Batch
from undamped.models.timestamped import timestamps_of


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
        steps = torch.arange(len(x), device=x.device).unsqueeze(1)
        running = steps < batch.lengths
        mask = mask & running.unsqueeze(-1)
        times = torch.where(running, times, 0.0)
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
