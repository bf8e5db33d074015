"""Timestamps of a table: numbers, ISO dates, and other common formats of dates.

The format is detected once, in the first rows, and holds for the whole column: a date in another
format raises an error.
"""

from __future__ import annotations

import itertools
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from undamped.lab.data.recordings.formats.table.columns import Position, numbers_in

if TYPE_CHECKING:
    from pandas import DataFrame

_ISO = "ISO8601"
_DAY_FIRST = tuple(f"%d{mark}%m{mark}{year}" for year in ("%Y", "%y") for mark in "./-")
_MONTH_FIRST = tuple(f"%m{mark}%d{mark}{year}" for year in ("%Y", "%y") for mark in "/-")
_NAMED = tuple(
    form.replace("%b", month)
    for month in ("%b", "%B")
    for form in (
        *("%b %Y", "%Y-%b", "%Y %b", "%b-%Y", "%b-%y", "%d %b %Y", "%d-%b-%Y", "%d-%b-%y"),
        *("%d. %b %Y", "%b %d %Y", "%b %d, %Y"),
    )
)
_MONTHS = ("%m/%Y", "%m.%Y", "%m-%Y", "%YM%m")
_CLOCKS = ("", "%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p")
_OFFSET = r":\d\d(\.\d+)?\s*(Z|[+-]\d\d:?(\d\d)?)$"
_SAMPLE = 50
_DAYS_IN = ((28, 31, 30), (90, 92, 91), (365, 366, 365))  # of months, quarters, years
_SECONDS_OF_DAY = 86_400.0


class Timestamps:
    """Reads a column of timestamps block by block.

    Args:
        name: The column.
        dayfirst: Whether 1/2/2024 is the first of February; detected if not given.
    """

    def __init__(self, name: str, dayfirst: bool | None = None) -> None:
        self.name = name
        self.dayfirst = dayfirst
        self.format: str | None = None
        self.notes: list[str] = []
        self.dates = False
        self.zoned = False
        self.day_first: bool | None = None
        """Whether the day was read before the month; None where dates have no such order."""
        self._started = False

    def seconds(self, block: DataFrame, position: Position) -> np.ndarray:
        """Return timestamps (rows,): numbers as they are, dates as seconds since 1970."""
        from pandas.api.types import is_numeric_dtype

        column: Any = block[self.name]
        if is_numeric_dtype(column):
            self._check_kind(False, column, position)
            seconds = column.to_numpy(dtype=np.float64, na_value=np.nan)
            if column.dtype.kind in "iu":
                _check_exact(column.to_numpy(), seconds, self.name, position)
            expected = "a number"
        else:
            numbers = numbers_in(column, position.decimal)
            if not self._started:
                self.format = self._find_format(column)
            dates = _seconds(column, self.format)
            # A column holds numbers or dates; an error names the first of the other kind.
            self._check_kind(
                np.isfinite(numbers).sum() <= np.isfinite(dates).sum(), column, position
            )
            seconds = dates if self.dates else numbers
            self.zoned = self.zoned or (self.dates and _has_offsets(column))
            expected = "a date" if np.isfinite(dates).any() else "a number or an ISO date"
            if self.dates and self.format != _ISO:
                expected = f"a date like those of the other rows, {readable(self.format)}"
        bad = np.flatnonzero(~np.isfinite(seconds))
        if len(bad):
            row = int(bad[0])
            value = str(column.iloc[row])[:40]
            raise position.error(self.name, row, f"'{value}' is not {expected}.")
        return seconds

    def _check_kind(self, dates: bool, column: Any, position: Position) -> None:
        """Raise an error for a column of which some rows are numbers and others dates."""
        if self._started and dates != self.dates:
            kind = "date" if self.dates else "number"
            value = str(column.iloc[0])[:40]
            raise position.error(self.name, 0, f"'{value}' is not a {kind}, as the rows before.")
        self.dates, self._started = bool(dates), True

    def _find_format(self, column: Any) -> str:
        """Return the format that most of the dates have."""
        if column.dtype.kind == "M":
            return _ISO
        words = column.dropna().astype(str).str.strip()
        if not len(words) or np.isfinite(_seconds(words[:_SAMPLE], _ISO)).any():
            return _ISO
        possible = (" ".join(pair).strip() for pair in itertools.product(self._forms(), _CLOCKS))
        ends = words.iloc[0], words.iloc[-1]
        formats = [form for form in possible if any(_fits(word, form) for word in ends)]
        if not formats:
            return _ISO
        read = {form: _seconds(words, form) for form in formats}
        missing = {form: int(np.isnan(seconds).sum()) for form, seconds in read.items()}
        best = [form for form in formats if missing[form] == min(missing.values())]
        likeliest = min(best, key=lambda form: _count_gaps(read[form]))
        if "%b" not in likeliest.lower() and "%d" in likeliest:
            self._add_note(words.iloc[0], likeliest, best, read)
            self.day_first = likeliest.startswith("%d")
        return likeliest

    def _forms(self) -> tuple[str, ...]:
        if self.dayfirst is None:
            # Where dates are ambiguous, the month comes first with slashes, as in pandas.
            return (*_MONTH_FIRST[::2], *_DAY_FIRST, *_MONTH_FIRST[1::2], *_NAMED, *_MONTHS)
        return (*(_DAY_FIRST if self.dayfirst else _MONTH_FIRST), *_NAMED, *_MONTHS)

    def _add_note(self, word: str, form: str, best: list[str], read: dict[str, np.ndarray]) -> None:
        day_first = form.startswith("%d")
        note = f"Dates such as {word} are read as {readable(form)}"
        rest = [choice for choice in best if choice.startswith("%d") != day_first]
        if self.dayfirst is None and any((read[choice] != read[form]).any() for choice in rest):
            note += f", an assumption: set dayfirst={str(not day_first).lower()} if it is wrong"
        self.notes.append(f"{note}.")


