"""Backtests: forecasts from many origins in the past, each without knowledge of the future.

The end of every series is divided into folds. Before each fold a model is trained on everything
before it. It then makes forecasts from one origin after the other in the fold, with unchanged
weights and all values up to the origin. Bands come from validation data before the fold, and are
updated when the true values are available, so that the coverage is that of live use.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from undamped._base.errors import DataError, OptionError, UndampedError
from undamped.lab.data.recordings.preparation import middle_of
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.training.calibration import answers_and_truth, spread
from undamped.lab.training.fit import AUTO, fit
from undamped.lab.training.run import Run

_VALIDATION = 0.18  # fraction of the data before a fold


@dataclass(frozen=True)
class Forecasts:
    """Forecasts from several origins, in the units of the recordings.

    Args:
        origins: (forecasts, 2) the index of the series, and of the first step of the forecast.
        values: (forecasts, horizon, channels).
        bounds: (forecasts, horizon, channels, levels) quantiles.
        truth: (forecasts, horizon, channels), NaN where a value is missing.
        levels: The levels of the quantiles, increasing.
        unit: (channels,) the mean change over a season in the training split, the unit of scaled
            errors.
    """

    origins: np.ndarray
    values: np.ndarray
    bounds: np.ndarray
    truth: np.ndarray
    levels: tuple[float, ...]
    unit: np.ndarray

    def scores(self, steps: slice = slice(None)) -> dict[str, float | None]:
        """Return mean scores over some steps of the horizon; None without true values.

        Returns:
            "mae"; "mase", absolute errors divided by `unit`, so that 1 is about the error of the
            last season in the training split; "pinball", the mean over the quantiles; "coverage",
            the fraction of values between the lowest and the highest quantile.
        """
        truth, bounds = self.truth[:, steps], self.bounds[:, steps]
        mask = ~np.isnan(truth)
        errors = np.abs(truth - self.values[:, steps])
        levels, over = np.array(self.levels), truth[..., None] - bounds
        pinball = np.maximum(levels * over, (levels - 1) * over).mean(-1)
        inside = (truth >= bounds[..., 0]) & (truth <= bounds[..., -1])
        scaled = errors / np.where(self.unit > 0, self.unit, np.nan)
        return {
            "mae": _mean(errors[mask]),
            "mase": _mean(scaled[mask]),
            "pinball": _mean(pinball[mask]),
            "coverage": _mean(inside[mask]),
        }


def concatenate(parts: list[Forecasts]) -> Forecasts:
    """Return the forecasts of several folds as one; the unit is that of the first fold."""
    return Forecasts(
        np.concatenate([part.origins for part in parts]),
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.bounds for part in parts]),
        np.concatenate([part.truth for part in parts]),
        parts[0].levels,
        parts[0].unit,
    )


def seasonal_change(series: list[np.ndarray], season: int) -> np.ndarray:
    """Return the mean absolute change over a season, per channel; NaN if there is none.

    Args:
        series: Each (time, channels).
        season: Steps of a season.
    """
    changes = [
        np.abs(values[season:] - values[:-season]) for values in series if len(values) > season
    ]
    if not changes:
        return np.full(series[0].shape[1], np.nan)
    joined = np.concatenate(changes)
    count = (~np.isnan(joined)).sum(0)
    return np.where(count > 0, np.nansum(joined, 0) / np.maximum(count, 1), np.nan)


def _mean(values: np.ndarray) -> float | None:
    values = values[~np.isnan(values.astype(float))]
    return float(values.mean()) if len(values) else None


@dataclass(frozen=True)
class ModelBacktest:
    """The backtest of one model.

    Args:
        model: Its registry name, or "auto".
        forecasts: Its forecasts; None if it could not be trained.
        seconds: The time of its trainings.
        selected: The models that "auto" selected, fold by fold.
        refused: Why it could not be trained, in a sentence.
    """

    model: str
    forecasts: Forecasts | None = None
    seconds: float = 0.0
    selected: list[str] = field(default_factory=list)
    refused: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: scores over all steps of the horizon, and of each of them."""
        if self.forecasts is None:
            return {"model": self.model, "refused": self.refused}
        steps = range(self.forecasts.values.shape[1])
        return {
            "model": self.model,
            **self.forecasts.scores(),
            "seconds": round(self.seconds, 3),
            "steps": {h + 1: self.forecasts.scores(slice(h, h + 1)) for h in steps},
            **({"chosen": self.selected} if self.selected else {}),
        }


