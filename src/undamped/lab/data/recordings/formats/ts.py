"""The .ts format of the UEA, UCR and TSER archives, with all variants of its header.

A file has comments (#), a header (@…) and one series per line: channels separated by colons, values
by commas, the label at the end. With timestamps every value is a pair, `(timestamp,value)`. Missing
values are `?` or `NaN`. Channels of unequal length are padded with missing values at their end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from undamped._base.errors import DataError
from undamped._base.options import nearest
from undamped.lab.data.recordings.formats.ucr import channel_names, line_error
from undamped.lab.data.recordings.reader import reads
from undamped.lab.data.recordings.series import SeriesSet

_PAIR = re.compile(r"\(([^(),]*),([^(),]*)\)")
_MISSING = ("?", "", "nan", "na", "none", "null")
_LARGEST = float(np.finfo(np.float32).max)


@dataclass
class _Header:
    """The fields of the header."""

    timestamps: bool = False
    labelled: bool = False
    numbers: bool = False
    classes: list[str] = field(default_factory=list)


@reads(".ts")
def read_ts(path: str | Path) -> SeriesSet:
    """Read a .ts file.

    Args:
        path: The file.

    Returns:
        The series, with labels as text or targets as numbers where the file has them.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            return parse_ts(file, str(path))
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror or error}.") from None


def parse_ts(lines: Iterable[bytes], source: str = "data") -> SeriesSet:
    """Read the lines of a .ts file; raise a `DataError` if they are malformed.

    Args:
        lines: The lines, as bytes.
        source: The name of the file, for messages.
    """
    header, in_data = _Header(), False
    series, times, labels = [], [], []
    for number, line in _text(lines, source):
        try:
            if not in_data:
                in_data = _read_header(line, header)
                continue
            columns = _split(line, header.timestamps)
            if header.labelled:
                labels.append(_label(columns.pop(), header))
            array, timestamps = (_timestamped if header.timestamps else _plain)(columns)
            if series and array.shape[1] != series[0].shape[1]:
                raise ValueError(f"{array.shape[1]} channels, but {series[0].shape[1]} before")
        except ValueError as error:
            raise line_error(source, number, str(error)) from None
        series.append(array)
        times.append(timestamps)
    if not in_data:
        raise DataError(f"{source}: the header has no @data line.")
    if not series:
        raise DataError(f"{source} has no series after @data.")
    return SeriesSet(
        series,
        channel_names(series[0].shape[1]),
        (np.array(labels) if labels else None),
        times=times if header.timestamps else None,
        source=source,
    )


def _text(lines: Iterable[bytes], source: str) -> Iterator[tuple[int, str]]:
    """Yield numbered lines without comments; only comments may have another encoding."""
    for number, raw in enumerate(lines, start=1):
        line = raw.lstrip(b"\xef\xbb\xbf") if number == 1 else raw
        line = line.strip()
        if not line or line.startswith((b"#", b"%")):
            continue
        try:
            yield number, line.decode("utf-8")
        except UnicodeDecodeError:
            raise line_error(source, number, "not UTF-8 text") from None


# The functions below raise a ValueError for a malformed line, to which `parse_ts` adds its number.


def _read_header(line: str, header: _Header) -> bool:
    """Parse a header line; return whether it is the last."""
    if not line.startswith("@"):
        raise ValueError(f"a header line must start with @: {_short(line)}")
    key, *words = line[1:].split() or [""]
    key = key.lower()
    if key == "data":
        return True
    if key in ("timestamps", "classlabel", "targetlabel"):
        if not words or words[0].lower() not in ("true", "false"):
            raise ValueError(f"@{key} must be true or false: {_short(line)}")
        yes = words[0].lower() == "true"
        if key == "timestamps":
            header.timestamps = yes
        elif yes:
            header.labelled, header.numbers = True, key == "targetlabel"
            header.classes = words[1:] if key == "classlabel" else []
    return False  # other fields follow from the data, and are sometimes wrong


