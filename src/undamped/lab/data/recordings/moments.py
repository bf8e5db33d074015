"""What a preparation learns from the training part: means, deviations, the usual time step."""

from __future__ import annotations

import numpy as np

from undamped._base.errors import DataError, explain
from undamped.lab.data.recordings.series import SeriesSet


def channel_moments(training: SeriesSet) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of every channel in two passes, piece by piece."""
    width = len(training.channels)
    count, total = np.zeros(width), np.zeros(width)
    for piece in training.each_piece():
        part = np.asarray(piece, dtype=np.float64)
        there = ~np.isnan(part)
        count += there.sum(0)
        total += np.where(there, part, 0.0).sum(0)
    for name, number, value in zip(training.channels, count, total, strict=True):
        if number == 0:
            raise DataError(
                explain(
                    f"{training.source}: channel '{name}'",
                    expected="numbers",
                    got="only missing values in the training part",
                    remedy="Leave it out with channels=.",
                )
            )
        if not np.isfinite(value):
            raise DataError(
                explain(
                    f"{training.source}: channel '{name}'",
                    expected="finite numbers",
                    got="an infinite one",
                    remedy="Mark what is missing as NaN.",
                )
            )
    mean = total / count
    squares = np.zeros(width)
    for piece in training.each_piece():
        away = np.asarray(piece, dtype=np.float64) - mean
        squares += np.where(np.isnan(away), 0.0, away * away).sum(0)
    std = np.sqrt(squares / count)
    # What varies less than float32 can tell apart is constant.
    return mean, np.where(std > 1e-6 * np.maximum(1e-30, np.abs(mean)), std, 0.0)


def target_moments(training: SeriesSet) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of the numbers asked for; 1 where they are all alike."""
    targets = training.targets
    assert targets is not None
    columns = targets if isinstance(targets, list) else [targets]
    values = np.concatenate([np.asarray(c, dtype=np.float64).ravel() for c in columns])
    values = values[~np.isnan(values)]
    std = values.std()
    return np.array([values.mean()]), np.array([std if std > 0 else 1.0])


def typical_gap(training: SeriesSet) -> float:
    """Return the median time between two steps."""
    assert training.times is not None
    gaps = np.concatenate([np.diff(times) for times in training.times])
    return float(np.median(gaps)) if len(gaps) else 1.0


def longest_span(training: SeriesSet) -> float:
    """Return how long the longest series lasts; a usual gap where all have one step."""
    assert training.times is not None
    longest = max(float(times[-1] - times[0]) for times in training.times)
    return longest if longest > 0 else typical_gap(training)
