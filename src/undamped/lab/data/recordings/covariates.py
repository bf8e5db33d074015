"""Covariates of forecasts: channels that are inputs only, and of which the future may be known.

A covariate with known future values, such as a price or a holiday, becomes two channels: its value
at each step, and its value `horizon` steps later. The last steps of a window then contain all of
its values up to the horizon, for every model and without a second input. A file to be continued has
rows after the last value of the predicted channels; they are read here and cut off.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from undamped._base.errors import DataError, OptionError
from undamped.lab.data.recordings.series import SeriesSet


def later_name(name: str, horizon: int) -> str:
    """Return the name of the channel with the values of another one `horizon` steps later."""
    return f"{name}+{horizon}"


def with_covariates(series_set: SeriesSet, options: MutableMapping[str, Any]) -> SeriesSet:
    """Return recordings with the later values of known covariates as further channels.

    `options["forecast"]` becomes the channels that are predicted: by default all but covariates.

    Args:
        series_set: The recordings.
        options: Complete options; see `undamped.lab.data.recordings.options.SeriesOptions`.
    """
    covariates, observed = (tuple(options[name] or ()) for name in ("known", "observed"))
    if not covariates and not observed:
        return series_set
    horizon = options["horizon"]
    if horizon is None:
        name = "known" if covariates else "observed"
        raise OptionError(f"{name} needs a forecast. Give horizon=, or leave {name} out.")
    series_set.check_channels([*covariates, *observed])
    roles = [*covariates, *observed, *(options["forecast"] or ())]
    repeated = sorted({name for name in roles if roles.count(name) > 1})
    if repeated:
        raise OptionError(
            f"'{repeated[0]}' can have one role only: known, observed, or predicted (target, "
            "forecast). Remove it from the others."
        )
    predicted = options["forecast"] or [n for n in series_set.channels if n not in roles]
    if not predicted:
        raise OptionError(
            "All channels are known or observed, so that none is left to be predicted. Name fewer."
        )
    options["forecast"] = tuple(predicted)
    return with_later_values(series_set, covariates, horizon, predicted)


def with_later_values(
    series_set: SeriesSet, covariates: Sequence[str], horizon: int, predicted: Sequence[str]
) -> SeriesSet:
    """Return recordings up to the last predicted value, with later values of covariates.

    Args:
        series_set: The recordings; rows after the last predicted value hold the future.
        covariates: Their names.
        horizon: How many steps later.
        predicted: The channels that are predicted.
    """
    if not covariates:
        return series_set
    series_set.check_channels([*covariates, *predicted])
    columns = [series_set.channels.index(name) for name in covariates]
    answers = [series_set.channels.index(name) for name in predicted]
    series, lengths = [], []
    for array in series_set.series:
        values = np.asarray(array)
        measured = np.flatnonzero(~np.isnan(values[:, answers]).all(1))
        length = int(measured[-1]) + 1 if len(measured) else len(values)
        later = np.full((length, len(columns)), np.nan, dtype=values.dtype)
        future = values[horizon : horizon + length, columns]
        later[: len(future)] = future
        series.append(np.concatenate([values[:length], later], axis=1))
        lengths.append(length)
    times = series_set.times
    if times is not None:
        times = [t[:length] for t, length in zip(times, lengths, strict=True)]
    channels = [*series_set.channels, *(later_name(name, horizon) for name in covariates)]
    return replace(series_set, series=series, times=times, channels=channels)


def check_future(
    series_set: SeriesSet, covariates: Sequence[str], horizon: int, predicted: Sequence[str]
) -> None:
    """Raise an error if a covariate ends before the horizon.

    Args:
        series_set: Recordings that `with_later_values` returned, which are continued.
        covariates: Their names.
        horizon: How many values are predicted.
        predicted: The channels that are predicted.
    """
    for name in covariates:
        column = series_set.channels.index(later_name(name, horizon))
        for identifier, array in zip(series_set.ids, series_set.series, strict=True):
            values = np.asarray(array[-horizon:, column])
            measured = np.flatnonzero(~np.isnan(values))
            steps = int(measured[-1]) + 1 + horizon - len(values) if len(measured) else 0
            if steps < horizon:
                raise DataError(
                    f"{series_set.source}: '{name}' of series '{identifier}' is known for "
                    f"{max(0, steps)} steps after the last value of {predicted[0]}, but horizon="
                    f"{horizon} needs {horizon}. Append rows with {name} and without "
                    f"{predicted[0]}."
                )
