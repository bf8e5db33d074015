"""Other ways of parting series into training and validation, for judging models more than once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from undamped._base.errors import DataError
from undamped.lab.data.recordings import splits
from undamped.lab.data.recordings.series import SeriesSet

_LEAST_TRAINING = 0.4  # of what is not for the test, where validation is moved back in time
_FEWEST_WINDOWS = 10


def dealt_anew(
    series_set: SeriesSet, parts: Mapping[str, np.ndarray], number: int
) -> dict[str, np.ndarray]:
    """Return training and validation series dealt in another way, each as many as before.

    Args:
        series_set: The series.
        parts: Which of them are in which part now.
        number: Which of the possible draws.
    """
    pool = np.sort(np.concatenate([parts["train"], parts["valid"]]))
    pooled = replace(series_set.take(pool), parts=None)
    share = len(parts["valid"]) / len(pool)
    dealt = splits.split(
        pooled,
        fractions=(1 - share, share, 0.0),
        by="stratified" if pooled.groups is None else "group",
        seed=number,
    )
    return {name: pool[dealt[name]] for name in ("train", "valid")}


def validated_earlier(
    windows: SeriesSet,
    parts: Mapping[str, np.ndarray],
    number: int,
    record: Mapping[str, Any],
    horizon: int,
) -> dict[str, np.ndarray] | None:
    """Return a validation part so many times its length earlier, and what was before it.

    Args:
        windows: Windows of recordings, parted by time.
        parts: Which of them are in which part now.
        number: How many lengths earlier.
        record: How they were parted.
        horizon: How many steps at the end of a window are to be predicted.

    Returns:
        Training and validation windows; None where too little would be left to learn from.
    """
    if windows.origin is None:
        return None
    stop, recording = windows.origin[:, 1] + windows.lengths, windows.origin[:, 0]
    end = np.zeros(int(recording.max()) + 1, dtype=np.int64)  # of what may be looked at
    np.maximum.at(end, recording[parts["valid"]], stop[parts["valid"]])
    pool = np.flatnonzero(stop <= end[recording])
    train, valid, _ = record["fractions"]
    share = valid / (train + valid)
    if 1 - (number + 1) * share < _LEAST_TRAINING:
        return None
    try:
        dealt = splits.split(
            windows.take(pool),
            fractions=(1 - (number + 1) * share, share, number * share),
            by="time",
            gap=record["gap"],
            ahead=horizon,
        )
    except DataError:  # a part would be empty
        return None
    if len(dealt["train"]) < _FEWEST_WINDOWS:
        return None
    return {name: pool[dealt[name]] for name in ("train", "valid")}
