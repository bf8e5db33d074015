"""`SequenceForecaster`: the future values of series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from undamped._base.errors import DataError, OptionError
from undamped._base.options import PositiveInt, convert
from undamped._base.registry import models
from undamped.lab.baselines.closed_form import ClosedFormModel
from undamped.lab.data.recordings.bands import Bands
from undamped.lab.data.recordings.covariates import check_future
from undamped.lab.data.recordings.preparation import Missing
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.estimators.estimator import SequenceEstimator
from undamped.lab.estimators.inputs import collect, index_of, one_or_many, seconds_of
from undamped.lab.estimators.selection import ChangesToCome, EstimatorTask, ValuesToCome
from undamped.lab.training import Run
from undamped.lab.training.fit import AUTO
from undamped.lab.training.options import BUDGETS

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_MINUTES = 0.5
"""The budget of model="auto"; networks are tried from about one minute on."""

_INDEX_STEPS = 64  # steps of an index that are stored, enough to infer its frequency


@dataclass(repr=False, eq=False)
class SequenceForecaster(SequenceEstimator):
    """Forecasts of series; `score` compares them with repeating the last value.

    Forecasts are direct: the model reads the past and returns the next `horizon` values of all
    channels at once. A longer horizon is forecast in blocks, each of which reads the forecasts
    before it. The end of every series is the validation split, on which models are compared and
    errors are measured. A model with a closed-form fit is fitted again to all values at the end.
    A network that is named by `model` learns changes from the last value, and never trains on the
    validation split. Only the order of values counts, not the time between them: for irregularly
    sampled series train a model that reads timestamps, such as ode-rnn.

    Args:
        horizon: The number of future values the model is trained to forecast.
        window: The number of past values it reads; by default chosen from the lengths.
        season: The length of a season in steps, 1 for none; by default estimated from the series
            and their index of dates or periods.
        known: Channels that are inputs only and whose future values are known, such as a price. A
            series to be continued has rows with them, and NaN in the other channels, for every step
            up to the horizon.
        observed: Channels that are inputs only, without future values.
        {parameters}

    Example:
        >>> import numpy as np
        >>> wave = np.sin(np.arange(200) / 5)
        >>> forecaster = SequenceForecaster(horizon=10, model="ridge-lags").fit(wave)
        >>> forecaster.predict().shape
        (10,)
        >>> forecaster.predict(wave[:150], horizon=25).shape
        (25,)
        >>> forecaster.predict(quantiles=(0.1, 0.9)).shape
        (10, 2)
    """

    kind = "forecast"

    horizon: int = 1
    window: int | None = field(default=None, kw_only=True)
    season: int | None = field(default=None, kw_only=True)
    known: Sequence[str] = field(default=(), kw_only=True)
    observed: Sequence[str] = field(default=(), kw_only=True)
    model: str = field(default=AUTO, kw_only=True)
    missing: Missing | Literal["auto"] = field(default="interpolate", kw_only=True)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the model to series.

        Args:
            X: One series (time,), a pandas series or a frame with one row per time step; or
                several: (n, time), (n, time, channels), a list of (time, channels), or a frame
                with an index of (series, time).
            y: Ignored; present for pipelines.
        """
        many, shape = one_or_many(X)
        horizon = convert(PositiveInt, self.horizon, "SequenceForecaster.horizon")
        window = convert(PositiveInt | None, self.window, "SequenceForecaster.window")
        season = convert(PositiveInt | None, self.season, "SequenceForecaster.season")
        if self.model == AUTO and self.validation_fraction == 0:
            raise OptionError(
                "SequenceForecaster.validation_fraction must be > 0 to compare models, got 0. "
                "Set a fraction, or name a model."
            )
        collection = collect(many)
        index = index_of(X)
        if index is not None and index.nlevels == 1:
            seconds = seconds_of(index)
            collection = replace(collection, times=None if seconds is None else [seconds])
        windows = {"horizon": horizon, "window": window, "season": season}
        for name in ("known", "observed"):
            names = convert(Sequence[str], getattr(self, name), f"SequenceForecaster.{name}")
            windows[name] = names or None
        self._fit_series(self._series_set(collection), **windows, split="time", timestamps=False)
        self.horizon_ = horizon
        # `predict` without X continues these series.
        past = self._arrange(collection.series)
        self._past = [self._read(series).copy() for series in past]
        self._format = ForecastFormat(X, shape, [len(series) for series in past])
        return self

    @property
    def task_class(self) -> type[EstimatorTask]:
        """The task: values, or changes for a network that is named by `model`."""
        closed_form = self.model == AUTO or issubclass(models[self.model], ClosedFormModel)
        return ValuesToCome if closed_form else ChangesToCome

    def _train_options(self) -> dict[str, Any]:
        options = super()._train_options()
        if self.model == AUTO and not any(name in options for name in BUDGETS):
            options["minutes"] = DEFAULT_MINUTES
        return options

    def _store_fit(self, run: Run, task: EstimatorTask) -> None:
        super()._store_fit(run, task)
        self._adds_last = isinstance(task, ChangesToCome)
        self._bands: Bands | None = run.bands()
        self.window_, self.season_ = task.preparation.window, task.season

    def predict(
        self, X: Any = None, horizon: int | None = None, *, quantiles: Sequence[float] | None = None
    ) -> np.ndarray | pd.Series | pd.DataFrame:
        """Forecast series.

        Args:
            X: The series to continue; by default those of `fit`.
            horizon: The number of values; by default that of `fit`.
            quantiles: Return these quantiles of every value, such as (0.1, 0.9) for an 80 %
                prediction interval, estimated from the errors on the validation split.

        Returns:
            (horizon,) for one series of numbers, (horizon, channels) for one frame, (n, horizon)
            for (n, time), otherwise (n, horizon, channels); quantiles are a further axis. For
            pandas series and frames, a pandas object whose index continues theirs; quantiles are
            columns.
        """
        check_is_fitted(self, "model_")
        steps = self.horizon_ if horizon is None else horizon
        steps = convert(PositiveInt, steps, "horizon")
        if X is None:
            past, form = self._past, self._format
        else:
            many, shape = one_or_many(X)
            collection = collect(many)
            self._check_channels(collection)
            past = self._arrange(collection.series)
            form = ForecastFormat(X, shape, [len(series) for series in past])
        if steps > self.horizon_ and len(self.preparation_.forecast) < self.n_features_in_:
            raise OptionError(
                f"horizon must be at most {self.horizon_} steps, as in fit, since future values of "
                f"covariates are not forecast; got {steps}. Fit with a longer horizon."
            )
        if self.preparation_.covariates:
            preparation, series_set = self.preparation_, self._as_set(past)
            check_future(series_set, preparation.covariates, self.horizon_, preparation.forecast)
        if quantiles is None:
            return form.values(self._forecast(past, steps), self.preparation_.forecast)
        levels = self._levels(quantiles, steps)
        return form.quantiles(self._bounds(past, steps, levels), self.preparation_.forecast, levels)

    def _levels(self, quantiles: Sequence[float], steps: int) -> list[float]:
        """Return quantiles as numbers; raise an error if they cannot be computed."""
        if self._bands is None:
            raise DataError(
                "quantiles need a validation split, and fit had none. Set validation_fraction > 0 "
                "and use longer series."
            )
        if steps > self.horizon_:
            raise OptionError(
                f"quantiles need a horizon of at most {self.horizon_} steps, as in fit, got "
                f"{steps}. Fit with a longer horizon."
            )
        low, high = self._bands.levels[0], self._bands.levels[-1]
        levels = [float(level) for level in quantiles]
        if not levels or not all(low <= level <= high for level in levels):
            got = ", ".join(f"{level:g}" for level in levels) or "none"
            raise OptionError(f"quantiles must be numbers from {low:g} to {high:g}, got {got}.")
        return levels

    def score(self, X: Any, y: Any = None) -> float:
        """Forecast the last `horizon` values of each series from those before, and compare.

        Returns:
            1 − (mean squared error) / (that of repeating the last value), in standardised units:
            1 is perfect, 0 is no better than the naive baseline.
        """
        check_is_fitted(self, "model_")
        collection = collect(one_or_many(X)[0], shortest=self.horizon_ + 2)
        self._check_channels(collection)
        series = self._arrange(collection.series)
        past = [values[: -self.horizon_] for values in series]
        columns = [self.preparation_.raw_channels.index(n) for n in self.preparation_.forecast]
        truth = np.stack([values[-self.horizon_ :, columns] for values in series])
        scale = np.asarray(self.preparation_.target_std)
        last = np.stack([self._last(series) for series in past])[:, None]
        errors = truth - self._forecast(past, self.horizon_)
        naive_errors = truth - (last * scale + self.preparation_.target_mean)
        observed = ~np.isnan(truth)
        loss, naive_loss = (np.square((e / scale)[observed]).sum() for e in (errors, naive_errors))
        return float(1 - loss / max(naive_loss, np.finfo(np.float64).tiny))

    def _as_set(self, series: list[np.ndarray]) -> SeriesSet:
        names = self.preparation_.raw_channels
        return SeriesSet(series, names[: series[0].shape[1]], source="X")

    def _arrange(self, series: list[np.ndarray]) -> list[np.ndarray]:
        """Return series up to the last predicted value, with later values of known covariates."""
        if not self.preparation_.covariates:
            return series
        return self.preparation_.arrange(self._as_set(series)).series

    def _read(self, series: np.ndarray) -> np.ndarray:
        """Return the end of a series that the model reads."""
        if self.model_.reads_whole_past or self.window_ is None:
            return series
        return series[-self.window_ :]

    def _last(self, past: np.ndarray) -> np.ndarray:
        """Return the last predicted values, standardised; gaps are filled as in training."""
        preparation = self.preparation_
        columns = [preparation.channels.index(name) for name in preparation.forecast]
        return preparation.transform(self._read(past))[-1, columns].astype(float)

    def _offset(self, past: list[np.ndarray]) -> np.ndarray:
        """Return the offset of outputs (n, 1, channels): the last value, or 0."""
        if not self._adds_last:
            return np.zeros((len(past), 1, len(self.preparation_.forecast)))
        return np.stack([self._last(series) for series in past])[:, None]

    def _forecast(self, series: list[np.ndarray], horizon: int) -> np.ndarray:
        """Return forecasts (n, horizon, channels), block by block."""
        preparation = self.preparation_
        past, blocks = [self._read(values) for values in series], []
        for _ in range(-(-horizon // self.horizon_)):
            if blocks:
                past = [self._read(np.concatenate(p)) for p in zip(past, blocks[-1], strict=True)]
            forecasts = preparation.to_forecasts(self._outputs(past)) + self._offset(past)
            block = forecasts * preparation.target_std + preparation.target_mean
            blocks.append(block)
        return np.concatenate(blocks, axis=1)[:, :horizon]

    def _bounds(self, series: list[np.ndarray], horizon: int, levels: list[float]) -> np.ndarray:
        """Return quantiles (n, horizon, channels, levels)."""
        bands, preparation = self._bands, self.preparation_
        assert bands is not None
        past = [self._read(values) for values in series]
        bounds = bands.around(preparation.to_forecasts(self._outputs(past)))[:, :horizon]
        bounds = bounds + self._offset(past)[..., None]
        bounds = bounds * np.array(preparation.target_std)[:, None]
        bounds = bounds + np.array(preparation.target_mean)[:, None]
        return np.apply_along_axis(lambda row: np.interp(levels, bands.levels, row), -1, bounds)


class ForecastFormat:
    """The format of forecasts, which follows that of the input: an array or a pandas object.

    Args:
        X: The series to continue.
        shape: Its form according to `one_or_many`.
        lengths: The steps of each series, without those of the future.
    """

    def __init__(self, X: Any, shape: str, lengths: list[int]) -> None:
        index = index_of(X)
        self.shape, self.name, self.index, self.pairs = shape, None, None, None
        if index is not None and index.nlevels == 1 and shape in ("numbers", "frame"):
            self.index = index[: lengths[0]][-_INDEX_STEPS:]
            self.name = X.name if shape == "numbers" else None
        elif index is not None and index.nlevels == 2 and shape == "set":
            self.pairs = [
                (name, rows.index.get_level_values(1).sort_values()[:length][-_INDEX_STEPS:])
                for (name, rows), length in zip(
                    X.groupby(level=0, sort=False), lengths, strict=True
                )
            ]
            self.names = list(index.names)

    def values(self, forecasts: np.ndarray, channels: list[str]) -> Any:
        """Return forecasts (n, horizon, channels) in this format."""
        if self.index is None and self.pairs is None:
            return _shaped(forecasts, self.shape)
        import pandas as pd

        if self.index is not None and self.shape == "numbers":
            return pd.Series(forecasts[0, :, 0], self._future_index(forecasts), name=self.name)
        table = forecasts.reshape(-1, forecasts.shape[2])
        return pd.DataFrame(table, self._future_index(forecasts), pd.Index(channels))

    def quantiles(self, bounds: np.ndarray, channels: list[str], levels: list[float]) -> Any:
        """Return quantiles (n, horizon, channels, levels) in this format."""
        if self.index is None and self.pairs is None:
            return _shaped(bounds, self.shape)
        import pandas as pd

        table = bounds.reshape(-1, len(channels) * len(levels))
        columns: Any = pd.Index(levels, name="quantile")
        if self.shape != "numbers":
            columns = pd.MultiIndex.from_product([channels, levels], names=[None, "quantile"])
        return pd.DataFrame(table, self._future_index(bounds), columns)

    def _future_index(self, values: np.ndarray) -> pd.Index:
        """Return the index of forecasts (n, horizon, …)."""
        import pandas as pd

        steps = values.shape[1]
        if self.index is not None:
            return following(self.index, steps)
        assert self.pairs is not None
        rows = [(name, when) for name, index in self.pairs for when in following(index, steps)]
        return pd.MultiIndex.from_tuples(rows, names=self.names)


def _shaped(values: np.ndarray, shape: str) -> np.ndarray:
    if shape == "numbers":
        return values[0, :, 0]
    if shape == "frame":
        return values[0]
    return values[:, :, 0] if shape == "rows" else values


def following(index: pd.Index, steps: int) -> pd.Index:
    """Return the index of the steps after the last one.

    Dates and periods continue at their frequency, numbers at their step; an index with uneven
    steps is continued by 1, 2, ….

    Args:
        index: The index of one series.
        steps: The number of steps.

    Example:
        >>> import pandas as pd
        >>> months = pd.date_range("2024-01-31", periods=3, freq="ME")
        >>> following(months, 2).strftime("%d.%m.").tolist()
        ['30.04.', '31.05.']
    """
    import pandas as pd

    if isinstance(index, pd.PeriodIndex):
        return pd.period_range(index[-1] + 1, periods=steps, freq=index.freq, name=index.name)
    if isinstance(index, pd.DatetimeIndex):
        frequency = index.freq or (pd.infer_freq(index) if len(index) > 2 else None)
        if frequency is not None:
            dates = pd.date_range(index[-1], periods=steps + 1, freq=frequency, name=index.name)
            return dates[1:]
    if isinstance(index, (pd.DatetimeIndex, pd.TimedeltaIndex)) or index.dtype.kind in "iuf":
        gaps = index[1:] - index[:-1] if len(index) > 1 else index[:0]
        if len(gaps) and bool(np.all(gaps == gaps[0])) and gaps[0] != 0 * gaps[0]:
            values = [index[-1] + (step + 1) * gaps[0] for step in range(steps)]
            return pd.Index(values, name=index.name)
    return pd.RangeIndex(1, steps + 1, name="step")
