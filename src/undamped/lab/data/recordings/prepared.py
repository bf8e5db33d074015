"""Prepared series: standardised values without gaps, timestamps and masks, padded in batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from undamped._base.contract import Batch


class PreparedSeries(NamedTuple):
    """One series after its preparation.

    Args:
        inputs: (time, channels) float32, standardised, gaps filled.
        times: (time,) float64, typical gaps since the first step; None where steps are regular.
        observed: (time, channels) bool, which values were measured; None without a mask.
    """

    inputs: np.ndarray
    times: np.ndarray | None = None
    observed: np.ndarray | None = None

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return sum(array.nbytes for array in self if array is not None)


class PreparedSamples(NamedTuple):
    """Samples of a stream after their preparation.

    Args:
        inputs: (samples, channels) float32.
        dt: (samples,) typical gaps since the previous sample, 0 for the first; None where steps
            are regular.
        observed: (samples, channels) bool, or None.
    """

    inputs: np.ndarray
    dt: np.ndarray | None = None
    observed: np.ndarray | None = None


def batch_of(series: Sequence[PreparedSeries]) -> Batch:
    """Return series of unequal length as one batch without targets, padded to the longest."""
    lengths = torch.tensor([len(prepared.inputs) for prepared in series])
    equal = bool((lengths == lengths[0]).all())
    inputs = pad_sequence([torch.from_numpy(prepared.inputs) for prepared in series])
    times = observed = None
    if series[0].times is not None:
        times = pad_timestamps([torch.from_numpy(prepared.times) for prepared in series])
    if series[0].observed is not None:
        observed = pad_sequence([torch.from_numpy(prepared.observed) for prepared in series])
    return Batch(inputs, lengths=None if equal else lengths, times=times, observed=observed)


def pad_timestamps(timestamps: Sequence[Tensor]) -> Tensor:
    """Return timestamps (time, batch), each series padded with its last one."""
    longest = max(len(times) for times in timestamps)
    return torch.stack(
        [torch.cat([times, times[-1:].expand(longest - len(times))]) for times in timestamps], dim=1
    )


def hold(values: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Fill gaps of standardised values with the last value, before the first one with the mean.

    Args:
        values: (time, channels), with mean 0.
        observed: (time, channels) which of them are not missing.
    """
    steps = np.arange(len(values))[:, None]
    last = np.maximum.accumulate(np.where(observed, steps, -1), axis=0)
    filled = np.take_along_axis(values, np.maximum(last, 0), axis=0)
    return np.where(last >= 0, filled, 0.0)


def interpolate(
    values: np.ndarray, observed: np.ndarray, times: np.ndarray | None = None
) -> np.ndarray:
    """Fill gaps of standardised values linearly, at the ends with the nearest value.

    A channel without any value is filled with the mean, 0.

    Args:
        values: (time, channels), with mean 0.
        observed: (time, channels) which of them are not missing.
        times: (time,) increasing timestamps; regular steps by default.
    """
    if observed.all():
        return values
    filled, steps = values.copy(), np.arange(len(values)) if times is None else times
    for channel in np.flatnonzero(~observed.all(0)):
        valid = observed[:, channel]
        filled[:, channel] = (
            np.interp(steps, steps[valid], values[valid, channel]) if valid.any() else 0.0
        )
    return filled
