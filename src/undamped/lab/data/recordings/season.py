"""Detection of the season of recordings by a statistical test.

The null model is an autoregression around a linear trend. A candidate adds a separate mean for
every phase of the season. An F test decides whether these means are significant, at a level that is
divided by the number of candidates, and the criterion of Schwarz (BIC) selects among the
significant ones. Coloured noise and random walks therefore rarely have a season.

Where timestamps follow the calendar, it determines the candidates: a year of months or quarters, a
week or a year of days, a day or a week of hours. Otherwise they are all lags that occur three
times in a series.

Reference:
    J. D. Hamilton. Time series analysis, 1994, chapter 8, for the test; G. Schwarz. Estimating the
    dimension of a model. Annals of Statistics, 1978.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from undamped.lab.data.recordings.grid import are_working_days
from undamped.lab.data.recordings.prepared import hold

LEVEL = 0.01
"""Significance level for a season of any length."""
CALENDAR_LEVEL = 0.02
"""Significance level for the seasons of the calendar."""
_FEWEST_SEASONS = 3  # in a series, for any lag to be a candidate
_FEWEST_EXPECTED = 2  # for a season of the calendar
_MOST_LAGS = 8  # of the autoregression
_STEPS_PER_LAG = 20
_JITTER = 0.01  # of the deviation: without noise, an autoregression continues any wave for ever
_WIDE = 2.0  # ratio of largest and smallest value from which logarithms are used
_EVERY_LAG = 300  # all lags up to this are candidates; of longer ones, peaks
_PEAKS = 30
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86_400.0
_FAR = 1e8  # seconds from 1970: smaller timestamps with short gaps may not be dates
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
        times: Timestamps of each series in seconds since 1970, or None.

    Example:
        >>> calendar_seasons([1.7e9 + 3600.0 * np.arange(5)])
        (24, 168)
    """
    if not times or not len(gaps := np.concatenate([np.diff(t) for t in times])):
        return None
    low, high = (float(gap) for gap in np.quantile(gaps, (0.05, 0.95)))  # some may be missing
    for shortest, longest, seasons in _CALENDAR:
        if shortest <= low and high <= longest:
            return seasons or None
    if low == _DAY and are_working_days(list(times)):
        return 5, 260
    typical = float(np.median(gaps))
    shortest = _MINUTE if min(abs(float(t[0])) for t in times) >= _FAR else _HOUR
    if not shortest <= typical < _DAY:
        return None
    cycles = (_HOUR, _DAY, 7 * _DAY)
    return tuple(round(c / typical) for c in cycles if c > typical and c % typical == 0) or None


def find_season(series: Sequence[np.ndarray], candidates: Sequence[int] | None = None) -> int:
    """Return the season of some series in steps, 1 if there is none.

    Args:
        series: Each (time, channels); NaN where a value is missing. All channels are used.
        candidates: The possible seasons, which must occur twice; by default all that occur three
            times.

    Example:
        >>> year = np.sin(np.arange(120) * 2 * np.pi / 12)[:, None]
        >>> find_season([year])
        12
    """
    channels = [
        scaled
        for array in series
        for channel in np.asarray(array, dtype=np.float64).T
        if (scaled := _scaled(channel)) is not None
    ]
    fewest = _FEWEST_SEASONS if candidates is None else _FEWEST_EXPECTED
    longest = max(map(len, channels), default=0) // fewest
    if candidates is None:
        tested, level = _candidates(channels, longest), LEVEL / max(1, longest - 1)
    else:
        tested = sorted({season for season in candidates if 2 <= season <= longest})
        level = CALENDAR_LEVEL / max(1, len(tested))
    regressions = [_Channel(channel) for channel in channels]
    best, result = np.inf, 1
    for season in tested:
        probability, criterion = _evidence(regressions, season, fewest)
        if probability < level and criterion < best:
            best, result = criterion, season
    return result


def _scaled(values: np.ndarray) -> np.ndarray | None:
    """Return a channel with mean 0, deviation 1 and a little noise; None if it is constant."""
    observed = values[~np.isnan(values)]
    if len(observed) < 2 * _FEWEST_SEASONS:
        return None
    if observed.min() > 0 and observed.max() > _WIDE * observed.min():
        values, observed = np.log(values), np.log(observed)  # seasons often grow with the values
    std = float(observed.std())
    if std <= 1e-6 * max(1e-300, float(np.abs(observed).max())):  # a rounding error
        return None
    noise = np.random.default_rng(0).normal(size=len(values))
    return (values - observed.mean()) / std + _JITTER * noise