@dataclass(frozen=True)
class Backtest:
    """The backtests of several models on one set of series.

    Args:
        source: The name of the set.
        channels: The forecast channels.
        horizon: Steps of a forecast.
        season: The season, as set or as estimated before the last fold.
        folds: Number of folds.
        levels: The levels of the quantiles of the bands.
        series: The series, each (time, forecast channels), for figures.
        models: The backtest of each model.
    """

    source: str
    channels: list[str]
    horizon: int
    season: int
    folds: int
    levels: tuple[float, ...]
    series: list[np.ndarray]
    models: list[ModelBacktest]

    @property
    def nominal_coverage(self) -> float:
        """The fraction of values that should be within the band."""
        return self.levels[-1] - self.levels[0]

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON, without the forecasts themselves."""
        counts = [len(model.forecasts.origins) for model in self.models if model.forecasts]
        return {
            "source": self.source,
            "channels": self.channels,
            "horizon": self.horizon,
            "season": self.season,
            "folds": self.folds,
            "quantiles": list(self.levels),
            "origins": max(counts, default=0),
            "models": [model.to_dict() for model in self.models],
        }


def backtest(
    series_set: SeriesSet,
    models: Sequence[str],
    *,
    horizon: int,
    folds: int = 3,
    fraction: float = 0.3,
    origins: int = 100,
    options: Mapping[str, Any] | None = None,
    model_options: Mapping[str, Mapping[str, Any]] | None = None,
    train: Mapping[str, Any] | None = None,
    seed: int = 0,
    progress: Callable[..., None] | None = None,
) -> Backtest:
    """Make forecasts from many origins in the last part of every series.

    Args:
        series_set: The recordings.
        models: Registry names, and "auto".
        horizon: Steps of a forecast.
        folds: Number of folds; models are trained before each.
        fraction: The fraction of every series that is forecast, at its end.
        origins: The largest number of forecasts per fold; they are evenly spread.
        options: Further options of the task: season, quantiles, window, forecast, ….
        model_options: Options of each model, by its name.
        train: Training options.
        seed: The seed of all random numbers.
        progress: Called with the next step as text and the completed fraction.

    Example:
        >>> wave = np.sin(np.arange(200) / 3)[:, None]
        >>> result = backtest(SeriesSet.of([wave]), ["seasonal-naive", "ridge-lags"], horizon=6)
    """
    if not 0 < fraction < 0.9:
        raise OptionError(
            f"fraction must be between 0 and 0.9, got {fraction}. For example 0.3, the last three "
            "tenths of every series."
        )
    tasks = _tasks(series_set, horizon, folds, fraction, dict(options or {}), seed)
    results = []
    for index, model in enumerate(models):

        def report(fold: int, model: str = model, index: int = index) -> None:
            if progress is not None:
                done = (index * folds + fold) / (len(models) * folds)
                progress(f"{model}, fold {fold + 1} of {folds}", done)

        settings = (model_options or {}).get(model, {}), dict(train or {})
        results.append(_backtest_model(model, tasks, origins, *settings, seed, report))
    last = tasks[-1]
    channels = [series_set.channels.index(name) for name in last.preparation.forecast]
    levels = next((m.forecasts.levels for m in results if m.forecasts is not None), ())
    if not levels:
        raise DataError(results[0].refused)
    return Backtest(
        series_set.source,
        last.preparation.forecast,
        horizon,
        last.season,
        folds,
        levels,
        [np.asarray(values[:, channels], dtype=np.float64) for values in series_set.series],
        results,
    )


def _tasks(
    series_set: SeriesSet,
    horizon: int,
    folds: int,
    fraction: float,
    options: dict[str, Any],
    seed: int,
) -> list[SeriesTask]:
    """Return a task for every fold: the data before it for training, the fold as test split."""
    longest = int(series_set.lengths.max())
    first, last = round((1 - fraction) * longest), longest - horizon
    if last - first + 1 < folds:
        raise DataError(
            f"{series_set.source}: a backtest needs at least {folds} origins, one per fold, with "
            f"{horizon} values after them, got {max(0, last - first + 1)}. Choose a shorter "
            "horizon, a larger fraction or fewer folds."
        )
    edges = np.linspace(first, last + 1, folds + 1).round() / longest
    tasks = []
    for begin, stop in itertools.pairwise(edges.tolist()):
        # The last origin of a fold is its last step, so that forecasts reach beyond it.
        end = min(1.0, stop + (horizon - 1) / longest)
        beginning = replace(_until(series_set, end), targets=None, parts=None)
        valid = begin / end * _VALIDATION
        task = SeriesTask(
            beginning,
            horizon=horizon,
            split="time",
            fractions=(begin / end - valid, valid, 1 - begin / end),
            seed=seed,
            **options,
        )
        if task.preparation.at_times:
            raise DataError(
                f"{series_set.source}: a backtest needs regular timestamps, got irregular ones. "
                "Set timestamps=false to ignore them."
            )
        tasks.append(task)
    return tasks


def _until(series_set: SeriesSet, fraction: float) -> SeriesSet:
    """Return the beginning of every series."""
    stops = [max(1, round(fraction * len(values))) for values in series_set.series]
    series = [values[:stop] for values, stop in zip(series_set.series, stops, strict=True)]
    times = series_set.times
    if times is not None:
        times = [values[:stop] for values, stop in zip(times, stops, strict=True)]
    return replace(series_set, series=series, times=times)


def _backtest_model(
    model: str,
    tasks: list[SeriesTask],
    origins: int,
    options: Mapping[str, Any],
    train: dict[str, Any],
    seed: int,
    report: Callable[[int], None],
) -> ModelBacktest:
    parts, seconds, selected = [], 0.0, []
    shift = np.zeros(1)  # the bands of a fold start with the shift at the end of the last fold
    for fold, task in enumerate(tasks):
        report(fold)
        with tempfile.TemporaryDirectory(prefix="undamped-") as folder:
            try:
                run = fit(
                    model,
                    task,
                    model_options=options,
                    train=train,
                    seed=seed,
                    out=Path(folder),
                    progress=False,
                )
            except UndampedError as error:
                return ModelBacktest(model, refused=str(error))
            settings = run.settings
            if settings["status"] != "finished":
                raise KeyboardInterrupt
            comparison = sum(entry.get("seconds", 0.0) for entry in settings.get("tried", []))
            seconds += settings["result"]["seconds"] + comparison
            if model == AUTO:
                selected.append(settings["model"]["name"])
            forecasts, shift = forecasts_of(run, task, origins, shift)
            parts.append(forecasts)
    return ModelBacktest(model, concatenate(parts), seconds, selected)


def forecasts_of(
    run: Run, task: SeriesTask, origins: int, shift: np.ndarray | None = None
) -> tuple[Forecasts, np.ndarray]:
    """Return the forecasts of a run from origins of its test split, and the shift of the bands.

    Args:
        run: A run with bands.
        task: Its task.
        origins: The largest number of forecasts; they are evenly spread.
        shift: The shift of the bands at the first origin; by default none.
    """
    model, bands, prepared = run.model(), run.bands(), task.preparation
    assert bands is not None
    answers, truth = answers_and_truth(model, task, "test", 64, origins)
    mean, std = np.array(prepared.target_mean), np.array(prepared.target_std)
    values = prepared.middle(answers.reshape(len(answers), -1))
    windows = task.series_set
    assert windows.origin is not None
    train, test = task.splits["train"], task.splits["test"]
    test = test[spread(len(test), origins).numpy()]
    first = windows.origin[test, 1] + windows.lengths[test] - task.horizon
    end = windows.origin[train, 1] + windows.lengths[train]
    channels = [windows.channels.index(name) for name in prepared.forecast]
    history = [
        np.asarray(series[: int(end.max()), channels], dtype=np.float64)
        for series in task.recordings.series
    ]
    shifted = bands if shift is None else bands.moved(shift)
    bounds, shifts = np.zeros((*truth.shape, len(bands.levels))), []
    for recording in np.unique(windows.origin[test, 0]):
        rows = np.flatnonzero(windows.origin[test, 0] == recording)
        bounds[rows], after = shifted.tracked(answers[rows], truth[rows], first[rows])
        shifts.append(after.moved_since(bands))
    if answers.ndim == 4:  # a model of quantiles
        values = bounds[..., middle_of(bands.levels)]
    forecasts = Forecasts(
        np.stack([windows.origin[test, 0], first], axis=1),
        values * std + mean,
        bounds * std[:, None] + mean[:, None],
        truth * std + mean,
        tuple(bands.levels),
        seasonal_change(history, task.season),
    )
    return forecasts, np.mean(shifts, axis=0)
