"""One line of text is one sample: numbers with commas between them, or JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from undamped._base.errors import DataError, explain
from undamped.lab.export.subject import Subject

MISSING = ("", "na", "nan", "null", "none")
"""What stands for a value that is not there."""

Row = tuple[list[float] | int, float | None]
"""A sample and its time."""


class SampleLines:
    """Reads samples of a model from lines.

    A first line of names says which column is which; without it columns are the channels in
    order, after the time where the model wants one. A JSON line is a list in the same order, or
    an object with a value for each name.

    Args:
        subject: The model whose samples these are.
        time: The name of the time's column.
    """

    def __init__(self, subject: Subject, time: str = "time") -> None:
        prepared = subject.preparation
        self._symbols = subject.input_kind == "symbols"
        self._gaps = prepared is not None
        self._time = time if prepared is not None and prepared.stamps else None
        if prepared is not None:
            choices = [prepared.raw_channels, prepared.channels]
        else:
            choices = [[""] if self._symbols else [""] * subject.model.input_size]
        self._choices: list[list[str]] = choices
        self._named = prepared is not None
        self._places: list[int] | None = None  # of the values to read, where names were given
        self._width = 0
        self._started = False

    def read(self, line: str) -> list[Row]:
        """Return the sample of a line; none for a line of names and for an empty one."""
        text = line.strip()
        if not text:
            return []
        if text[0] in "[{":
            self._started = True
            return [self._from_json(text)]
        fields = [part.strip() for part in text.split(",")]
        if not self._started:
            self._started = True
            if not all(_is_value(part) for part in fields):
                self._read_names([part.strip("\"'") for part in fields])
                return []
        return [self._sample(fields, self._places)]

    def _read_names(self, names: list[str]) -> None:
        if not self._named:
            return  # channels without names: they are in order
        found = self._choose(names)
        self._places = [names.index(name) for name in found]
        self._width = len(names)

    def _from_json(self, text: str) -> Row:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            raise _bad("a JSON list or object", "something else") from None
        if isinstance(value, list):
            return self._sample(value)
        if not self._named:
            raise _bad("a list, since the channels have no names", "an object")
        return self._sample([value[name] for name in self._choose(value)])

    def _choose(self, names: Collection[str]) -> list[str]:
        """Return the names to read: all channels if they are there, or those that are used."""
        wanted, missing = [], [""]
        for choice in self._choices:
            wanted = [*([self._time] if self._time else []), *choice]
            missing = [name for name in wanted if name not in names]
            if not missing:
                return wanted
        raise _bad(f"values named {', '.join(wanted)}", f"none named '{missing[0]}'")

    def _sample(self, fields: list[Any], places: list[int] | None = None) -> Row:
        if places is not None:
            if len(fields) != self._width:
                raise _bad(f"{self._width} columns, as in the first line", f"{len(fields)}")
            fields = [fields[place] for place in places]
        sizes = sorted({len(choice) + bool(self._time) for choice in self._choices})
        if len(fields) not in sizes:
            raise _bad(f"{' or '.join(map(str, sizes))} values", f"{len(fields)}")
        time = _time(fields[0]) if self._time else None
        values = [_number(field) for field in (fields[1:] if self._time else fields)]
        if self._symbols:
            if not values[0].is_integer():
                raise _bad("a whole number", fields[0])
            return int(values[0]), None
        if not self._gaps and not all(map(math.isfinite, values)):
            raise _bad("finite numbers", "a missing or infinite one")
        return values, time


class TextLines:
    """Reads characters, each of them a sample.

    Args:
        vocabulary: The characters the model knows, in the order of their numbers.
    """

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self._number = {character: number for number, character in enumerate(vocabulary)}

    def read(self, line: str) -> list[Row]:
        """Return one sample per character; a line's end only counts if the model knows it."""
        line = line.replace("\r\n", "\n")
        if "\n" not in self._number:
            line = line.removesuffix("\n")
        strange = [character for character in line if character not in self._number]
        if strange:
            known = "".join(self._number)
            raise _bad(f"characters of the training text, {known!r}", repr(strange[0]))
        return [(self._number[character], None) for character in line]


def _bad(expected: str, got: str) -> DataError:
    remedy = "Correct it, or go on after such lines with --skip."
    return DataError(explain("sample", expected=expected, got=got, remedy=remedy))


def _is_value(text: str) -> bool:
    for read in (_number, _time):
        try:
            read(text)
        except DataError:
            continue
        return True
    return False


def _number(field: Any) -> float:
    """Read a number of a line or of JSON; NaN where it is missing."""
    if field is None or (isinstance(field, str) and field.lower() in MISSING):
        return math.nan
    if not isinstance(field, bool | list | dict):
        try:
            return float(field)
        except (ValueError, OverflowError):
            pass
    raise _bad("numbers", f"'{str(field)[:40]}'")


def _time(field: Any) -> float:
    """Read a time: a number, or a date as seconds since 1970."""
    try:
        number = _number(field)
    except DataError:
        try:
            date = datetime.fromisoformat(str(field))
        except ValueError:
            date = None
        if date is not None:
            return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    else:
        if math.isfinite(number):
            return number
    raise _bad("a time, as a number or an ISO date", f"'{str(field)[:40]}'")
