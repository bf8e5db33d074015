"""Dates on their grid: days, hours, months and working days, with missing values in the holes.

A recording in which some days are missing is not irregular: it is a regular one with holes, which
every forecaster can read.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

_DAY = 86_400.0
_UNITS = {1.0: "seconds", 60.0: "minutes", 3600.0: "hours", _DAY: "days", 7 * _DAY: "weeks"}
_MONTHS = {1: "months", 3: "quarters", 12: "years"}
_MOST_HOLES = 1 / 3  # of the grid
_A_FORTNIGHT = 14
_EXACT = 1e-6

Stamps = list[np.ndarray]
_Grid = tuple[str, Stamps, Callable[[int, np.ndarray], np.ndarray]]


def fill_holes(series: list[np.ndarray], times: Stamps, notes: list[str]) -> tuple[Stamps, Stamps]:
    """Return series and timestamps with a step of missing values for every missing date.

    Where dates are on no grid, or more than a third of it would be holes, nothing is changed.

    Args:
        series: One array (time, channels) per recording.
        times: Their timestamps, in seconds since 1970, rising.
        notes: Where to say so.
    """
    grid = _calendar_months(times) or _even_steps(times)
    if grid is None:
        return series, times
    unit, index, timestamps_at = grid
    steps, rows = sum(int(one[-1]) + 1 for one in index), sum(len(one) for one in index)
    holes = steps - rows
    if not holes or holes > _MOST_HOLES * steps:
        return series, times
    filled, timestamps = [], []
    for number, (one, places) in enumerate(zip(series, index, strict=True)):
        values = np.full((int(places[-1]) + 1, one.shape[1]), np.nan, dtype=one.dtype)
        values[places] = one
        filled.append(values)
        timestamps.append(timestamps_at(number, np.arange(len(values))))
    notes.append(f"{holes:,} of {steps:,} {unit} are missing; they are kept as missing values.")
    return filled, timestamps


def future_timestamps(times: Stamps, steps: int) -> Stamps | None:
    """Return the timestamps of so many steps after each series; None where they are uneven.

    Args:
        times: The timestamps of the series, rising.
        steps: How many.
    """
    if any(len(one) < 2 for one in times):
        return None
    grid = _calendar_months(times) or _even_steps(times)
    if grid is None:
        return None
    _, index, timestamps_at = grid
    ahead = np.arange(1, steps + 1)
    return [timestamps_at(number, places[-1] + ahead) for number, places in enumerate(index)]


def in_units(seconds: float) -> str:
    """Return a time span in words, such as 1 day, 36 hours or 2.5 seconds."""
    step = max((unit for unit in _UNITS if seconds % unit == 0), default=1.0)
    count, unit = seconds / step, _UNITS[step]
    return f"{count:.4g} {unit if count != 1 else unit.removesuffix('s')}"


def are_working_days(times: Stamps) -> bool:
    """Whether timestamps are days from Monday to Friday, none of which is missing."""
    starts = np.concatenate([one % _DAY for one in times])
    if (starts != starts[0]).any():  # measured at any time of the day, as most that is uneven
        return False
    grid = _working_days(times)
    return grid is not None and all(len(one) == int(one[-1]) + 1 for one in grid[1])


def _even_steps(times: Stamps) -> _Grid | None:
    gaps = np.concatenate([np.diff(one) for one in times])
    if not len(gaps) or gaps.min() <= 0:
        return None
    step = float(gaps.min())
    if (np.abs(gaps - np.round(gaps / step) * step) > _EXACT * step).any():
        return None
    if step == _DAY:
        working = _working_days(times)
        if working is not None:
            return working
    index = [np.round((one - one[0]) / step).astype(np.int64) for one in times]
    return _UNITS.get(step, "steps"), index, lambda i, places: times[i][0] + step * places


def _working_days(times: Stamps) -> _Grid | None:
    days = [(one / _DAY).astype("datetime64[D]") for one in times]
    clock = np.concatenate([one % _DAY for one in times])
    whole = np.concatenate(days)
    span = max(float(one[-1] - one[0]) for one in times) / _DAY
    if not np.is_busday(whole).all() or span < _A_FORTNIGHT or (clock != clock[0]).any():
        return None
    index = [np.busday_count(one[0], one) for one in days]

    def timestamps(number: int, places: np.ndarray) -> np.ndarray:
        dates = np.busday_offset(days[number][0], places)
        return dates.astype("datetime64[s]").astype(np.float64) + clock[0]

    return "working days", index, timestamps


def _calendar_months(times: Stamps) -> _Grid | None:
    """Return the grid of dates on one day of the month, or on the last."""
    dates = [np.round(one).astype("datetime64[s]") for one in times]
    months = [one.astype("datetime64[M]") for one in dates]
    starts = np.concatenate([(d - m).astype(np.int64) for d, m in zip(dates, months, strict=True)])
    ends = np.concatenate(
        [((m + 1) - d).astype(np.int64) for d, m in zip(dates, months, strict=True)]
    )
    at_start, at_end = (starts == starts[0]).all(), (ends == ends[0]).all()
    numbers = [one.astype(np.int64) for one in months]
    gaps = np.concatenate([np.diff(one) for one in numbers])
    if not (at_start or at_end) or not len(gaps) or (gaps < 1).any():
        return None
    step = math.gcd(*gaps.tolist())
    index = [(one - one[0]) // step for one in numbers]

    def timestamps(number: int, places: np.ndarray) -> np.ndarray:
        month = months[number][0] + step * places
        if at_start:
            seconds = month.astype("datetime64[s]") + starts[0]
        else:
            seconds = (month + 1).astype("datetime64[s]") - ends[0]
        return seconds.astype(np.float64)

    return _MONTHS.get(step, "steps"), index, timestamps
