"""Time stamps of a table: numbers, ISO dates, and the other ways in which people write dates.

The way is found once, in the first rows, and holds for the whole column: what does not fit it is
refused rather than read in another way.
"""

from __future__ import annotations

import itertools
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from undamped._base.errors import DataError, explain
from undamped.lab.data.recordings.formats.table.places import Place, wrong_value
from undamped.lab.data.recordings.formats.table.values import numbers_in

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
    """Reads a column of time stamps piece by piece.

    Args:
        name: The column.
        dayfirst: Whether 1/2/2024 is the first of February; found in the dates if not given.
    """

    def __init__(self, name: str, dayfirst: bool | None = None) -> None:
        self.name = name
        self.dayfirst = dayfirst
        self.format: str | None = None
        self.notes: list[str] = []
        self.dates = False
        self.zoned = False
        self.day_comes_first: bool | None = None
        """Whether the day was read before the month; None where dates have no such order."""
        self._started = False

    def seconds(self, piece: DataFrame, place: Place) -> np.ndarray:
        """Return time stamps (rows,): numbers as they are, dates as seconds since 1970."""
        from pandas.api.types import is_numeric_dtype

        column: Any = piece[self.name]
        if is_numeric_dtype(column):
            self._agree(False, column, place)
            seconds = column.to_numpy(dtype=np.float64, na_value=np.nan)
            if column.dtype.kind in "iu":
                _refuse_rounded(column.to_numpy(), seconds, self.name, place)
            expected = "a number"
        else:
            numbers = numbers_in(column, place.decimal)
            if not self._started:
                self.format = self._find_format(column)
            dates = _seconds(column, self.format)
            # A column is one or the other, and the odd one out is to be named.
            self._agree(np.isfinite(numbers).sum() <= np.isfinite(dates).sum(), column, place)
            seconds = dates if self.dates else numbers
            self.zoned = self.zoned or (self.dates and _has_offsets(column))
            expected = "a number or an ISO date"
            if self.dates and self.format != _ISO:
                expected = f"a date like those of the other rows, {readable(self.format)}"
        bad = np.flatnonzero(~np.isfinite(seconds))
        if len(bad):
            row = int(bad[0])
            got = f"'{str(column.iloc[row])[:40]}'"
            raise wrong_value(place, self.name, row, expected, got)
        return seconds

    def _agree(self, dates: bool, column: Any, place: Place) -> None:
        """Refuse a column that is numbers here and dates there."""
        if self._started and dates != self.dates:
            kind = "dates" if self.dates else "numbers"
            got = f"'{str(column.iloc[0])[:40]}'"
            raise wrong_value(place, self.name, 0, f"{kind}, as before", got)
        self.dates, self._started = bool(dates), True

    def _find_format(self, column: Any) -> str:
        """Return the format that most of the dates have."""
        if column.dtype.kind == "M":
            return _ISO
        words = column.dropna().astype(str).str.strip()
        if not len(words) or np.isfinite(_seconds(words[:_SAMPLE], _ISO)).any():
            return _ISO
        formats = [
            f"{form} {clock}".strip()
            for form, clock in itertools.product(self._forms(), _CLOCKS)
            if _fits(words.iloc[0], f"{form} {clock}".strip())
            or _fits(words.iloc[-1], f"{form} {clock}".strip())
        ]
        if not formats:
            return _ISO
        read = {form: _seconds(words, form) for form in formats}
        missing = {form: int(np.isnan(seconds).sum()) for form, seconds in read.items()}
        best = [form for form in formats if missing[form] == min(missing.values())]
        chosen = min(best, key=lambda form: _unevenness(read[form]))
        if "%b" not in chosen.lower() and "%d" in chosen:
            self._say(words.iloc[0], chosen, best, read)
            self.day_comes_first = chosen.startswith("%d")
        return chosen

    def _forms(self) -> tuple[str, ...]:
        if self.dayfirst is None:
            # Where nothing speaks for either: with slashes the month comes first, as in pandas.
            return (*_MONTH_FIRST[::2], *_DAY_FIRST, *_MONTH_FIRST[1::2], *_NAMED, *_MONTHS)
        return (*(_DAY_FIRST if self.dayfirst else _MONTH_FIRST), *_NAMED, *_MONTHS)

    def _say(self, word: str, chosen: str, best: list[str], read: dict[str, np.ndarray]) -> None:
        day_first = chosen.startswith("%d")
        note = f"Dates such as {word} are read as {readable(chosen)}"
        others = [form for form in best if form.startswith("%d") != day_first]
        if self.dayfirst is None and any((read[o] != read[chosen]).any() for o in others):
            note += f", an assumption: say dayfirst={str(not day_first).lower()} if it is wrong"
        self.notes.append(f"{note}.")


def readable(form: str | None) -> str:
    """Return a format as people write it: day/month/year for %d/%m/%Y."""
    words = {"%d": "day", "%m": "month", "%b": "month", "%B": "month", "%Y": "year", "%y": "year"}
    words |= {"%H": "hour", "%I": "hour", "%M": "minute", "%S": "second", ".%f": "", " %p": ""}
    text = form or ""
    for code, word in words.items():
        text = text.replace(code, word)
    return text


def holds_dates(column: Any) -> bool:
    """Whether a column of text or of date objects holds dates and nothing else."""
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
    """Whether dates say how far their clock is from that of Greenwich."""
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


def _unevenness(seconds: np.ndarray) -> int:
    """Return how many different gaps there are; months, quarters and years count as even."""
    days = np.diff(np.unique(seconds[np.isfinite(seconds)])) / _SECONDS_OF_DAY
    for low, high, typical in _DAYS_IN:
        days = np.where((days >= low) & (days <= high), typical, days)
    return len(np.unique(np.round(days, 6)))


def _refuse_rounded(exact: np.ndarray, seconds: np.ndarray, name: str, place: Place) -> None:
    """Refuse stamps beyond 2^53, such as nanoseconds since 1970: their distances would be noise."""
    bad = np.flatnonzero(np.abs(seconds) > 2.0**53)
    if len(bad):
        row = int(bad[0])
        raise DataError(
            explain(
                place.of(name, row),
                expected="time stamps that double precision holds exactly",
                got=exact[row],
                remedy="Count from the beginning of the recording, or write ISO dates.",
            )
        )
