"""Series as a few dozen numbers a channel: levels, changes, rhythm, and where they happen."""

from __future__ import annotations

import numpy as np

LEVELS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
LAGS = (1, 2, 4, 8, 16, 32)
BANDS = 8
PARTS = 4
_MOST_CORRELATED = 16  # channels; more have too many pairs


def summary(series: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Return what is known of one series, as numbers; what cannot be said is 0.

    Args:
        series: (channels, time).
        observed: (channels, time) what was measured; the rest is not looked at.
    """
    found = [np.array([series.shape[1], observed.mean()])]
    for channel, seen in zip(series, observed, strict=True):
        values = channel[seen].astype(np.float64)
        places = np.flatnonzero(seen) / max(1, series.shape[1] - 1)
        found.append(_of_channel(values, places) if len(values) else np.zeros(_COUNT))
    if 1 < len(series) <= _MOST_CORRELATED:
        found.append(_correlations(np.where(observed, series, np.nan)))
    return np.nan_to_num(np.concatenate(found), posinf=0.0, neginf=0.0)


def _of_channel(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the numbers of one channel: its known values, and where they stand from 0 to 1."""
    changes = np.diff(values) if len(values) > 1 else np.zeros(1)
    centred = values - values.mean()
    power = centred @ centred
    crossings = np.diff(np.signbit(centred)).mean() if len(values) > 1 else 0.0
    whole = [
        values.mean(),
        values.std(),
        values[0],
        values[-1],
        _slope(values, places),
        places[values.argmax()],
        places[values.argmin()],
        np.abs(changes).mean(),
        changes.std(),
        np.abs(changes).max(),
        (changes > 0).mean(),
        crossings,
    ]
    echoes = [
        centred[lag:] @ centred[:-lag] / power if power > 0 and lag < len(values) else 0.0
        for lag in LAGS
    ]
    parts = []
    for number in range(PARTS):
        inside = (places * PARTS).astype(int).clip(max=PARTS - 1) == number
        own = values[inside]
        parts += [own.mean(), own.std(), _slope(own, places[inside])] if len(own) else [0.0] * 3
    return np.array([*np.quantile(values, LEVELS), *whole, *echoes, *parts, *_spectrum(centred)])


_COUNT = len(LEVELS) + 12 + len(LAGS) + 3 * PARTS + BANDS + 1


def _slope(values: np.ndarray, places: np.ndarray) -> float:
    moved = places - places.mean()
    spread = moved @ moved
    return float(moved @ values / spread) if spread > 0 else 0.0


def _spectrum(centred: np.ndarray) -> np.ndarray:
    """Return shares of the power in octaves down from the highest frequency, and the main one."""
    power = np.square(np.abs(np.fft.rfft(centred)))[1:]
    total = power.sum()
    if not total > 0:
        return np.zeros(BANDS + 1)
    frequency = np.arange(1, len(power) + 1) / len(power)  # 1 is the highest that can be seen
    octave = np.floor(-np.log2(frequency)).astype(int).clip(0, BANDS - 1)
    shares = np.bincount(octave, power, minlength=BANDS) / total
    return np.append(shares, frequency[power.argmax()])


def _correlations(series: np.ndarray) -> np.ndarray:
    """Return the correlation of every two channels over what both have."""
    found = []
    for number, first in enumerate(series):
        for second in series[number + 1 :]:
            both = ~(np.isnan(first) | np.isnan(second))
            a, b = first[both], second[both]
            a, b = a - a.mean() if len(a) else a, b - b.mean() if len(b) else b
            scale = np.sqrt((a @ a) * (b @ b))
            found.append(a @ b / scale if scale > 0 else 0.0)
    return np.array(found)
