"""Regular grids of dates: days, hours, months and working days.

A recording in which some days are missing is a regular one with missing values, which every
forecaster can read.
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

Arrays = list[np.ndarray]
_Grid = tuple[str, Arrays, Callable[[int, np.ndarray], np.ndarray]]
"""The unit, the index of each timestamp, and the timestamps of a series at some indices."""


def fill_holes(series: Arrays, times: Arrays, notes: list[str]) -> tuple[Arrays, Arrays]:
    """Return series and timestamps with a step of missing values for every missing date.

    Where dates are on no grid, or more than a third of it would be missing, nothing is changed.

    Args:
        series: One array (time, channels) per recording.
        times: Their timestamps, in seconds since 1970, increasing.
        notes: A note is added here.
    """
    grid = _calendar_months(times) or _even_steps(times)
    if grid is None:
        return series, times
    unit, index, timestamps_at = grid
    steps = sum(int(rows[-1]) + 1 for rows in index)
    holes = steps - sum(len(rows) for rows in index)
    if not holes or holes > _MOST_HOLES * steps:
        return series, times
    filled, timestamps = [], []
    for number, (array, rows) in enumerate(zip(series, index, strict=True)):
        values = np.full((int(rows[-1]) + 1, array.shape[1]), np.nan, dtype=array.dtype)
        values[rows] = array
        filled.append(values)
        timestamps.append(timestamps_at(number, np.arange(len(values))))
    notes.append(f"{holes:,} of {steps:,} {unit} are missing and become missing values.")
    return filled, timestamps


def future_timestamps(times: Arrays, steps: int) -> Arrays | None:
    """Return the timestamps of the next steps of each series; None if they are irregular.

    Args:
        times: The timestamps of the series, increasing.
        steps: The number of steps.
    """
    if any(len(timestamps) < 2 for timestamps in times):
        return None
    grid = _calendar_months(times) or _even_steps(times)
    if grid is None:
        return None
    _, index, timestamps_at = grid
    future = np.arange(1, steps + 1)
    return [timestamps_at(number, rows[-1] + future) for number, rows in enumerate(index)]


def in_units(seconds: float) -> str:
    """Return a duration with its unit, such as 1 day, 36 hours or 2.5 seconds."""
    step = max((unit for unit in _UNITS if seconds % unit == 0), default=1.0)
    count, unit = seconds / step, _UNITS[step]
    return f"{count:.4g} {unit if count != 1 else unit.removesuffix('s')}"


def are_working_days(times: Arrays) -> bool:
    """Whether timestamps are days from Monday to Friday, none of which is missing."""
    grid = _working_days(times)
    return grid is not None and all(len(rows) == int(rows[-1]) + 1 for rows in grid[1])


def _even_steps(times: Arrays) -> _Grid | None:
    gaps = np.concatenate([np.diff(timestamps) for timestamps in times])
    if not len(gaps) or gaps.min() <= 0:
        return None
    step = float(gaps.min())
    if (np.abs(gaps - np.round(gaps / step) * step) > _EXACT * step).any():
        return None
    if step == _DAY:
        working = _working_days(times)
        if working is not None:
            return working
    index = [np.round((t - t[0]) / step).astype(np.int64) for t in times]
    return _UNITS.get(step, "steps"), index, lambda i, rows: times[i][0] + step * rows


def _working_days(times: Arrays) -> _Grid | None:
    clock = np.concatenate([t % _DAY for t in times])
    span = max(float(t[-1] - t[0]) for t in times) / _DAY
    # Irregular timestamps are at any time of the day, and end here.
    if (clock != clock[0]).any() or span < _A_FORTNIGHT:
        return None
    days = [(t / _DAY).astype("datetime64[D]") for t in times]
    if not np.is_busday(np.concatenate(days)).all():
        return None
    index = [np.busday_count(dates[0], dates) for dates in days]

    def timestamps(number: int, rows: np.ndarray) -> np.ndarray:
        dates = np.busday_offset(days[number][0], rows)
        return dates.astype("datetime64[s]").astype(np.float64) + clock[0]

    return "working days", index, timestamps


def _calendar_months(times: Arrays) -> _Grid | None:
    """Return the grid of dates on the same day of the month, or on its last day."""
    dates = [np.round(t).astype("datetime64[s]") for t in times]
    months = [date.astype("datetime64[M]") for date in dates]
    starts = np.concatenate([(d - m).astype(np.int64) for d, m in zip(dates, months, strict=True)])
    ends = np.concatenate(
        [((m + 1) - d).astype(np.int64) for d, m in zip(dates, months, strict=True)]
    )
    at_start, at_end = (starts == starts[0]).all(), (ends == ends[0]).all()
    numbers = [month.astype(np.int64) for month in months]
    gaps = np.concatenate([np.diff(number) for number in numbers])
    if not (at_start or at_end) or not len(gaps) or (gaps < 1).any():
        return None
    step = math.gcd(*gaps.tolist())
    index = [(number - number[0]) // step for number in numbers]

    def timestamps(number: int, rows: np.ndarray) -> np.ndarray:
        month = months[number][0] + step * rows
        if at_start:
            seconds = month.astype("datetime64[s]") + starts[0]
        else:
            seconds = (month + 1).astype("datetime64[s]") - ends[0]
        return seconds.astype(np.float64)

    return _MONTHS.get(step, "steps"), index, timestamps
