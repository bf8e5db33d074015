"""Sequences with timestamps and missing values: gaps, last values, readout at query times."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from undamped._base.contract import Batch
from undamped._base.errors import ShapeError
from undamped._base.options import PositiveFloat, PositiveInt
from undamped.nn.sequence_tensors import padding_mask


def time_gaps(
    times: Tensor, lengths: Tensor | None, unit: float, start: Tensor | None = None
) -> Tensor:
    """Return the time since the previous step, (time, batch) in double precision.

    Differences are computed before rounding, so that timestamps may be as large as Unix time.
    Timestamps that decrease are refused.

    Args:
        times: (time, batch) timestamps; those after the end of a sequence may be anything.
        lengths: (batch,) the true length of each sequence; None if all are full.
        unit: The usual gap, which timestamps have to resolve.
        start: (batch,) the time before the first step; by default that of the first step.
    """
    timestamps = times.double()
    first = timestamps[:1] if start is None else start.unsqueeze(0)
    gaps = torch.diff(timestamps, dim=0, prepend=first)
    size = timestamps.abs()
    if lengths is not None:
        running = torch.arange(len(times), device=times.device).unsqueeze(1) < lengths
        gaps, size = (torch.where(running, part, 0.0) for part in (gaps, size))
    if not bool((gaps >= 0).all()):
        least = "" if start is None else ", nor precede time 0 or that of the initial state"
        raise ShapeError(
            f"times must never decrease{least}. Sort the samples of every sequence by time and "
            "count from its start."
        )
    if times.is_floating_point() and times.dtype != torch.float64:
        resolution = float(size.max()) * torch.finfo(times.dtype).eps
        if resolution > 0.1 * unit:
            raise ShapeError(
                f"times must be torch.float64, got {times.dtype}, whose resolution near "
                f"{float(size.max()):.3g} is {resolution:.2g}. Convert them, or count from the "
                "start of each sequence."
            )
    return gaps


def gap_feature(gap: Tensor, unit: float) -> Tensor:
    """Return ln(1 + gap/unit), the gap as an input of a network.

    It is 0 for repeated timestamps, about 1 for usual gaps, and 7 for a gap of a thousand usual
    ones.
    """
    return torch.log1p(gap / unit)


def timestamps_of(batch: Batch, unit: float) -> Tensor:
    """Return the timestamps of a batch (time, batch); by default regular ones, `unit` apart."""
    if batch.times is not None:
        return batch.times
    steps, size = batch.inputs.shape[:2]
    regular = torch.arange(steps, dtype=torch.float64, device=batch.inputs.device) * unit
    return regular[:, None].expand(steps, size)


def hold_last(x: Tensor, observed: Tensor, before: Tensor | None = None) -> Tensor:
    """Return (time, batch, features) with missing values replaced by the last measured one.

    Args:
        x: Values; missing ones may be anything.
        observed: Mask of the measured values.
        before: (batch, features) values before the first step; zeros by default.
    """
    steps = torch.arange(len(x), device=x.device).view(-1, 1, 1)
    last = torch.where(observed, steps, -1).cummax(0).values
    start = x.new_zeros(x.shape[1:]) if before is None else before
    return torch.where(last >= 0, x.gather(0, last.clamp(min=0)), start)


def last_before(times: Tensor, lengths: Tensor | None, queries: Tensor) -> tuple[Tensor, Tensor]:
    """Return the last step at or before each query time, and the time since.

    Args:
        times: (time, batch) timestamps of the steps.
        lengths: (batch,) the true length of each sequence; None if all are full.
        queries: (outputs, batch) the query times.

    Returns:
        Steps (outputs, batch), −1 if there is none before; and the time since that step, or since
        time 0 if there is none.
    """
    times, queries = times.double(), queries.double()
    sequences = times.T
    if lengths is not None:
        steps = torch.arange(len(times), device=times.device)
        sequences = torch.where(steps < lengths.unsqueeze(1), sequences, torch.inf)
    step = torch.searchsorted(sequences.contiguous(), queries.T.contiguous(), right=True).T - 1
    timestamp = times.gather(0, step.clamp(min=0))
    since = queries - torch.where(step >= 0, timestamp, torch.zeros_like(timestamp))
    return step, since.clamp(min=0)


def refuse_before(queries: Tensor, start: Tensor | float) -> None:
    """Refuse query times (outputs, batch) before the time of the initial state, (batch,) or one."""
    if bool((queries < start).any()):
        raise ShapeError(
            "target_times must not precede the initial state (time 0 by default). Count them from "
            "the same origin as the timestamps of the samples."
        )


class HeadAtTimes(nn.Module):
    """A readout at query times: a perceptron of the last output, and of the time since then.

    It is for networks without a flow, whose state does not change between samples. It has a hidden
    layer, since a linear readout could not even represent a value that decays.

    Args:
        in_features: Features of the network's output.
        out_features: Features of a prediction.
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
        self, features: Tensor, times: Tensor, lengths: Tensor | None, queries: Tensor
    ) -> Tensor:
        """Return predictions (outputs, batch, out).

        Args:
            features: (time, batch, in) the outputs of the network.
            times: (time, batch) timestamps of the samples.
            lengths: (batch,) the true length of each sequence.
            queries: (outputs, batch) the query times.
        """
        refuse_before(queries, 0.0)
        step, since = last_before(times, lengths, queries)
        index = step.clamp(min=0).unsqueeze(-1).expand(*step.shape, features.shape[-1])
        last = features.gather(0, index).masked_fill((step < 0).unsqueeze(-1), 0)
        ago = gap_feature(since, self.gap).unsqueeze(-1).to(features.dtype)
        return self.readout(torch.tanh(self.hidden(torch.cat([last, ago], -1))))


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
    """Return the inputs of a batch as points of a type; regular steps are `gap` apart."""
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
