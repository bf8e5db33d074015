"""What a set of recordings is asked, where nobody said so: looked up in the data."""

from __future__ import annotations

from typing import Literal

import numpy as np

from undamped._base.errors import DataError, OptionError, explain
from undamped.lab.data.recordings.grid import are_working_days
from undamped.lab.data.recordings.labels import as_labels, sorted_labels
from undamped.lab.data.recordings.preparation import Kind
from undamped.lab.data.recordings.series import SeriesSet, pieces
from undamped.lab.data.recordings.target_kinds import are_numbers, known_numbers, look_like_classes

_MANY_WINDOWS = 20_000
_FEW_STEPS = 1_000
_DAY = 86_400.0  # seconds
_CALENDAR = ((28, 31), (90, 92), (365, 366))  # days of months, quarters and years
LONG_PAST = 200
"""Steps of the longest past that is looked at as a whole."""


def kind_of(
    series_set: SeriesSet,
    asked: Kind | Literal["auto"],
    horizon: int | None,
    said: list[str],
) -> Kind:
    """Return what is asked, and say so where it was not."""
    targets = series_set.targets
    if asked == "forecast" or (asked == "auto" and horizon is not None):
        if horizon is None:
            raise OptionError(
                "horizon: expected how many values to predict with kind=forecast, got none. For "
                "example horizon=10."
            )
        return "forecast"
    if horizon is not None:
        raise OptionError(
            f"horizon: expected none with kind={asked}, got {horizon}. Leave one of the two out."
        )
    if targets is None:
        raise DataError(
            explain(
                f"{series_set.source}: target",
                expected="labels or numbers to learn",
                got="none",
                remedy=" ".join(
                    (
                        "Name their column with target=, or give horizon= to predict the values "
                        "to come.",
                        *series_set.warnings,
                    )
                ),
            )
        )
    stepwise = isinstance(targets, list)
    if asked != "auto":
        if stepwise != (asked in ("steps", "step-regression")):
            have = "one per step" if stepwise else "one per series"
            raise OptionError(
                f"kind: expected one that fits targets of {have}, got '{asked}'. Leave kind out."
            )
        if asked in ("regression", "step-regression") and not are_numbers(targets):
            raise OptionError(
                f"kind: expected numbers as targets for {asked}, got text. Use classification."
            )
        return asked
    classes = look_like_classes(targets)
    kind: Kind = (
        ("steps" if classes else "step-regression")
        if stepwise
        else ("classification" if classes else "regression")
    )
    said.append(f"Taken as {kind}; say kind= if it is something else.")
    return kind


def labelled(series_set: SeriesSet, kind: Kind, said: list[str]) -> SeriesSet:
    """Return the series that can be used, or say why none can."""
    short = np.flatnonzero(series_set.lengths < 2)
    if len(short) and series_set.times is not None and len(short) < len(series_set):
        # A patient may have come once; if all did, the id column is another.
        said.append(f"{len(short):,} series have a single observation.")
    elif len(short):
        name = series_set.ids[int(short[0])]
        raise DataError(
            explain(
                f"{series_set.source}: series '{name}'",
                expected="at least 2 time steps",
                got="1",
                remedy="Is the id column the right one? Leave such series out.",
            )
        )
    _check_channels(series_set)
    targets = series_set.targets
    if kind != "forecast" and not isinstance(targets, list):
        there = np.array([label != "" for label in as_labels(targets)])
        if not there.all():
            if not there.any():
                raise _no_targets(series_set)
            said.append(f"{int((~there).sum()):,} series without a target are left out.")
            series_set = series_set.take(np.flatnonzero(there))
    if kind in ("classification", "steps"):
        classes = sorted_labels(series_set.targets)
        if not classes:
            raise _no_targets(series_set)
        if len(classes) < 2:
            raise DataError(
                explain(
                    f"{series_set.source}: target",
                    expected="two or more classes",
                    got=f"only '{classes[0]}'",
                    remedy="There is nothing to tell apart; is it the right column?",
                )
            )
    elif kind != "forecast" and series_set.targets is not None:
        numbers = known_numbers(series_set.targets)
        if not len(numbers):
            raise _no_targets(series_set)
        if numbers.min() == numbers.max():
            raise DataError(
                explain(
                    f"{series_set.source}: target",
                    expected="numbers that differ",
                    got=f"only {numbers[0]:.6g}",
                    remedy="There is nothing to learn; is it the right column?",
                )
            )
    return series_set


def _no_targets(series_set: SeriesSet) -> DataError:
    return DataError(
        explain(
            f"{series_set.source}: target",
            expected="labels or numbers to learn",
            got="only missing ones",
            remedy="Is it the right column?",
        )
    )


def _check_channels(series_set: SeriesSet) -> None:
    for name in series_set.blurred:
        raise DataError(
            explain(
                f"{series_set.source}: channel '{name}'",
                expected="values that seven digits (single precision) tell apart",
                got="small differences upon a large offset",
                remedy="Subtract the offset, or leave the channel out with channels=.",
            )
        )
    silent = set(range(len(series_set.channels)))
    for one in series_set.series:
        for piece in pieces(one):
            silent -= set(np.flatnonzero(~np.isnan(one[piece]).all(0)).tolist())
            if not silent:
                return
    raise DataError(
        explain(
            f"{series_set.source}: channel '{series_set.channels[min(silent)]}'",
            expected="numbers",
            got="only missing values",
            remedy="Leave it out with channels=.",
        )
    )


def forecast_window(series_set: SeriesSet, horizon: int) -> int:
    """Return how much of the past a forecast looks at: up to a tenth of the longest series."""
    longest = int(series_set.lengths.max())
    return max(1, min(LONG_PAST, max(longest // 10, 2 * horizon), longest - horizon))


def stride_of(series_set: SeriesSet, horizon: int) -> int:
    """Return a stride that lets every value be predicted, and keeps windows countable.

    Short series are cut at every step: they have few windows to learn from as it is.
    """
    lengths = series_set.lengths
    few = int(lengths.max()) // _FEW_STEPS
    return max(1, min(horizon, 8, few), int(lengths.sum()) // _MANY_WINDOWS)


def long_enough(series_set: SeriesSet, steps: int, said: list[str]) -> SeriesSet:
    """Return the series with at least so many steps, and say how many were left out."""
    there = series_set.lengths >= steps
    if not there.any():
        raise DataError(
            explain(
                series_set.source,
                expected=f"a series of at least {steps} steps",
                got=int(series_set.lengths.max()),
                remedy="Choose a smaller horizon.",
            )
        )
    if not there.all():
        said.append(f"{int((~there).sum()):,} series of fewer than {steps} steps are left out.")
        series_set = series_set.take(np.flatnonzero(there))
    return series_set


def without_stamps(series_set: SeriesSet) -> DataError:
    """Return the error for a set that is asked for stamps it does not have."""
    return DataError(
        explain(
            f"{series_set.source}: stamps",
            expected="time stamps, since stamps=true",
            got="none",
            remedy="Name their column with time=.",
        )
    )


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
    days = gaps / _DAY  # where stamps are dates
    if any(((days >= low) & (days <= high)).all() for low, high in _CALENDAR):
        return False
    uneven = bool((np.abs(gaps - typical) > 0.01 * abs(typical)).any())
    return uneven and not are_working_days(series_set.times)
