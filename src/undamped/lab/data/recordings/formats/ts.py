"""The .ts format of the UEA, UCR and TSER archives, with all variants of its header.

A file has comments (#), a header (@…) and one series per line: channels separated by colons, values
by commas, the label at the end. With time stamps every value is a pair, `(stamp,value)`. Missing
values are `?` or `NaN`. Channels of unequal length are filled up with missing values at their end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from undamped._base.errors import DataError, explain
from undamped._base.options import nearest
from undamped.lab.data.recordings.reader import reads
from undamped.lab.data.recordings.series import SeriesSet

_PAIR = re.compile(r"\(([^(),]*),([^(),]*)\)")
_MISSING = ("?", "", "nan", "na", "none", "null")
_LARGEST = float(np.finfo(np.float32).max)


@dataclass
class _Header:
    """What the lines with an @ say."""

    stamps: bool = False
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
        raise DataError(
            explain(
                str(path),
                expected="a .ts file",
                got=error.strerror or "one that cannot be read",
                remedy="Check the path.",
            )
        ) from None


def parse_ts(lines: Iterable[bytes], source: str = "data") -> SeriesSet:
    """Read the lines of a .ts file; whatever is wrong with them is a `DataError`.

    Args:
        lines: The lines, as bytes.
        source: Where they came from, for messages.
    """
    header, numbered = _Header(), _text(lines, source)
    for number, line in numbered:
        if not line.startswith("@"):
            raise _wrong(source, number, "a header line that starts with @", _short(line))
        if _read_header(line, header, source, number):
            break
    else:
        raise _wrong(source, 0, "a header that ends with @data", "none")
    series, times, labels = [], [], []
    for number, line in numbered:
        columns = _split(line, header.stamps)
        if header.labelled:
            labels.append(_label(columns.pop(), header, source, number))
        if not columns:
            raise _wrong(source, number, "at least one channel", "none")
        read = _stamped if header.stamps else _plain
        array, stamps = read(columns, source, number)
        if series and array.shape[1] != series[0].shape[1]:
            raise _wrong(
                source, number, f"{series[0].shape[1]} channels as before", str(array.shape[1])
            )
        series.append(array)
        times.append(stamps)
    if not series:
        raise _wrong(source, 0, "series after @data", "none")
    return SeriesSet(
        series,
        _names(series[0].shape[1]),
        (np.array(labels) if labels else None),
        times=times if header.stamps else None,
        source=source,
    )


def _text(lines: Iterable[bytes], source: str) -> Iterator[tuple[int, str]]:
    """Return numbered lines without comments; only comments may be other than UTF-8."""
    for number, raw in enumerate(lines, start=1):
        line = raw.lstrip(b"\xef\xbb\xbf") if number == 1 else raw
        line = line.strip()
        if not line or line.startswith((b"#", b"%")):
            continue
        try:
            yield number, line.decode("utf-8")
        except UnicodeDecodeError:
            raise _wrong(source, number, "UTF-8 text", "other bytes") from None


def _read_header(line: str, header: _Header, source: str, number: int) -> bool:
    """Take in a header line; return whether it is the last."""
    key, *words = line[1:].split() or [""]
    key = key.lower()
    if key == "data":
        return True
    if key in ("timestamps", "classlabel", "targetlabel"):
        if not words or words[0].lower() not in ("true", "false"):
            raise _wrong(source, number, f"true or false after @{key}", _short(line))
        yes = words[0].lower() == "true"
        if key == "timestamps":
            header.stamps = yes
        elif yes:
            header.labelled, header.numbers = True, key == "targetlabel"
            header.classes = words[1:] if key == "classlabel" else []
    return False  # the rest can be seen from the data, and is sometimes wrong


def _split(line: str, stamps: bool) -> list[str]:
    """Split at colons; those inside the brackets of a time stamp do not count."""
    if not stamps:
        return line.split(":")
    columns, depth, begin = [], 0, 0
    for place, sign in enumerate(line):
        if sign == "(":
            depth += 1
        elif sign == ")":
            depth = max(0, depth - 1)
        elif sign == ":" and not depth:
            columns.append(line[begin:place])
            begin = place + 1
    return [*columns, line[begin:]]


def _label(text: str, header: _Header, source: str, number: int) -> str | float:
    text = text.strip()
    if header.numbers:
        return float(_numbers([text], source, number)[0])
    if not text or text == "?":
        return ""
    known = header.classes
    # A label with blanks in it appears in the header as several words.
    if known and text not in known and not all(word in known for word in text.split()):
        same = [name for name in known if _same_number(name, text)]
        if not same:
            close = nearest(text, known)
            hint = f"; did it mean '{close}'?" if close else ""
            raise _wrong(
                source, number, "one of the labels of @classLabel", f"'{_short(text)}'{hint}"
            )
        return same[0]
    return text


def _same_number(first: str, second: str) -> bool:
    try:
        return float(first) == float(second)
    except ValueError:
        return False


def _numbers(words: list[str], source: str, number: int) -> np.ndarray:
    try:
        values = np.array(words, dtype=np.float64)
    except ValueError:
        cleaned = ["nan" if word.strip().lower() in _MISSING else word for word in words]
        try:
            values = np.array(cleaned, dtype=np.float64)
        except ValueError:
            bad = next(word for word in cleaned if not _is_number(word))
            raise _wrong(source, number, "numbers", f"'{_short(bad)}'") from None
    if (np.abs(values[~np.isnan(values)]) > _LARGEST).any():
        raise _wrong(source, number, "finite numbers", "one too large")
    return values


def _is_number(word: str) -> bool:
    try:
        np.array([word], dtype=np.float64)
    except ValueError:
        return False
    return True


def _plain(columns: list[str], source: str, number: int) -> tuple[np.ndarray, np.ndarray]:
    values = [
        _numbers(column.split(","), source, number) if column.strip() else np.empty(0)
        for column in columns
    ]
    longest = max(len(one) for one in values)
    if not longest:
        raise _wrong(source, number, "values", "none")
    array = np.full((longest, len(values)), np.nan, dtype=np.float32)
    for place, one in enumerate(values):
        array[: len(one), place] = one
    return array, np.empty(0)


def _stamped(columns: list[str], source: str, number: int) -> tuple[np.ndarray, np.ndarray]:
    found = []
    for column in columns:
        pairs = _PAIR.findall(column)
        if _PAIR.sub("", column).replace(",", "").strip() not in ("", "?"):
            raise _wrong(source, number, "pairs of the form (stamp,value)", f"'{_short(column)}'")
        stamps = _stamps([stamp for stamp, _ in pairs], source, number)
        if len(np.unique(stamps)) != len(stamps):
            raise _wrong(source, number, "different time stamps", "one of them twice")
        found.append((stamps, _numbers([value for _, value in pairs], source, number)))
    times = np.unique(np.concatenate([stamps for stamps, _ in found]))
    if not len(times):
        raise _wrong(source, number, "values", "none")
    array = np.full((len(times), len(found)), np.nan, dtype=np.float32)
    for place, (stamps, values) in enumerate(found):
        array[np.searchsorted(times, stamps), place] = values
    return array, times


def _stamps(words: list[str], source: str, number: int) -> np.ndarray:
    """Return time stamps as numbers; dates become seconds."""
    if not words:
        return np.empty(0)
    try:
        values = np.array(words, dtype=np.float64)
    except ValueError:
        try:
            values = np.array([seconds_of(word) for word in words])
        except ValueError:
            bad = f"'{_short(words[0])}'"
            raise _wrong(source, number, "numbers or ISO dates as stamps", bad) from None
    if not np.isfinite(values).all():
        raise _wrong(source, number, "finite time stamps", "another")
    return values


def seconds_of(date: str) -> float:
    """Return an ISO date as seconds since 1970; without a zone it is taken as UTC."""
    moment = datetime.fromisoformat(date.strip())
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _names(width: int) -> list[str]:
    return ["value"] if width == 1 else [f"channel {number}" for number in range(width)]


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "…"


def _wrong(source: str, number: int, expected: str, got: str) -> DataError:
    place = f"{source}, line {number}" if number else source
    return DataError(
        explain(place, expected=expected, got=got, remedy="Correct that place of the .ts file.")
    )
