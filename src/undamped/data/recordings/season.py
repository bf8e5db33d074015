"""After how many steps recordings are much like themselves, read from their autocorrelation.

A smooth trend (a parabola) is taken away, and the autocorrelation of what is left is looked
through for peaks. The season is the shortest lag whose peak is nearly as high as the highest: a
day and a week both show in the load of a power grid, and the week is higher; two years are nearly
as high as one, and one is shorter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_FEWEST_SEASONS = 3  # that have to be seen before a season is believed
_LEAST = 0.2  # of a peak
_ERRORS = 3.0  # standard errors of an autocorrelation without any
_NEARLY = 0.05  # below the highest peak
_DIP = 0.1  # by which a peak stands above the lowest point before it


def find_season(series: Sequence[np.ndarray]) -> int:
    """Return the season of some series in steps, 1 if none is seen.

    Args:
        series: Each (time, channels); NaN where a value is missing. The autocorrelations of all
            channels count, by the number of their steps.

    Example:
        >>> year = np.sin(np.arange(120) * 2 * np.pi / 12)[:, None]
        >>> find_season([year])
        12
    """
    longest = max((len(one) for one in series), default=0) // _FEWEST_SEASONS
    if longest < 2:
        return 1
    total, weight = np.zeros(longest + 2), np.zeros(longest + 2)
    for one in series:
        for channel in np.asarray(one, dtype=np.float64).T:
            found = _autocorrelation(channel, longest + 1)
            lags = min(len(found), len(channel) // _FEWEST_SEASONS + 2)
            total[:lags] += len(channel) * found[:lags]
            weight[:lags] += len(channel)
    if not weight.any():
        return 1
    echo = total / np.maximum(weight, 1)
    least = max(_LEAST, _ERRORS / np.sqrt(float(weight[0])))
    low = np.minimum.accumulate(echo)
    lags = np.arange(2, longest + 1)
    peaks = lags[
        (echo[lags] > echo[lags - 1])
        & (echo[lags] >= echo[lags + 1])
        & (echo[lags] > least)
        & (echo[lags] - low[lags] > _DIP)
    ]
    if not len(peaks):
        return 1
    return int(peaks[echo[peaks] >= echo[peaks].max() - _NEARLY][0])


def _autocorrelation(values: np.ndarray, most: int) -> np.ndarray:
    """Return the autocorrelation at lags 0 to `most`, each over the pairs there are."""
    there = ~np.isnan(values)
    steps = np.linspace(-1, 1, len(values))
    if there.sum() < 4:
        return np.zeros(0)
    trend = np.polynomial.Polynomial.fit(steps[there], values[there], 2)
    left = np.where(there, values - trend(steps), 0.0)
    size = 1 << (2 * len(values) - 1).bit_length()
    found = np.fft.irfft(np.abs(np.fft.rfft(left, size)) ** 2, size)[: most + 1]
    pairs = np.fft.irfft(np.abs(np.fft.rfft(there.astype(float), size)) ** 2, size)[: most + 1]
    found = found[: len(values)] / np.maximum(np.round(pairs[: len(values)]), 1)
    # Rounding of a constant is no signal.
    if found[0] <= 1e-12 * max(1.0, float(np.square(values[there]).mean())):
        return np.zeros(0)
    return found / found[0]