def _candidates(channels: list[np.ndarray], longest: int) -> list[int]:
    """Return the lags to test: all short ones, and those near the highest peaks of long ones."""
    candidates = set(range(2, min(longest, _EVERY_LAG) + 1))
    for channel in channels:
        most = len(channel) // _FEWEST_SEASONS
        if most <= _EVERY_LAG:
            continue
        for values in (channel, np.diff(channel)):
            if np.isfinite(values).sum() < _FEWEST_SEASONS:  # too few for a parabola
                continue
            covariance = _autocovariance(values, most + 1)
            lags = np.arange(_EVERY_LAG, most)
            rising = covariance[lags] > covariance[lags - 1]
            peaks = lags[rising & (covariance[lags] >= covariance[lags + 1])]
            for lag in peaks[np.argsort(-covariance[peaks])][:_PEAKS].tolist():
                candidates |= {lag - 1, lag, lag + 1}
    return sorted(candidates)


def _autocovariance(values: np.ndarray, most: int) -> np.ndarray:
    """Return the autocovariance around a parabola at lags 0 to `most`."""
    observed = ~np.isnan(values)
    steps = np.linspace(-1, 1, len(values))
    trend = np.polynomial.Polynomial.fit(steps[observed], values[observed], 2)
    residual = np.where(observed, values - trend(steps), 0.0)
    size = 1 << (2 * len(values) - 1).bit_length()
    return np.fft.irfft(np.abs(np.fft.rfft(residual, size)) ** 2, size)[: most + 1]


class _Channel:
    """The autoregression of a channel around a linear trend, with and without a season.

    Args:
        values: (time,) scaled values, NaN where a value is missing.
    """

    def __init__(self, values: np.ndarray) -> None:
        self.length = len(values)
        most = max(1, min(_MOST_LAGS, len(values) // _STEPS_PER_LAG))
        filled = hold(values[:, None], ~np.isnan(values[:, None]))[:, 0]
        past = [filled[most - lag : len(values) - lag] for lag in range(1, most + 1)]
        steps = np.arange(most, len(values))
        # Regressors are in the order in which they are added; the dependent variable is last.
        table = np.stack([steps / len(values), *past, values[most:]])
        complete = ~np.isnan(table).any(0)
        self._has_all_steps = bool(complete.all())
        self.columns = table if self._has_all_steps else table[:, complete]
        self.steps = steps[complete]
        self._products = self.columns @ self.columns.T

    @cached_property
    def errors_without_season(self) -> np.ndarray:
        """The sums of squared errors with 0, 1, … lags and no season."""
        result = self.errors(1)
        assert result is not None  # a season needs more steps
        return result[0]

    def errors(self, season: int) -> tuple[np.ndarray, int] | None:
        """Return the sums of squared errors with 0, 1, … lags, and the number of phases.

        None if there are fewer complete steps than coefficients.
        """
        counts, sums = self._sums_by_phase(season)
        occurs = counts > 0
        if len(self.steps) - int(occurs.sum()) < len(self.columns):
            return None
        within = self._products - (sums[:, occurs] / counts[occurs]) @ sums[:, occurs].T
        # The last column of the Cholesky factor has the components along the orthogonalised
        # regressors: the error with the first few of them is the sum of the other squares.
        factor = np.linalg.cholesky(within, upper=True)
        errors = np.cumsum(np.square(factor[::-1, -1]))[::-1]
        # With as many lags as a season has steps, the value one season ago is a regressor.
        return errors[1 : max(3, season) if season > 1 else None], int(occurs.sum())

    def _sums_by_phase(self, season: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of steps of each phase, and their sums (columns, phases)."""
        if not self._has_all_steps:
            phase = self.steps % season
            sums = [np.bincount(phase, column, season) for column in self.columns]
            return np.bincount(phase, minlength=season), np.stack(sums)
        cycles, rest = divmod(len(self.steps), season)
        complete, last = np.split(self.columns, [cycles * season], axis=1)
        sums = complete.reshape(len(complete), cycles, season).sum(axis=1)
        sums[:, :rest] += last
        return cycles + (np.arange(season) < rest), sums


def _evidence(channels: list[_Channel], season: int, fewest: int) -> tuple[float, float]:
    """Return the p-value of the F test of a season, and the criterion of Schwarz."""
    from scipy.special import fdtrc

    explained = unexplained = criterion = 0.0
    means = dof = 0
    for channel in channels:
        count = len(channel.steps)
        if channel.length < fewest * season or (result := channel.errors(season)) is None:
            continue
        errors, phases = result
        lags = np.arange(len(errors))
        penalties = count * np.log(np.maximum(errors, 1e-300)) + lags * np.log(count)
        order = int(penalties.argmin())
        without, with_season = channel.errors_without_season[order], errors[order]
        rest = count - 2 - order - (phases - 1)
        if rest < 1 or with_season <= 0:
            continue
        unit = without / (rest + phases - 1)  # errors are relative to those of the channel
        explained += (without - with_season) / unit
        unexplained += with_season / unit
        means += phases - 1
        dof += rest
        # Many lags continue a slow wave for one step; only a season does so for longer.
        criterion += penalties[1] + (phases - 1) * np.log(count)
    if not means:
        return 1.0, np.inf
    ratio = max(explained / means, 0.0) / (unexplained / dof)
    return float(fdtrc(means, dof, ratio)), float(criterion)
