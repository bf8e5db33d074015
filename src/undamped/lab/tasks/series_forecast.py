"""Plans of forecasts: season, window, stride and split, where the options leave them open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from undamped._base.contract import Forecast
from undamped._base.errors import DataError, OptionError
from undamped.lab.data.recordings.covariates import later_name
from undamped.lab.data.recordings.preparation import Preparation
from undamped.lab.data.recordings.season import calendar_seasons, find_season
from undamped.lab.data.recordings.series import SeriesSet, time_slices
from undamped.lab.data.recordings.splits import check_fractions, time_edges

_MANY_WINDOWS = 20_000
_FEW_STEPS = 1_000
_SEASON_STEPS = 100_000  # steps at the end of each series in which a season is searched
LONG_PAST = 200
"""Steps of the longest past that is read as a whole."""


def check_horizon(series_set: SeriesSet, horizon: int) -> None:
    """Raise an error if no series is long enough for the horizon.

    Args:
        series_set: The recordings, before they are cut into windows.
        horizon: How many values are predicted.
    """
    longest = int(series_set.lengths.max())
    if horizon + 2 > longest:
        raise DataError(
            f"{series_set.source}: horizon must be at most {max(0, longest - 2)}, since the "
            f"longest series has {longest} steps; got {horizon}."
        )


@dataclass(frozen=True)
class WindowPlan:
    """How recordings are cut into windows, and split.

    Args:
        window: Steps that a model reads of each window; None if it reads whole series.
        stride: Steps from one window to the next; None for the default.
        fractions: Fractions of training, validation and test.
        season: For forecasts, the number of steps of a season; 1 for none.
        too_short: Whether a forecast lacks the data for the requested validation split.
        notes: What was inferred and why, in sentences.
    """

    window: int | None
    stride: int | None
    fractions: tuple[float, ...]
    season: int = 1
    too_short: bool = False
    notes: tuple[str, ...] = ()


def plan_forecast(
    series_set: SeriesSet, options: Mapping[str, Any], horizon: int, timestamps: bool
) -> WindowPlan:
    """Choose season, window, stride and fractions, so that every split has a window if possible.

    Args:
        series_set: The recordings, before they are cut into windows.
        options: See `undamped.lab.data.recordings.options.SeriesOptions`.
        horizon: How many values are predicted.
        timestamps: Whether models receive timestamps; then there is no season, counted in steps.
    """
    requested = check_fractions(options["fractions"])
    gap, window = options["gap"], options["window"]
    stride = options["stride"] or _default_stride(series_set, horizon)
    longest, reach = int(series_set.lengths.max()), horizon + stride - 1
    by_time = _splits_by_time(series_set, options)
    fractions, training, season, notes = requested, longest, 1, []
    if by_time:
        fractions = _feasible_fractions(longest, requested, reach, gap, window or 1)
    if not timestamps:
        season = _season(series_set, options["season"], horizon, fractions, options["forecast"])
        if options["season"] is None:
            result = f"A season of {season} steps" if season > 1 else "No season"
            notes.append(f"{result} was detected in the training split; set season= for another.")
    if by_time:
        fractions = _feasible_fractions(longest, requested, reach, gap, window or season)
        training = time_edges(longest, fractions, reach, gap)[1]
    predicted = options["forecast"] or series_set.channels
    notes += _covariate_notes(series_set, predicted, options["known"] or (), horizon)
    names = ("training", "validation", "test")
    before_and_after = zip(names, requested, fractions, strict=True)
    empty = [name for name, before, after in before_and_after if before and not after]
    if empty:
        notes.append(f"The series are too short for a {' and a '.join(empty)} split.")
    window = window or _default_window(series_set, horizon, season, training)
    if options["known"] and window < horizon:
        raise OptionError(
            f"known needs a window of at least horizon={horizon} steps, got {window}. Set a larger "
            "window= or a shorter horizon=, or use longer series."
        )
    too_short = "validation" in empty
    return WindowPlan(window, stride, fractions, season, too_short, tuple(notes))


def _covariate_notes(
    series_set: SeriesSet, predicted: Sequence[str], covariates: Sequence[str], horizon: int
) -> list[str]:
    """Return which channels are inputs only, and which of them are known up to the horizon."""
    notes = []
    if covariates:
        notes.append(
            f"Known up to {horizon} steps after the last value of {predicted[0]}: "
            f"{', '.join(covariates)}."
        )
    later = {later_name(name, horizon) for name in covariates}
    inputs_only = [n for n in series_set.channels if n not in {*predicted, *covariates, *later}]
    if inputs_only:
        notes.append(
            f"Input up to the forecast, not beyond: {', '.join(inputs_only)}. Those whose future "
            "values are known can be named by known=."
        )
    return notes


def _splits_by_time(series_set: SeriesSet, options: Mapping[str, Any]) -> bool:
    if options["split"] != "auto":
        return options["split"] == "time"
    grouped = series_set.groups is not None or series_set.parts is not None
    return options["held_out"] is None and not grouped


def _season(
    series_set: SeriesSet,
    season: int | None,
    horizon: int,
    fractions: Sequence[float],
    forecast: Sequence[str] | None,
) -> int:
    """Return the requested season, or the one detected in the training split of the series.

    Only the predicted channels are examined, and of long series the end of that split. Where
    timestamps follow the calendar, they determine which seasons are possible.
    """
    longest = int(series_set.lengths.max())
    if season is not None:
        if season + horizon > longest:
            raise DataError(
                f"{series_set.source}: season + horizon must be at most {longest}, the steps of "
                f"the longest series; got {season} + {horizon}. Use season=1 for no season."
            )
        return season
    names = series_set.channels if forecast is None else forecast
    columns = [index for index, name in enumerate(series_set.channels) if name in names]
    recent = []
    for series in series_set.series:  # may be larger than memory
        end = time_edges(len(series), fractions, horizon)[1]
        recent.append(series[max(0, end - _SEASON_STEPS) : end, columns])
    detected = find_season(recent, calendar_seasons(series_set.times))
    return detected if detected + horizon <= longest else 1


def _feasible_fractions(
    length: int, fractions: Sequence[float], horizon: int, gap: int, window: int
) -> tuple[float, float, float]:
    """Return fractions that leave every split a forecast, and training a window before it.

    Where a series is too short for all three, the test split is dropped first, then validation.
    """
    train, valid, test = fractions
    # Two windows are the least that a model is trained on; one is enough to compare baselines
    # that need no training.
    edges = time_edges(length, (1.0, 0.0, 0.0))
    for candidate, windows in (((train, valid, test), 2), ((train + test, valid, 0.0), 1)):
        candidate_edges = time_edges(length, candidate, horizon, gap)
        if candidate_edges[1] - window - horizon + 1 >= windows:
            edges = candidate_edges
            break
    first, second, third = np.diff(edges) / length
    return float(first), float(second), float(third)


def _default_window(series_set: SeriesSet, horizon: int, season: int, training: int) -> int:
    """Return the window of a forecast: a tenth of the longest series, or two seasons if they fit.

    At least half of the possible windows of the training split remain, unless a season is longer.
    """
    longest = int(series_set.lengths.max())
    window = max(1, min(LONG_PAST, max(longest // 10, 2 * horizon), longest - horizon))
    window = max(window, 2 * season if 2 * season + horizon <= longest // 2 else season)
    window = min(window, max(season, (training - horizon + 1) // 2))
    return max(1, min(window, training - horizon, longest - horizon))


def _default_stride(series_set: SeriesSet, horizon: int) -> int:
    """Return a stride with which every value is predicted, and the windows are not too many.

    Short series have few windows, so they are cut at every step.
    """
    lengths = series_set.lengths
    few = int(lengths.max()) // _FEW_STEPS
    return max(1, min(horizon, 8, few), int(lengths.sum()) // _MANY_WINDOWS)


def check_varies(series_set: SeriesSet, forecast: Sequence[str] | None) -> list[str]:
    """Return the predicted channels that are constant; raise an error if all of them are.

    Args:
        series_set: The training split.
        forecast: The channels that are predicted; None for all.
    """
    names = [name for name in forecast or series_set.channels if name in series_set.channels]
    width = len(series_set.channels)
    low, high = np.full(width, np.inf), np.full(width, -np.inf)
    for series in series_set.series:
        for steps in time_slices(series):
            low = np.fmin(low, np.fmin.reduce(series[steps], axis=0))
            high = np.fmax(high, np.fmax.reduce(series[steps], axis=0))
    constant_channels = dict(zip(series_set.channels, high <= low, strict=True))
    constant = [name for name in names if constant_channels[name]]
    if names and len(constant) == len(names):
        raise DataError(
            f"{series_set.source}: channel '{constant[0]}' is constant in the training split, so "
            "there is nothing to predict. Choose another channel with target=, or give more data."
        )
    return constant


def forecast_contract(preparation: Preparation, season: int) -> Forecast | None:
    """Return what models know of the forecast; None where it is requested at given times.

    Args:
        preparation: The preparation.
        season: Steps of a season.
    """
    if preparation.kind != "forecast" or preparation.at_times:
        return None
    channels = preparation.channels
    columns = tuple(channels.index(name) for name in preparation.forecast)
    pairs = [(name, later_name(name, preparation.horizon)) for name in preparation.covariates]
    return Forecast(
        season,
        columns,
        tuple((preparation.mean[index], preparation.std[index]) for index in columns),
        tuple(zip(preparation.target_mean, preparation.target_std, strict=True)),
        tuple(preparation.quantiles),
        # Constant channels are not among the inputs.
        tuple(
            (channels.index(now), channels.index(later))
            for now, later in pairs
            if now in channels and later in channels
        ),
    )
