"""After how many steps recordings are much like themselves: a test for seasons.

A series without a season is taken for an autoregression around a line. Against that, every
candidate is tried: the same autoregression with a mean of its own for every step of the season. The
F statistic says whether those means explain more than chance, at a level that is divided by the
number of candidates, and of the candidates that do, the criterion of Schwarz chooses. So noise that
lasts, or wanders, has a season in few of a hundred series.

Where timestamps follow the calendar, it names the candidates: a year of months or quarters, a week
or a year of days, a day or a week of hours. Otherwise every lag is one that is seen three times.

Reference:
    J. D. Hamilton. Time series analysis, 1994, chapter 8, for the test; G. Schwarz. Estimating the
    dimension of a model. Annals of Statistics, 1978.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from undamped.lab.data.recordings.grid import are_working_days
from undamped.lab.data.recordings.prepared import hold

LEVEL = 0.01
"""How often noise may have a season, of any length."""
CALENDAR_LEVEL = 0.02
"""How often noise may have one that the calendar suggests."""
_FEWEST_SEASONS = 3  # that have to be seen before a season is believed
_FEWEST_EXPECTED = 2  # of one that the calendar suggests
_MOST_LAGS = 8  # of the autoregression
_STEPS_PER_LAG = 20
_JITTER = 0.01  # of the spread: without noise, an autoregression continues any wave for ever
_WIDE = 2.0  # times the smallest value, for logarithms
_EVERY_LAG = 300  # steps up to which all lags are tried; of longer seasons, peaks are
_PEAKS = 30
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86_400.0
_FAR = 1e8  # seconds from 1970: timestamps nearer to it with short gaps may count something else
_CALENDAR = (  # shortest and longest gap in seconds, and how many make a season
    (365 * _DAY, 366 * _DAY, ()),
    (90 * _DAY, 92 * _DAY, (4,)),
    (28 * _DAY, 31 * _DAY, (12,)),
    (7 * _DAY, 7 * _DAY, (52,)),
    (_DAY, _DAY, (7, 365)),
)


def calendar_seasons(times: Sequence[np.ndarray] | None) -> tuple[int, ...] | None:
    """Return the seasons that timestamps imply, such as (7, 365) for days; None if there are none.

    Args:
        times: Stamps of each series in seconds since 1970, or None.

    Example:
        >>> calendar_seasons([1.7e9 + 3600.0 * np.arange(5)])
        (24, 168)
    """
    gaps = np.concatenate([np.diff(one) for one in times]) if times else np.zeros(0)
    if times is None or not len(gaps):
        return None
    low, high = (float(gap) for gap in np.quantile(gaps, (0.05, 0.95)))  # an hour may be missing
    for shortest, longest, seasons in _CALENDAR:
        if shortest <= low and high <= longest:
            return seasons or None
    if low == _DAY and are_working_days(list(times)):
        return 5, 260
    typical = float(np.median(gaps))
    shortest = _MINUTE if min(abs(float(one[0])) for one in times) >= _FAR else _HOUR
    if not shortest <= typical < _DAY:
        return None
    cycles = (_HOUR, _DAY, 7 * _DAY)
    return tuple(round(c / typical) for c in cycles if c > typical and c % typical == 0) or None


def find_season(series: Sequence[np.ndarray], candidates: Sequence[int] | None = None) -> int:
    """Return the season of some series in steps, 1 if none is seen.

    Args:
        series: Each (time, channels); NaN where a value is missing. All channels count.
        candidates: The seasons that are possible, if they are seen twice; all that are seen three
            times if not given.

    Example:
        >>> year = np.sin(np.arange(120) * 2 * np.pi / 12)[:, None]
        >>> find_season([year])
        12
    """
    channels = [
        scaled
        for one in series
        for channel in np.asarray(one, dtype=np.float64).T
        if (scaled := _scaled(channel)) is not None
    ]
    fewest = _FEWEST_SEASONS if candidates is None else _FEWEST_EXPECTED
    longest = max((len(one) for one in channels), default=0) // fewest
    if candidates is None:
        tested, level = _possible(channels, longest), LEVEL / max(1, longest - 1)
    else:
        tested = sorted({season for season in candidates if 2 <= season <= longest})
        level = CALENDAR_LEVEL / max(1, len(tested))
    regressions = [_Channel(one) for one in channels]
    best, chosen = np.inf, 1
    for season in tested:
        probability, criterion = _evidence(regressions, season, fewest)
        if probability < level and criterion < best:
            best, chosen = criterion, season
    return chosen


def _scaled(values: np.ndarray) -> np.ndarray | None:
    """Return a channel with mean 0 and spread 1 and a little noise; None of a constant."""
    known = values[~np.isnan(values)]
    if len(known) < 2 * _FEWEST_SEASONS:
        return None
    if known.min() > 0 and known.max() > _WIDE * known.min():
        values, known = np.log(values), np.log(known)  # seasons often grow with the values
    spread = float(known.std())
    if spread <= 1e-6 * max(1e-300, float(np.abs(known).max())):  # rounding is no signal
        return None
    noise = np.random.default_rng(0).normal(size=len(values))
    return (values - known.mean()) / spread + _JITTER * noise


def _possible(channels: list[np.ndarray], longest: int) -> list[int]:
    """Return the lags to be tried: all short ones, and about the highest peaks of long ones."""
    found = set(range(2, min(longest, _EVERY_LAG) + 1))
    for one in channels:
        most = len(one) // _FEWEST_SEASONS
        if most <= _EVERY_LAG:
            continue
        for values in (one, np.diff(one)):
            echo = _autocorrelation(values, most + 1)
            lags = np.arange(_EVERY_LAG, most)
            peaks = lags[(echo[lags] > echo[lags - 1]) & (echo[lags] >= echo[lags + 1])]
            for lag in peaks[np.argsort(-echo[peaks])][:_PEAKS].tolist():
                found |= {lag - 1, lag, lag + 1}
    return sorted(found)


def _autocorrelation(values: np.ndarray, most: int) -> np.ndarray:
    """Return the autocovariance around a parabola at lags 0 to `most`."""
    there = ~np.isnan(values)
    steps = np.linspace(-1, 1, len(values))
    trend = np.polynomial.Polynomial.fit(steps[there], values[there], 2)
    left = np.where(there, values - trend(steps), 0.0)
    size = 1 << (2 * len(values) - 1).bit_length()
    return np.fft.irfft(np.abs(np.fft.rfft(left, size)) ** 2, size)[: most + 1]


class _Channel:
    """A channel as an autoregression around a line, with and without a season.

    Args:
        values: (time,) scaled values; NaN where one is missing.
    """

    def __init__(self, values: np.ndarray) -> None:
        self.length = len(values)
        most = max(1, min(_MOST_LAGS, len(values) // _STEPS_PER_LAG))
        known = hold(values[:, None], ~np.isnan(values[:, None]))[:, 0]
        past = [known[most - lag : len(values) - lag] for lag in range(1, most + 1)]
        steps = np.arange(most, len(values))
        # The regressors come in the order in which they are added, and what is regressed is last.
        table = np.column_stack([steps / len(values), *past, values[most:]])
        there = ~np.isnan(table).any(1)
        self.table, self.steps = table[there], steps[there]
        self._products = self.table.T @ self.table

    def errors(self, season: int = 1) -> tuple[np.ndarray, int]:
        """Return the squared errors with 0, 1, … lags, and how many phases have a mean."""
        phase = self.steps % season
        counts = np.bincount(phase, minlength=season)
        sums = np.stack([np.bincount(phase, column, season) for column in self.table.T])
        there = counts > 0
        within = self._products - (sums[:, there] / counts[there]) @ sums[:, there].T
        # The triangle's last column holds the values along orthogonal directions, one for every
        # regressor: what the first few leave is the sum of the other squares.
        triangle = np.linalg.cholesky(within, upper=True)
        left = np.cumsum(np.square(triangle[::-1, -1]))[::-1]
        # As many lags as a season has steps would say what came a season ago.
        return left[1 : max(3, season) if season > 1 else None], int(there.sum())


def _evidence(channels: list[_Channel], season: int, fewest: int) -> tuple[float, float]:
    """Return how likely so much would be explained by chance, and the criterion of Schwarz."""
    from scipy.special import fdtrc

    explained = left = criterion = 0.0
    means = free = 0
    for one in channels:
        count = len(one.steps)
        if one.length < fewest * season:
            continue
        errors, phases = one.errors(season)
        lags = np.arange(len(errors))
        penalties = count * np.log(np.maximum(errors, 1e-300)) + lags * np.log(count)
        chosen = int(penalties.argmin())
        without, with_season = one.errors()[0][chosen], errors[chosen]
        rest = count - 2 - chosen - (phases - 1)
        if rest < 1 or with_season <= 0:
            continue
        unit = without / (rest + phases - 1)  # each series by its own errors
        explained += (without - with_season) / unit
        left += with_season / unit
        means += phases - 1
        free += rest
        # Many lags continue a slow wave for a step, and only a season does for longer.
        criterion += penalties[1] + (phases - 1) * np.log(count)
    if not means:
        return 1.0, np.inf
    ratio = max(explained / means, 0.0) / (left / free)
    return float(fdtrc(means, free, ratio)), float(criterion)
