"""Recordings as a network takes them: values, when they were taken, which of them were measured."""

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
        times: (time,) float64, usual gaps since the first step; None where steps are even.
        observed: (time, channels) bool, what was measured; None where nobody has to know.
    """

    inputs: np.ndarray
    times: np.ndarray | None = None
    observed: np.ndarray | None = None

    @property
    def nbytes(self) -> int:
        """Memory it takes."""
        return sum(part.nbytes for part in self if part is not None)


class PreparedSamples(NamedTuple):
    """Samples of a stream after their preparation.

    Args:
        inputs: (samples, channels) float32.
        dt: (samples,) usual gaps since the sample before, 0 for the first; None where steps are
            even.
        observed: (samples, channels) bool, or None.
    """

    inputs: np.ndarray
    dt: np.ndarray | None = None
    observed: np.ndarray | None = None


def batch_of(series: Sequence[PreparedSeries]) -> Batch:
    """Return series of unequal length as one batch without targets, padded to the longest."""
    lengths = torch.tensor([len(one.inputs) for one in series])
    equal = bool((lengths == lengths[0]).all())
    inputs = pad_sequence([torch.from_numpy(one.inputs) for one in series])
    times = observed = None
    if series[0].times is not None:
        times = pad_stamps([torch.from_numpy(one.times) for one in series])
    if series[0].observed is not None:
        observed = pad_sequence([torch.from_numpy(one.observed) for one in series])
    return Batch(inputs, lengths=None if equal else lengths, times=times, observed=observed)


def pad_stamps(stamps: Sequence[Tensor]) -> Tensor:
    """Return time stamps (time, batch), each series' last one repeated to the longest."""
    longest = max(len(one) for one in stamps)
    return torch.stack(
        [torch.cat([one, one[-1:].expand(longest - len(one))]) for one in stamps], dim=1
    )