def readable(form: str | None) -> str:
    """Return a format in words: day/month/year for %d/%m/%Y."""
    words = {"%d": "day", "%m": "month", "%b": "month", "%B": "month", "%Y": "year", "%y": "year"}
    words |= {"%H": "hour", "%I": "hour", "%M": "minute", "%S": "second", ".%f": "", " %p": ""}
    text = form or ""
    for code, word in words.items():
        text = text.replace(code, word)
    return text


def holds_dates(column: Any) -> bool:
    """Whether a column of text or of date objects holds dates only."""
    from pandas.api.types import is_numeric_dtype

    if column.dtype.kind == "M":
        return bool(column.notna().all())
    if is_numeric_dtype(column) or column.isna().any() or not len(column):
        return False
    reader = Timestamps(str(column.name))
    if np.isnan(_seconds(column[:_SAMPLE], reader._find_format(column[:_SAMPLE]))).any():
        return False
    return bool(np.isfinite(_seconds(column, reader._find_format(column))).all())


def _has_offsets(column: Any) -> bool:
    """Whether dates have an offset from UTC."""
    if column.dtype.kind == "M":
        return getattr(column.dtype, "tz", None) is not None
    words = column.dropna().astype(str).str.strip()
    return bool(len(words)) and re.search(_OFFSET, words.iloc[0]) is not None


def _fits(word: str, form: str) -> bool:
    try:
        datetime.strptime(word, form)
    except ValueError:
        return False
    return True


def _seconds(column: Any, form: str | None) -> np.ndarray:
    """Return dates as seconds since 1970, NaN where there is none."""
    import pandas as pd

    words = column if column.dtype.kind == "M" else column.astype(object)
    if column.dtype.kind != "M" and form != _ISO:
        words = words.where(words.isna(), words.astype(str).str.strip())
    dates: Any = pd.to_datetime(words, errors="coerce", utc=True, format=form)
    return ((dates - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(1, "s")).to_numpy(np.float64)


def _count_gaps(seconds: np.ndarray) -> int:
    """Return the number of different gaps; months, quarters and years count as even."""
    days = np.diff(np.unique(seconds[np.isfinite(seconds)])) / _SECONDS_OF_DAY
    for low, high, typical in _DAYS_IN:
        days = np.where((days >= low) & (days <= high), typical, days)
    return len(np.unique(np.round(days, 6)))


def _check_exact(exact: np.ndarray, seconds: np.ndarray, name: str, position: Position) -> None:
    """Raise an error for timestamps beyond 2^53, whose distances rounding would make noise."""
    bad = np.flatnonzero(np.abs(seconds) > 2.0**53)
    if len(bad):
        row = int(bad[0])
        raise position.error(
            name,
            row,
            f"double precision cannot represent the timestamp {exact[row]} exactly. Count from the "
            "beginning of the recording, or write ISO dates.",
        )
