"""Sequences with time stamps and missing values: gaps, held values, what was last before a time."""

from __future__ import annotations

import torch
from torch import Tensor

from undamped._base.contract import Batch
from undamped._base.errors import ShapeError, explain


def time_gaps(
    times: Tensor, lengths: Tensor | None, usual: float, start: Tensor | None = None
) -> Tensor:
    """Return the time since the step before, (time, batch) in double precision.

    Differences are taken before anything is rounded, so that timestamps may be as large as Unix
    time. Timestamps that decrease are refused.

    Args:
        times: (time, batch) when the steps were; anything beyond a sequence's length.
        lengths: (batch,) how many of them count; all if None.
        usual: The usual gap, which timestamps have to resolve.
        start: (batch,) the time before the first step; that of the first step if None.
    """
    stamps = times.double()
    first = stamps[:1] if start is None else start.unsqueeze(0)
    passed = torch.diff(stamps, dim=0, prepend=first)
    size = stamps.abs()
    if lengths is not None:
        running = torch.arange(len(times), device=times.device).unsqueeze(1) < lengths
        passed, size = (torch.where(running, part, 0.0) for part in (passed, size))
    if not bool((passed >= 0).all()):
        least = "" if start is None else ", from time 0 or that of the given state on"
        raise ShapeError(
            explain(
                "times",
                expected=f"timestamps that never decrease{least}",
                got="others",
                remedy="Sort the samples of every sequence by time and count from its start.",
            )
        )
    if times.is_floating_point() and times.dtype != torch.float64:
        resolution = float(size.max()) * torch.finfo(times.dtype).eps
        if resolution > 0.1 * usual:
            raise ShapeError(
                explain(
                    "times",
                    expected="timestamps in double precision",
                    got=f"{times.dtype}, whose resolution near {float(size.max()):.3g} is "
                    f"{resolution:.2g}",
                    remedy="Make them torch.float64, or count from the start of each sequence.",
                )
            )
    return passed


def gap_feature(gap: Tensor, usual: float) -> Tensor:
    """Return a gap as a network should see it: ln(1 + gap/usual).

    Repeated stamps are 0, usual gaps about 1, and one that is a thousand times longer is 7 and
    not 1000.
    """
    return torch.log1p(gap / usual)


def stamps_of(batch: Batch, usual: float) -> Tensor:
    """Return the times of the inputs (time, batch), even steps where a batch has none.

    Even steps are in double precision.

    Args:
        batch: The batch; steps or points come first.
        usual: How far apart even steps are.
    """
    if batch.times is not None:
        return batch.times
    steps, size = batch.inputs.shape[:2]
    even = torch.arange(steps, dtype=torch.float64, device=batch.inputs.device) * usual
    return even[:, None].expand(steps, size)


def hold_last(x: Tensor, observed: Tensor, before: Tensor | None = None) -> Tensor:
    """Return (time, batch, features) with the last measured value where none was measured.

    Args:
        x: Values, anything where not observed.
        observed: What was measured.
        before: (batch, features) the values to hold at the beginning; zeros if none are given.
    """
    steps = torch.arange(len(x), device=x.device).view(-1, 1, 1)
    last = torch.where(observed, steps, -1).cummax(0).values
    start = x.new_zeros(x.shape[1:]) if before is None else before
    return torch.where(last >= 0, x.gather(0, last.clamp(min=0)), start)


def last_before(times: Tensor, lengths: Tensor | None, asked: Tensor) -> tuple[Tensor, Tensor]:
    """Return which step was the last at or before each asked time, and how long ago it was.

    Args:
        times: (time, batch) when the steps were.
        lengths: (batch,) how many of them count; all if None.
        asked: (outputs, batch) the times in question.

    Returns:
        Steps (outputs, batch), −1 where there was none before; and the time since then, or since
        time 0 where there was none.
    """
    times, asked = times.double(), asked.double()
    own = times.T
    if lengths is not None:
        steps = torch.arange(len(times), device=times.device)
        own = torch.where(steps < lengths.unsqueeze(1), own, torch.inf)
    place = torch.searchsorted(own.contiguous(), asked.T.contiguous(), right=True).T - 1
    stamp = times.gather(0, place.clamp(min=0))
    since = asked - torch.where(place >= 0, stamp, torch.zeros_like(stamp))
    return place, since.clamp(min=0)


def refuse_before(asked: Tensor, start: Tensor | float) -> None:
    """Refuse times of answers before that of the first state, of which nothing is known.

    Args:
        asked: (outputs, batch) when answers are asked for.
        start: (batch,) the time of the first state, or one for all.
    """
    if bool((asked < start).any()):
        raise ShapeError(
            explain(
                "target_times",
                expected="times from that of the first state on (0 where none is given)",
                got="earlier ones",
                remedy="Count them from the same moment as the timestamps of the samples.",
            )
        )
