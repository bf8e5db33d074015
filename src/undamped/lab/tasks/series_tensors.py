"""Recordings as tensors: what goes in, and what is wanted, of any series of a set."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

import numpy as np
import torch
from torch import Tensor

from undamped._base.contract import Batch
from undamped.lab.data.recordings.preparation import Preparation
from undamped.lab.data.recordings.prepared import PreparedSeries, batch_of, pad_timestamps
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.tasks.series_scores import NO_ANSWER

IN_MEMORY = 1 << 28
"""Bytes of prepared series that are kept."""


@dataclass
class SeriesTensors:
    """Series of a set, prepared when they are asked for; some are kept.

    Args:
        series_set: What a model answers about: series, or windows of them.
        recordings: What was read, before it was cut into windows.
        preparation: What was learnt of channels, gaps and answers.
        horizon: How many values at the end of each are to be predicted; 0 for none.
        whole_past: Whether all that was before a window goes in too.
    """

    series_set: SeriesSet
    recordings: SeriesSet
    preparation: Preparation
    horizon: int
    whole_past: bool = False
    _prepared: dict[int, PreparedSeries] = field(default_factory=dict, repr=False)
    _kept: int = 0

    def __getstate__(self) -> dict[str, object]:
        """Return what another process is sent; what was prepared is prepared there again."""
        return {**self.__dict__, "_prepared": {}, "_kept": 0}

    def batch(self, numbers: np.ndarray) -> Batch:
        """Prepare the chosen series and pad them to the longest."""
        batch = batch_of([self._inputs(int(number)) for number in numbers])
        targets = self._targets(numbers)
        if not self.preparation.at_times:
            return batch._replace(targets=targets)
        ahead = pad_timestamps([self._times_to_come(int(number)) for number in numbers])
        return batch._replace(
            targets=targets, target_times=ahead, target_mask=~torch.isnan(targets)
        )

    def _inputs(self, number: int) -> PreparedSeries:
        kept = self._prepared.get(number)
        if kept is not None:
            return kept
        raw, times = self._raw(number)
        stop = len(raw) - self.horizon
        made = self.preparation.prepare(raw[:stop], None if times is None else times[:stop])
        if self._kept + made.nbytes <= IN_MEMORY:
            self._prepared[number] = made
            self._kept += made.nbytes
        return made

    def _raw(self, number: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Return a window with its timestamps; with `whole_past`, all steps before it too."""
        cut, origin = self.series_set, self.series_set.origin
        times = None if cut.times is None else cut.times[number]
        if not self.whole_past or origin is None:
            return cut.series[number], times
        # Windows know their recording by its content: the first of those that are alike.
        recording = int(np.flatnonzero(self._copies == origin[number, 0])[0])
        stop = int(origin[number, 1]) + len(cut.series[number])
        whole = self.recordings
        timestamps = None if whole.times is None else whole.times[recording][:stop]
        return whole.series[recording][:stop], timestamps

    @cached_property
    def _copies(self) -> np.ndarray:
        return self.recordings.copies()

    def _times_to_come(self, number: int) -> Tensor:
        """Return the times of the values to come (horizon,), in usual gaps since the first step."""
        assert self.series_set.times is not None
        times = self.series_set.times[number]
        ahead = (times[-self.horizon :] - times[0]) / self.preparation.typical_gap
        return torch.from_numpy(ahead)

    def _targets(self, numbers: np.ndarray) -> Tensor:
        prepared, targets = self.preparation, self.series_set.targets
        if prepared.kind == "forecast":
            ahead = torch.stack([self._to_come(int(number)) for number in numbers])
            if not prepared.at_times:
                return ahead
            return ahead.unflatten(1, (self.horizon, -1)).transpose(0, 1)  # (horizon, batch, …)
        if isinstance(targets, list):
            padding = NO_ANSWER if prepared.classes is not None else float("nan")
            columns = [torch.from_numpy(prepared.encode(targets[number])) for number in numbers]
            return torch.nn.utils.rnn.pad_sequence(columns, padding_value=padding)
        return torch.from_numpy(prepared.encode(cast(np.ndarray, targets)[numbers]))

    def _to_come(self, number: int) -> Tensor:
        """Return the values to come, standardised, missing ones as NaN; (horizon · channels,)."""
        prepared, names = self.preparation, self.series_set.channels
        ahead = np.asarray(self.series_set.series[number][-self.horizon :], dtype=np.float64)
        chosen = ahead[:, [names.index(name) for name in prepared.forecast]]
        standard = (chosen - prepared.target_mean) / prepared.target_std
        return torch.from_numpy(standard.astype(np.float32).ravel())
