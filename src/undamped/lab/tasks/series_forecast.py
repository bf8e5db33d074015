"""What a forecast is asked, where nobody said so, and what is wrong with what was said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undamped._base.contract import Forecast
from undamped._base.errors import DataError, OptionError, explain
from undamped.lab.data.recordings.preparation import Preparation, middle_of
from undamped.lab.data.recordings.season import calendar_seasons, find_season
from undamped.lab.data.recordings.series import SeriesSet, pieces
from undamped.lab.data.recordings.splits import checked_shares, time_edges
from undamped.lab.tasks.series_choices import forecast_window, stride_of

_LOOKED_AT = 100_000  # steps of each series, for a season


def check_horizon(series_set: SeriesSet, horizon: int) -> None:
    """Refuse a horizon that no series is long enough for.

    Args:
        series_set: The recordings, uncut.
        horizon: Values to come.
    """
    longest = int(series_set.lengths.max())
    if horizon + 2 > longest:
        raise DataError(
            explain(
                f"{series_set.source}: horizon",
                expected=f"at most {max(0, longest - 2)}, since the longest series has {longest} "
                "steps",
                got=horizon,
                remedy="Choose a shorter horizon, or give longer series.",
            )
        )


@dataclass(frozen=True)
class ForecastPlan:
    """How recordings are cut into windows for a forecast, and parted.

    Args:
        season: After how many steps a series is like itself; 1 where there is no such thing.
        window: Steps of the past that a forecast looks at.
        stride: Steps from one window to the next.
        fractions: Shares of training, validation and test.
        notes: What was chosen and why, in sentences.
        too_short: Whether there is no room for a validation part that was asked for.
    """

    season: int
    window: int
    stride: int
    fractions: tuple[float, float, float]
    notes: list[str]
    too_short: bool


def plan_forecast(
    series_set: SeriesSet, options: Mapping[str, Any], horizon: int, stamps: bool
) -> ForecastPlan:
    """Choose what was not said about a forecast, so that every part has a window if possible.

    Args:
        series_set: The recordings, uncut.
        options: What was said; see `undamped.lab.data.recordings.options.SeriesOptions`.
        horizon: Values to come.
        stamps: Whether models are told the time stamps, so that steps do not count.
    """
    fractions, gap, window = checked_shares(options["fractions"]), options["gap"], options["window"]
    stride = options["stride"] or stride_of(series_set, horizon)
    longest, room = int(series_set.lengths.max()), horizon + stride - 1
    parted = series_set.groups is not None or series_set.parts is not None
    by_time = options["split"] == "time" or (
        options["split"] == "auto" and options["held_out"] is None and not parted
    )
    shares, training, season, notes = fractions, longest, 1, []
    if by_time:
        shares = room_for_parts(longest, fractions, room, gap, window or 1)
    if not stamps:
        season = season_of(series_set, options["season"], horizon, shares, options["forecast"])
        if options["season"] is None:
            found = f"A season of {season} steps was found" if season > 1 else "No season was seen"
            notes.append(f"{found} in the training part; say season= if it is another.")
    lost = []
    if by_time:
        shares = room_for_parts(longest, fractions, room, gap, window or season)
        training = time_edges(longest, shares, room, gap)[1]
        names = ("training", "validation", "test")
        lost = [n for n, f, share in zip(names, fractions, shares, strict=True) if f and not share]
    predicted = options["forecast"] or series_set.channels
    beside = [name for name in series_set.channels if name not in predicted]
    if beside:
        notes.append(
            f"Read up to the forecast, and not beyond: {', '.join(beside)}. Values of them that "
            "are known ahead cannot be used."
        )
    if lost:
        notes.append(f"The series are too short for a {' and a '.join(lost)} part.")
    window = window or window_with_season(series_set, horizon, season, training)
    return ForecastPlan(season, window, stride, shares, notes, "validation" in lost)


def season_of(
    series_set: SeriesSet,
    season: int | None,
    horizon: int,
    fractions: Sequence[float],
    forecast: Sequence[str] | None = None,
) -> int:
    """Return the season: the one asked for, or what the training part of every series shows.

    Only the predicted channels are looked at, and of long series the end of that part. Where time
    stamps follow the calendar, they name the seasons that are possible.

    Args:
        series_set: The recordings, uncut.
        season: What was asked for.
        horizon: Values to come.
        fractions: Shares of training, validation and test; only the first may be looked at.
        forecast: The channels that are predicted; all if not said.
    """
    longest = int(series_set.lengths.max())
    if season is not None:
        if season + horizon > longest:
            raise DataError(
                explain(
                    f"{series_set.source}: season",
                    expected=f"a series of at least {season + horizon} steps, a season and the "
                    "horizon",
                    got=f"{longest} in the longest",
                    remedy="Give longer series, a shorter season, or season=1 for none.",
                )
            )
        return season
    names = series_set.channels if forecast is None else forecast
    places = [place for place, name in enumerate(series_set.channels) if name in names]
    recent = []
    for one in series_set.series:  # may be larger than memory
        end = time_edges(len(one), fractions, horizon)[1]
        recent.append(one[max(0, end - _LOOKED_AT) : end, places])
    found = find_season(recent, calendar_seasons(series_set.times))
    return found if found + horizon <= longest else 1


def room_for_parts(
    length: int, fractions: Sequence[float], horizon: int, gap: int, window: int
) -> tuple[float, float, float]:
    """Return shares that leave every part a forecast, and training a window before it.

    A part that there is no room for has a share of zero: the test first, then validation.

    Args:
        length: Steps of the longest series.
        fractions: Shares of training, validation and test that were asked for.
        horizon: Values to come.
        gap: Steps that are left out between two parts.
        window: Steps of the past that a forecast has to look at.
    """
    train, valid, test = fractions
    # Two windows are the least that anything is learnt from; to compare what needs no learning,
    # one is enough.
    edges = time_edges(length, (1.0, 0.0, 0.0))
    for shares, windows in (((train, valid, test), 2), ((train + test, valid, 0.0), 1)):
        parted = time_edges(length, shares, horizon, gap)
        if parted[1] - window - horizon + 1 >= windows:
            edges = parted
            break
    first, second, third = np.diff(edges) / length
    return float(first), float(second), float(third)


def window_with_season(series_set: SeriesSet, horizon: int, season: int, training: int) -> int:
    """Return how much of the past a forecast looks at: two seasons where there is room for them.

    At least half of what could be windows of the training part are, unless a season is longer.

    Args:
        series_set: The recordings, uncut.
        horizon: Values to come.
        season: Steps after which a series is like itself.
        training: Steps of the longest series that are for training.
    """
    longest = int(series_set.lengths.max())
    wanted = 2 * season if 2 * season + horizon <= longest // 2 else season
    window = max(forecast_window(series_set, horizon), wanted)
    window = min(window, max(season, (training - horizon + 1) // 2))
    return max(1, min(window, training - horizon, longest - horizon))


def check_varies(series_set: SeriesSet, forecast: Sequence[str] | None) -> list[str]:
    """Refuse forecasts of channels that never change; return those of several that do not.

    Args:
        series_set: The training part.
        forecast: The channels that are predicted; all if not said.
    """
    names = [name for name in forecast or series_set.channels if name in series_set.channels]
    width = len(series_set.channels)
    low, high = np.full(width, np.inf), np.full(width, -np.inf)
    for one in series_set.series:
        for piece in pieces(one):
            low = np.fmin(low, np.fmin.reduce(one[piece], axis=0))
            high = np.fmax(high, np.fmax.reduce(one[piece], axis=0))
    still = dict(zip(series_set.channels, high <= low, strict=True))
    constant = [name for name in names if still[name]]
    if names and len(constant) == len(names):
        raise DataError(
            explain(
                f"{series_set.source}: channel '{constant[0]}'",
                expected="values that change, so that there is something to predict",
                got="the same one throughout the training part",
                remedy="Choose another channel with target=, or give more data.",
            )
        )
    return constant


def check_quantiles(asked: Sequence[float] | None, at_times: bool) -> tuple[float, ...]:
    """Return the quantiles that were asked for, rising and with the median, or refuse them.

    Args:
        asked: What was said.
        at_times: Whether values to come are asked for by their times.
    """
    if asked is None:
        return ()
    levels = tuple(sorted(float(level) for level in asked))
    if not levels or not all(0 < level < 1 for level in levels) or len(set(levels)) < len(levels):
        raise OptionError(
            explain(
                "quantiles",
                expected="different numbers between 0 and 1",
                got=", ".join(f"{level:g}" for level in asked) or "none",
                remedy="For example 0.1,0.5,0.9.",
            )
        )
    if at_times:
        raise OptionError(
            explain(
                "quantiles",
                expected="steps of even length",
                got="uneven time stamps, of which models are told",
                remedy="Leave quantiles out, or say stamps=false.",
            )
        )
    return tuple(sorted({*levels, 0.5}))


def forecast_of(prepared: Preparation, season: int) -> Forecast | None:
    """Return what models are told of values to come; None where those are asked for by times.

    Args:
        prepared: The preparation.
        season: Steps after which a series is like itself.
    """
    if prepared.kind != "forecast" or prepared.at_times:
        return None
    places = tuple(prepared.channels.index(name) for name in prepared.forecast)
    return Forecast(
        season,
        places,
        tuple((prepared.mean[place], prepared.std[place]) for place in places),
        tuple(zip(prepared.target_mean, prepared.target_std, strict=True)),
        tuple(prepared.quantiles),
    )


def pinball(prediction: Tensor, targets: Tensor, levels: Sequence[float]) -> Tensor:
    """Return the pinball loss of every value, the mean over its quantiles; (batch, values).

    Args:
        prediction: (batch, values · quantiles); or (batch, values) of a model that answers with
            one value, which then stands for every quantile.
        targets: (batch, values), NaN where nobody knows.
        levels: The quantiles.
    """
    said = as_quantiles(prediction, targets, levels)
    errors = targets.unsqueeze(-1).to(said.dtype) - said
    level = torch.tensor(levels, dtype=said.dtype, device=said.device)
    return torch.maximum(level * errors, (level - 1) * errors).mean(-1)


def as_quantiles(prediction: Tensor, targets: Tensor, levels: Sequence[float]) -> Tensor:
    """Return predictions as (batch, values, quantiles), or (batch, values, 1) of single values."""
    each = 1 if prediction.shape[-1] == targets.shape[-1] else len(levels)
    return prediction.unflatten(-1, (-1, each))


def middle_answer(prediction: Tensor, targets: Tensor, levels: Sequence[float]) -> Tensor:
    """Return the quantile next to the median, (batch, values)."""
    said = as_quantiles(prediction, targets, levels)
    return said[..., 0 if said.shape[-1] == 1 else middle_of(levels)]
