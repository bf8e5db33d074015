"""Summary statistics of series: levels, changes, autocorrelations, spectrum, quarters."""

from __future__ import annotations

import numpy as np

LEVELS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
LAGS = (1, 2, 4, 8, 16, 32)
BANDS = 8
SEGMENTS = 4
_MOST_CORRELATED = 16  # channels; more have too many pairs
_COUNT = len(LEVELS) + 12 + len(LAGS) + 3 * SEGMENTS + BANDS + 1  # numbers per channel


def summary(series: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Return the summary statistics of a series; what cannot be computed is 0.

    Args:
        series: (channels, time).
        observed: (channels, time) mask of the measured values; the others are ignored.
    """
    statistics = [np.array([series.shape[1], observed.mean()])]
    for channel, mask in zip(series, observed, strict=True):
        values = channel[mask].astype(np.float64)
        times = np.flatnonzero(mask) / max(1, series.shape[1] - 1)
        statistics.append(_channel(values, times) if len(values) else np.zeros(_COUNT))
    if 1 < len(series) <= _MOST_CORRELATED:
        statistics.append(_correlations(np.where(observed, series, np.nan)))
    return np.nan_to_num(np.concatenate(statistics), posinf=0.0, neginf=0.0)


def _channel(values: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return the statistics of the measured values of a channel, with times from 0 to 1."""
    changes = np.diff(values) if len(values) > 1 else np.zeros(1)
    centred = values - values.mean()
    power = centred @ centred
    crossings = np.diff(np.signbit(centred)).mean() if len(values) > 1 else 0.0
    overall = [
        values.mean(),
        values.std(),
        values[0],
        values[-1],
        _slope(values, times),
        times[values.argmax()],
        times[values.argmin()],
        np.abs(changes).mean(),
        changes.std(),
        np.abs(changes).max(),
        (changes > 0).mean(),
        crossings,
    ]
    autocorrelations = [
        centred[lag:] @ centred[:-lag] / power if power > 0 and lag < len(values) else 0.0
        for lag in LAGS
    ]
    segments = []
    for index in range(SEGMENTS):
        mask = (times * SEGMENTS).astype(int).clip(max=SEGMENTS - 1) == index
        part = values[mask]
        segments += [part.mean(), part.std(), _slope(part, times[mask])] if len(part) else [0.0] * 3
    levels = np.quantile(values, LEVELS)
    return np.array([*levels, *overall, *autocorrelations, *segments, *_spectrum(centred)])


def _slope(values: np.ndarray, times: np.ndarray) -> float:
    centred = times - times.mean()
    spread = centred @ centred
    return float(centred @ values / spread) if spread > 0 else 0.0


def _spectrum(centred: np.ndarray) -> np.ndarray:
    """Return the fraction of power per octave, from the highest down, and the peak frequency."""
    power = np.square(np.abs(np.fft.rfft(centred)))[1:]
    total = power.sum()
    if not total > 0:
        return np.zeros(BANDS + 1)
    frequency = np.arange(1, len(power) + 1) / len(power)  # 1 is the Nyquist frequency
    octave = np.floor(-np.log2(frequency)).astype(int).clip(0, BANDS - 1)
    fractions = np.bincount(octave, power, minlength=BANDS) / total
    return np.append(fractions, frequency[power.argmax()])


def _correlations(series: np.ndarray) -> np.ndarray:
    """Return the correlation of every two channels over the samples that both have."""
    correlations = []
    for index, first in enumerate(series):
        for second in series[index + 1 :]:
            both = ~(np.isnan(first) | np.isnan(second))
            a, b = first[both], second[both]
            a, b = a - a.mean() if len(a) else a, b - b.mean() if len(b) else b
            scale = np.sqrt((a @ a) * (b @ b))
            correlations.append(a @ b / scale if scale > 0 else 0.0)
    return np.array(correlations)