def _split(line: str, timestamps: bool) -> list[str]:
    """Split at colons; those inside the brackets of a timestamp do not count."""
    if not timestamps:
        return line.split(":")
    columns, depth, begin = [], 0, 0
    for index, sign in enumerate(line):
        if sign == "(":
            depth += 1
        elif sign == ")":
            depth = max(0, depth - 1)
        elif sign == ":" and not depth:
            columns.append(line[begin:index])
            begin = index + 1
    return [*columns, line[begin:]]


def _label(text: str, header: _Header) -> str | float:
    text = text.strip()
    if header.numbers:
        return float(_numbers([text])[0])
    if not text or text == "?":
        return ""
    classes = header.classes
    # A label with blanks in it appears in the header as several words.
    if classes and text not in classes and not all(word in classes for word in text.split()):
        same = [name for name in classes if _same_number(name, text)]
        if not same:
            close = nearest(text, classes)
            hint = f"; did you mean '{close}'?" if close else ""
            raise ValueError(f"the label '{_short(text)}' is not in @classLabel{hint}")
        return same[0]
    return text


def _same_number(first: str, second: str) -> bool:
    try:
        return float(first) == float(second)
    except ValueError:
        return False


def _numbers(words: list[str]) -> np.ndarray:
    try:
        values = np.array(words, dtype=np.float64)
    except ValueError:
        cleaned = ["nan" if word.strip().lower() in _MISSING else word for word in words]
        try:
            values = np.array(cleaned, dtype=np.float64)
        except ValueError:
            bad = next(word for word in cleaned if not _is_number(word))
            raise ValueError(f"'{_short(bad)}' is not a number") from None
    if (np.abs(values[~np.isnan(values)]) > _LARGEST).any():
        raise ValueError("a number is infinite or too large for single precision")
    return values


def _is_number(word: str) -> bool:
    try:
        np.array([word], dtype=np.float64)
    except ValueError:
        return False
    return True


def _plain(columns: list[str]) -> tuple[np.ndarray, np.ndarray]:
    values = [_numbers(column.split(",")) if column.strip() else np.empty(0) for column in columns]
    longest = max(map(len, values), default=0)
    if not longest:
        raise ValueError("no values" if columns else "no channels")
    array = np.full((longest, len(values)), np.nan, dtype=np.float32)
    for index, channel in enumerate(values):
        array[: len(channel), index] = channel
    return array, np.empty(0)


def _timestamped(columns: list[str]) -> tuple[np.ndarray, np.ndarray]:
    channels = []
    for column in columns:
        pairs = _PAIR.findall(column)
        if _PAIR.sub("", column).replace(",", "").strip() not in ("", "?"):
            raise ValueError(f"'{_short(column)}' is not a list of pairs (timestamp,value)")
        timestamps = _timestamps([timestamp for timestamp, _ in pairs])
        if len(np.unique(timestamps)) != len(timestamps):
            raise ValueError("a timestamp occurs twice")
        channels.append((timestamps, _numbers([value for _, value in pairs])))
    if not channels:
        raise ValueError("no channels")
    times = np.unique(np.concatenate([timestamps for timestamps, _ in channels]))
    if not len(times):
        raise ValueError("no values")
    array = np.full((len(times), len(channels)), np.nan, dtype=np.float32)
    for index, (timestamps, values) in enumerate(channels):
        array[np.searchsorted(times, timestamps), index] = values
    return array, times


def _timestamps(words: list[str]) -> np.ndarray:
    """Return timestamps as numbers; dates become seconds."""
    if not words:
        return np.empty(0)
    try:
        values = np.array(words, dtype=np.float64)
    except ValueError:
        try:
            values = np.array([_seconds(word) for word in words])
        except ValueError:
            raise ValueError(
                f"the timestamp '{_short(words[0])}' is neither number nor ISO date"
            ) from None
    if not np.isfinite(values).all():
        raise ValueError("a timestamp is not finite")
    return values


def _seconds(date: str) -> float:
    """Return an ISO date as seconds since 1970; without a time zone it is in UTC."""
    moment = datetime.fromisoformat(date.strip())
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "…"
