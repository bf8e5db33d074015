"""All that is known of sequences: points in time, whether they were seen or asked for."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from undamped._base.contract import Batch
from undamped.models.stamped import stamps_of


class Points(NamedTuple):
    """Values at times of their own.

    Args:
        times: (points, batch) when; anything where nothing is known.
        values: (points, batch, features); finite everywhere.
        known: (points, batch, features) which of them count.
    """

    times: Tensor
    values: Tensor
    known: Tensor

    def joined(self, others: Points) -> Points:
        """Return these points and others, one after the other."""
        return Points(*(torch.cat(pair) for pair in zip(self, others, strict=True)))


def seen_points(batch: Batch, gap: float, dtype: torch.dtype) -> Points:
    """Return the inputs of a batch as points.

    Args:
        batch: The batch.
        gap: How far apart even steps are.
        dtype: The type of the values.
    """
    x = batch.inputs
    known = torch.ones_like(x, dtype=torch.bool) if batch.observed is None else batch.observed
    times = stamps_of(batch, gap).double()
    if batch.lengths is not None:
        steps = torch.arange(len(x), device=x.device).unsqueeze(1)
        running = steps < batch.lengths
        known = known & running.unsqueeze(-1)
        times = torch.where(running, times, 0.0)
    return Points(times, x.to(dtype).masked_fill(~known, 0), known)


def asked_points(batch: Batch, dtype: torch.dtype) -> Points:
    """Return the targets of a batch as points, where answers are asked for by their times."""
    assert batch.target_times is not None
    known = torch.ones_like(batch.targets, dtype=torch.bool)
    if batch.target_mask is not None:
        mask = batch.target_mask
        known = mask if mask.dim() == known.dim() else mask.unsqueeze(-1).expand_as(known)
    values = batch.targets.to(dtype).masked_fill(~known, 0)
    return Points(batch.target_times.double(), values, known)


def without(points: Points, others: Points) -> Points:
    """Return points less those that others hold at the same time: nothing is to count twice."""
    same = points.times.unsqueeze(1) == others.times.unsqueeze(0)  # (points, others, batch)
    twice = (same.unsqueeze(-1) & others.known.unsqueeze(0)).any(1)
    return points._replace(known=points.known & ~twice)
