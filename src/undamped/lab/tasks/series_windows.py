"""Windows of recordings, and the question that a model answers about them.

`cut` checks recordings, infers from the data what the options leave open, and cuts recordings into
windows if a window is requested or a forecast needs one. It is the first step of a `SeriesTask`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from undamped._base.errors import DataError, OptionError
from undamped.lab.data.recordings.grid import are_working_days
from undamped.lab.data.recordings.labels import (
    are_numbers,
    as_labels,
    look_like_classes,
    numeric_values,
    sorted_labels,
)
from undamped.lab.data.recordings.preparation import Kind
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.tasks.series_forecast import LONG_PAST, WindowPlan, check_horizon, plan_forecast

_DAY = 86_400.0  # seconds
_CALENDAR = ((28, 31), (90, 92), (365, 366))  # days of months, quarters and years


@dataclass(frozen=True)
class Windows:
    """Series or windows of series, and the question that a model answers about each.

    Args:
        series_set: The series or windows.
        recordings: The usable recordings, before they were cut into windows.
        kind: The question: one class or number per series, one per step, or the values to come.
        horizon: For forecasts, how many values at the end of each window are to be predicted.
        timestamps: Whether models receive timestamps.
        quantiles: For forecasts, the quantiles that are learnt; empty for none.
        plan: How the recordings were cut, and how the windows are to be split.
        notes: What was inferred and done, in sentences.
    """

    series_set: SeriesSet
    recordings: SeriesSet
    kind: Kind
    horizon: int | None
    timestamps: bool
    quantiles: tuple[float, ...]
    plan: WindowPlan
    notes: tuple[str, ...]


def cut(series_set: SeriesSet, options: Mapping[str, Any]) -> Windows:
    """Return the windows, or whole series, that a model answers about.

    Args:
        series_set: The recordings.
        options: Complete options; see `undamped.lab.data.recordings.options.SeriesOptions`.
    """
    kind, kind_notes = infer_kind(series_set, options["kind"], options["horizon"])
    horizon: int | None = options["horizon"] if kind == "forecast" else None
    recordings, usable_notes = usable_series(series_set, kind)
    timestamps, time_notes = _uses_timestamps(recordings, options["timestamps"])
    plan = WindowPlan(options["window"], options["stride"], tuple(options["fractions"]))
    if horizon is None:
        for name in ("season", "quantiles"):
            if options[name] is not None:
                raise OptionError(f"{name} needs a forecast. Give horizon=, or leave {name} out.")
    else:
        check_horizon(recordings, horizon)
        if timestamps and options["known"]:
            raise OptionError(
                "known needs regular time steps, but models receive the irregular timestamps. "
                "Leave known out, or set timestamps=false."
            )
        longest = int(recordings.lengths.max())
        # With timestamps, short series are read as a whole.
        if not timestamps or plan.window is not None or longest > LONG_PAST:
            plan = plan_forecast(recordings, options, horizon, timestamps)
    quantiles = check_quantiles(options["quantiles"], timestamps)
    windows, window_notes = _cut_windows(recordings, plan, horizon)
    notes = (*series_set.notes, *kind_notes, *usable_notes, *time_notes, *plan.notes, *window_notes)
    return Windows(windows, recordings, kind, horizon, timestamps, quantiles, plan, notes)


def infer_kind(
    series_set: SeriesSet, kind: Kind | Literal["auto"], horizon: int | None
) -> tuple[Kind, list[str]]:
    """Return the kind of the question, and a note if it was inferred.

    Args:
        series_set: The recordings.
        kind: The option `kind`.
        horizon: The option `horizon`.
    """
    targets = series_set.targets
    if kind == "forecast" or (kind == "auto" and horizon is not None):
        if horizon is None:
            raise OptionError("kind=forecast needs a horizon, for example horizon=10.")
        return "forecast", []
    if horizon is not None:
        raise OptionError(f"kind={kind} has no horizon, got {horizon}. Leave one of the two out.")
    if targets is None:
        message = (
            f"{series_set.source} has no target to learn. Name its column with target=, or give "
            "horizon= to forecast."
        )
        raise DataError(" ".join((message, *series_set.warnings)))
    stepwise = isinstance(targets, list)
    if kind != "auto":
        if stepwise != (kind in ("steps", "step-regression")):
            per = "step" if stepwise else "series"
            raise OptionError(f"kind={kind} does not fit one target per {per}. Leave kind out.")
        if kind in ("regression", "step-regression") and not are_numbers(targets):
            raise OptionError(f"kind={kind} needs numbers as targets, got text.")
        return kind, []
    classes = look_like_classes(targets)
    if stepwise:
        inferred: Kind = "steps" if classes else "step-regression"
    else:
        inferred = "classification" if classes else "regression"
    return inferred, [f"Treated as {inferred}; set kind= for another kind."]


def usable_series(series_set: SeriesSet, kind: Kind) -> tuple[SeriesSet, list[str]]:
    """Return the series that have a target, and notes; raise an error if none can be used.

    Args:
        series_set: The recordings.
        kind: The kind of the question.
    """
    notes = []
    short = np.flatnonzero(series_set.lengths < 2)
    if len(short) and series_set.times is not None and len(short) < len(series_set):
        # A patient may have come once; if all did, the id column is another.
        notes.append(f"{len(short):,} series have a single observation.")
    elif len(short):
        name = series_set.ids[int(short[0])]
        raise DataError(
            f"{series_set.source}: series '{name}' has 1 time step, at least 2 are needed. "
            "Check the id column, or remove such series."
        )
    _check_channels(series_set)
    targets = series_set.targets
    if kind != "forecast" and not isinstance(targets, list):
        has_target = np.array([label != "" for label in as_labels(targets)])
        if not has_target.any():
            raise _no_targets(series_set)
        if not has_target.all():
            notes.append(f"{int((~has_target).sum()):,} series without a target are left out.")
            series_set = series_set.take(np.flatnonzero(has_target))
    _check_targets(series_set, kind)
    return series_set, notes


def _check_targets(series_set: SeriesSet, kind: Kind) -> None:
    """Raise an error if there are no targets, or if all are the same."""
    targets = series_set.targets
    if kind == "forecast" or targets is None:
        return
    if kind in ("classification", "steps"):
        values: Any = sorted_labels(targets)
        text, needed = "'{}'", "two or more classes are needed"
    else:
        values = np.unique(numeric_values(targets))
        text, needed = "{:.6g}", "so there is nothing to learn"
    if not len(values):
        raise _no_targets(series_set)
    if len(values) < 2:
        raise DataError(
            f"{series_set.source}: all targets are {text.format(values[0])}, {needed}. Check the "
            "target column."
        )


def _no_targets(series_set: SeriesSet) -> DataError:
    return DataError(f"{series_set.source}: every target is missing. Check the target column.")


def _check_channels(series_set: SeriesSet) -> None:
    for name in series_set.blurred:
        raise DataError(
            f"{series_set.source}: channel '{name}' has small differences on a large offset, "
            "which single precision (7 digits) cannot represent. Subtract the offset, or leave "
            "the channel out with channels=."
        )
    silent = set(range(len(series_set.channels)))
    for block in series_set.each_block():
        silent -= set(np.flatnonzero(~np.isnan(block).all(0)).tolist())
        if not silent:
            return
    raise DataError(
        f"{series_set.source}: every value of channel '{series_set.channels[min(silent)]}' is "
        "missing. Leave it out with channels=."
    )


def _uses_timestamps(
    series_set: SeriesSet, timestamps: bool | None
) -> tuple[bool, tuple[str, ...]]:
    """Return whether models receive timestamps, by default if they are irregular, and notes."""
    if timestamps is not None:
        if timestamps and series_set.times is None:
            raise DataError(
                f"timestamps=true, but {series_set.source} has no timestamps. Name their column "
                "with time=."
            )
        return timestamps, ()
    if not irregular(series_set):
        return False, ()
    return True, ("Timestamps are irregular; models receive them as input.",)


def irregular(series_set: SeriesSet) -> bool:
    """Whether the time between steps varies by more than a hundredth of its median.

    Months and quarters are even steps, however many days they have, and so are working days.
    """
    if series_set.times is None:
        return False
    gaps = np.concatenate([np.diff(times) for times in series_set.times])
    if not len(gaps):
        return False
    typical = float(np.median(gaps))
    days = gaps / _DAY  # where timestamps are dates
    if any(((days >= low) & (days <= high)).all() for low, high in _CALENDAR):
        return False
    uneven = bool((np.abs(gaps - typical) > 0.01 * abs(typical)).any())
    return uneven and not are_working_days(series_set.times)


def check_quantiles(quantiles: tuple[float, ...] | None, timestamps: bool) -> tuple[float, ...]:
    """Return the requested quantiles, sorted and with the median.

    Args:
        quantiles: The option `quantiles`.
        timestamps: Whether models receive timestamps.
    """
    if quantiles is None:
        return ()
    levels = tuple(sorted(float(level) for level in quantiles))
    if not levels or not all(0 < level < 1 for level in levels) or len(set(levels)) < len(levels):
        values = ", ".join(f"{level:g}" for level in quantiles) or "none"
        raise OptionError(
            f"quantiles must be different numbers between 0 and 1, such as 0.1,0.5,0.9; got "
            f"{values}."
        )
    if timestamps:
        raise OptionError(
            "quantiles need regular time steps, but models receive the irregular timestamps. "
            "Leave quantiles out, or set timestamps=false."
        )
    return tuple(sorted({*levels, 0.5}))


def _cut_windows(
    series_set: SeriesSet, plan: WindowPlan, horizon: int | None
) -> tuple[SeriesSet, list[str]]:
    """Return windows, or whole series if there is no window, and notes."""
    window, stride = plan.window, plan.stride
    if horizon is not None and window is None:
        series_set, notes = _long_enough(series_set, horizon + 1)
        return series_set, [f"Models read every series up to its last {horizon} steps.", *notes]
    if window is None:
        return series_set, []
    if horizon is None:
        windows = series_set.windows(window, stride or window)
        return windows, [f"{len(windows):,} windows of {window} steps."]
    windows = series_set.windows(window + horizon, stride or 1)
    notes = [f"{len(windows):,} windows of {window} steps, each with the {horizon} to predict."]
    short = int((series_set.lengths < window + horizon).sum())
    if short:
        notes.append(f"{short:,} series are shorter than a window and are left out.")
    return windows, notes


def _long_enough(series_set: SeriesSet, steps: int) -> tuple[SeriesSet, list[str]]:
    """Return the series with at least `steps` steps, and a note if some are left out."""
    long = series_set.lengths >= steps
    if not long.any():
        raise DataError(
            f"{series_set.source}: a series of at least {steps} steps is needed, the longest has "
            f"{int(series_set.lengths.max())}. Choose a smaller horizon."
        )
    if long.all():
        return series_set, []
    note = f"{int((~long).sum()):,} series of fewer than {steps} steps are left out."
    return series_set.take(np.flatnonzero(long)), [note]
