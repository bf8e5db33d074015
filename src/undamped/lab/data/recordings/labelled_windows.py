"""One long recording with a label per step, as windows with one label each.

Most models answer once per series. A monitoring file is a single series whose labels change in its
course; cut into windows, it can be learnt from by all of them and be parted by time.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from undamped.lab.data.recordings.labels import as_labels, comparable
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.data.recordings.target_kinds import look_like_classes

_FEW_RECORDINGS = 3
_WINDOWS = 60
_SHORTEST, _LONGEST = 8, 500


def needs_windows(series_set: SeriesSet) -> bool:
    """Whether there is a label per step, and too few recordings for three parts of whole ones."""
    few = len(series_set) < _FEW_RECORDINGS
    return series_set.stepwise and few and series_set.groups is None and series_set.parts is None


def suitable_window(series_set: SeriesSet) -> int:
    """Return how many steps a window has: half of a usual stretch of one label, sixty in all.

    Args:
        series_set: Recordings with a label per step.
    """
    assert isinstance(series_set.targets, list)
    window = min(_LONGEST, int(series_set.lengths.sum()) // _WINDOWS)
    if look_like_classes(series_set.targets):
        stretches = []
        for labels in series_set.targets:
            codes = np.unique(comparable(labels), return_inverse=True)[1]
            changes = np.flatnonzero(np.diff(codes)) + 1
            stretches.append(np.diff([0, *changes.tolist(), len(codes)]))
        window = min(window, int(np.median(np.concatenate(stretches))) // 2)
    return max(_SHORTEST, window)


def label_windows(series_set: SeriesSet, window: int, stride: int) -> SeriesSet:
    """Return windows with one target each: the commonest label, or the mean of numbers.

    Windows without a single target are left out.

    Args:
        series_set: Recordings with a label per step.
        window: Steps of a window.
        stride: Steps from one window to the next.
    """
    assert isinstance(series_set.targets, list)
    cut = series_set.windows(window, stride)
    assert isinstance(cut.targets, list)
    if look_like_classes(series_set.targets):
        targets = np.array([_commonest(labels) for labels in cut.targets])
        there = targets != ""
    else:
        numbers = [np.asarray(one, dtype=np.float64) for one in cut.targets]
        known = [one[~np.isnan(one)] for one in numbers]
        targets = np.array([one.mean() if len(one) else np.nan for one in known])
        there = ~np.isnan(targets)
    return replace(cut, targets=targets).take(np.flatnonzero(there))


def _commonest(labels: np.ndarray) -> str:
    values, counts = np.unique(comparable(labels), return_counts=True)
    names = as_labels(values)
    known = [(count, name) for count, name in zip(counts.tolist(), names, strict=True) if name]
    return max(known, key=lambda pair: pair[0])[1] if known else ""
