"""Recordings as tensors: inputs and targets of the series of a set."""

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
"""Bytes of prepared series that are cached."""


@dataclass
class SeriesTensors:
    """Series of a set, prepared when they are requested and cached as far as memory allows.

    Args:
        series_set: Series, or windows of them.
        recordings: The recordings, before they were cut into windows.
        preparation: The fitted preparation of channels, missing values and targets.
        horizon: How many values at the end of each are predicted; 0 for none.
        whole_past: Whether inputs include all steps before a window.
    """

    series_set: SeriesSet
    recordings: SeriesSet
    preparation: Preparation
    horizon: int
    whole_past: bool = False
    _prepared: dict[int, PreparedSeries] = field(default_factory=dict, repr=False)
    _cached_bytes: int = 0

    def __getstate__(self) -> dict[str, object]:
        """Return the state without the cache, which another process fills again."""
        return {**self.__dict__, "_prepared": {}, "_cached_bytes": 0}

    def batch(self, indices: np.ndarray) -> Batch:
        """Prepare some series and pad them to the longest."""
        batch = batch_of([self._inputs(int(index)) for index in indices])
        targets = self._targets(indices)
        if not self.preparation.at_times:
            return batch._replace(targets=targets)
        times = pad_timestamps([self._target_times(int(index)) for index in indices])
        return batch._replace(
            targets=targets, target_times=times, target_mask=~torch.isnan(targets)
        )

    def _inputs(self, index: int) -> PreparedSeries:
        if index in self._prepared:
            return self._prepared[index]
        raw, times = self._raw(index)
        stop = len(raw) - self.horizon
        prepared = self.preparation.prepare(raw[:stop], None if times is None else times[:stop])
        if self._cached_bytes + prepared.nbytes <= IN_MEMORY:
            self._prepared[index] = prepared
            self._cached_bytes += prepared.nbytes
        return prepared

    def _raw(self, index: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Return a window with its timestamps; with `whole_past`, all steps before it too."""
        windows, origin, recordings = self.series_set, self.series_set.origin, self.recordings
        times = None if windows.times is None else windows.times[index]
        if not self.whole_past or origin is None:
            return windows.series[index], times
        # Windows refer to their recording by its content: the first of those that are equal.
        recording = int(np.flatnonzero(self._copies == origin[index, 0])[0])
        stop = int(origin[index, 1]) + len(windows.series[index])
        timestamps = None if recordings.times is None else recordings.times[recording][:stop]
        return recordings.series[recording][:stop], timestamps

    @cached_property
    def _copies(self) -> np.ndarray:
        return self.recordings.copies()

    def _target_times(self, index: int) -> Tensor:
        """Return the times of the future values (horizon,), in typical gaps since the start."""
        assert self.series_set.times is not None
        times = self.series_set.times[index]
        return torch.from_numpy((times[-self.horizon :] - times[0]) / self.preparation.typical_gap)

    def _targets(self, indices: np.ndarray) -> Tensor:
        prepared, targets = self.preparation, self.series_set.targets
        if prepared.kind == "forecast":
            future = torch.stack([self._to_come(int(index)) for index in indices])
            if not prepared.at_times:
                return future
            return future.unflatten(1, (self.horizon, -1)).transpose(0, 1)  # (horizon, batch, …)
        if isinstance(targets, list):
            padding = NO_ANSWER if prepared.classes is not None else float("nan")
            columns = [torch.from_numpy(prepared.encode(targets[index])) for index in indices]
            return torch.nn.utils.rnn.pad_sequence(columns, padding_value=padding)
        return torch.from_numpy(prepared.encode(cast(np.ndarray, targets)[indices]))

    def _to_come(self, index: int) -> Tensor:
        """Return future values, standardised, missing ones as NaN; (horizon · channels,)."""
        prepared, names = self.preparation, self.series_set.channels
        future = np.asarray(self.series_set.series[index][-self.horizon :], dtype=np.float64)
        columns = [names.index(name) for name in prepared.forecast]
        standard = (future[:, columns] - prepared.target_mean) / prepared.target_std
        return torch.from_numpy(standard.astype(np.float32).ravel())
