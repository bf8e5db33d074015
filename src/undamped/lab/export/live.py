"""Streaming: a trained model that takes sample after sample, and samples as lines of text."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import DataError, OptionError, shortened
from undamped.lab.export.subject import Subject
from undamped.lab.files import read_tensors, write_tensors
from undamped.lab.training.early_answers import probabilities_of
from undamped.lab.training.stopping import Decisions, StoppingRule
from undamped.lab.training.streaming import SampleStream
from undamped.models.sequence_model import SequenceModel

_PLAIN = "stream"  # key of plain values in the metadata of a file
MISSING = ("", "na", "nan", "null", "none")
"""Text of missing values."""

Row = tuple[list[float] | int, float | None]
"""A sample and its time."""


class LiveModel(SampleStream):
    """A model with its preparation and its state, in constant memory.

    It uses a copy of the network, which later training does not change.

    Args:
        subject: The model with its preparation.
        rule: When to decide on the class of a series; see `stopping_rule`. Then blocks of samples
            are taken in parts that end at its checkpoints.

    Example:
        >>> live = LiveModel(subject_of(Run.open("runs/recordings-unicornn-1")))
        >>> live.push([0.3, 1.2])
        >>> live.answer()
        {'label': 'walking', 'probabilities': {...}}
    """

    def __init__(self, subject: Subject, rule: StoppingRule | None = None) -> None:
        model = subject.model
        if isinstance(model, SequenceModel) and model.network.bidirectional:
            raise OptionError(
                "A bidirectional network cannot read a stream. Use 'undamped predict'."
            )
        self.decisions = None if rule is None else Decisions(rule)
        super().__init__(model, subject.preparation)
        self.subject = subject

    @property
    def decided(self) -> bool:
        """Whether the rule has decided on the class of the present series."""
        return self.decisions is not None and self.decisions.sample is not None

    def reset(self) -> None:
        super().reset()
        if self.decisions is not None:
            self.decisions.reset()

    def push(self, samples: Any, times: Any = None) -> None:
        if self.decisions is None:
            super().push(samples, times)
            return
        rows = self._array(samples)
        if single := rows.ndim == (0 if self._symbols else 1):
            rows = rows[None]
            times = None if times is None else np.atleast_1d(np.asarray(times, dtype=np.float64))
        start = 0
        while start < len(rows):
            count = self.decisions.remaining(self.steps)
            span = slice(start, None if count is None else start + count)
            super().push(rows[0] if single else rows[span], None if times is None else times[span])
            if count is not None and self.decisions.remaining(self.steps - 1) == 1:
                self.decisions.take(self.steps, probabilities_of(self))
            start = len(rows) if count is None else start + count

    def save_state(self, path: Path) -> None:
        """Write the state into a file, atomically."""
        state = self.state_dict()
        tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
        plain = {name: value for name, value in state.items() if name not in tensors}
        write_tensors(path, tensors, {_PLAIN: json.dumps(plain)})

    def _more_state(self) -> dict[str, Any]:
        return {} if self.decisions is None else {"decision": self.decisions.state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        if self.decisions is not None and "decision" in state:
            self.decisions.restore(state["decision"])

    def load_state(self, path: Path) -> None:
        """Continue from the state in a file that `save_state` wrote."""
        tensors, metadata = read_tensors(path)
        try:
            plain = json.loads(metadata[_PLAIN])
        except (KeyError, ValueError, RecursionError):
            plain = {}
        self.load_state_dict({**(plain if isinstance(plain, dict) else {}), **tensors})

    def answer(self) -> dict[str, Any]:
        """Return the answer after the samples so far, in original labels and units.

        Classes without a preparation have "answer" and "probabilities", by name where they have
        names; numbers have "answer" alone. With a rule there is "decision" too, which is None while
        it is too early, and does not change after it was made.
        """
        answer, decisions = self._answer_so_far(), self.decisions
        if decisions is None:
            return answer
        if not self.decided:
            return {**answer, "decision": None}
        label, classes = decisions.label, self.subject.classes
        decision = {
            "label": classes[label] if classes else label,
            "sample": decisions.sample,
            "probability": decisions.probability,
        }
        return {**answer, "decision": decision}

    def _answer_so_far(self) -> dict[str, Any]:
        outputs, classes = self.outputs(), self.subject.classes
        if self.subject.preparation is not None:
            return self.subject.preparation.answer(outputs.numpy())[0]
        if classes is None:
            values = outputs[0].tolist()
            return {"answer": values[0] if len(values) == 1 else values}
        best = int(outputs.argmax())
        probabilities = torch.softmax(outputs[0], -1).tolist()
        if not classes:
            return {"answer": best, "probabilities": probabilities}
        by_name = dict(zip(classes, probabilities, strict=True))
        return {"answer": classes[best], "probabilities": by_name}


class SampleLines:
    """Reads samples of a model from lines of text: numbers with commas between them, or JSON.

    A first line of names assigns columns to channels; without it columns are the channels in
    order, after the time if the model uses timestamps. A JSON line is a list in the same order, or
    an object with a value for each name.

    Args:
        subject: The model.
        time: Name of the column of times.
    """

    def __init__(self, subject: Subject, time: str = "time") -> None:
        prepared = subject.preparation
        self._symbols = subject.input_kind == "symbols"
        self._allows_missing = prepared is not None
        self._time = time if prepared is not None and prepared.timestamps else None
        if prepared is not None:
            choices = [prepared.raw_channels, prepared.channels]
        else:
            choices = [[""] if self._symbols else [""] * subject.model.input_size]
        self._choices: list[list[str]] = choices
        self._has_names = prepared is not None
        self._columns: list[int] | None = None  # indices of the values, if the line of names exists
        self._width = 0
        self._started = False

    def read(self, line: str) -> list[Row]:
        """Return the sample of a line; an empty list for a line of names and an empty line."""
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
        return [self._sample(fields, self._columns)]

    def _read_names(self, names: list[str]) -> None:
        if not self._has_names:
            return  # channels without names: they are in order
        chosen_names = self._choose(names)
        self._columns = [names.index(name) for name in chosen_names]
        self._width = len(names)

    def _from_json(self, text: str) -> Row:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            raise _bad("a JSON list or object", shortened(text)) from None
        if isinstance(value, list):
            return self._sample(value)
        if not self._has_names:
            raise _bad("a list, since the channels have no names", "an object")
        return self._sample([value[name] for name in self._choose(value)])

    def _choose(self, names: Collection[str]) -> list[str]:
        """Return the names to read: all channels if they exist, or else those of the model."""
        required, missing = [], [""]
        for choice in self._choices:
            required = [*([self._time] if self._time else []), *choice]
            missing = [name for name in required if name not in names]
            if not missing:
                return required
        raise _bad(f"values named {', '.join(required)}", f"none named '{missing[0]}'")

    def _sample(self, fields: list[Any], columns: list[int] | None = None) -> Row:
        if columns is not None:
            if len(fields) != self._width:
                raise _bad(f"{self._width} columns, as in the first line", f"{len(fields)}")
            fields = [fields[column] for column in columns]
        sizes = sorted({len(choice) + bool(self._time) for choice in self._choices})
        if len(fields) not in sizes:
            raise _bad(f"{' or '.join(map(str, sizes))} values", f"{len(fields)}")
        time = _time(fields[0]) if self._time else None
        values = [_number(field) for field in (fields[1:] if self._time else fields)]
        if self._symbols:
            if not values[0].is_integer():
                raise _bad("a whole number", fields[0])
            return int(values[0]), None
        if not self._allows_missing and not all(map(math.isfinite, values)):
            raise _bad("finite numbers", "a missing or infinite one")
        return values, time


class TextLines:
    """Reads characters, each of which is a sample.

    Args:
        vocabulary: The characters of the model, in the order of their codes.
    """

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self._codes = {character: code for code, character in enumerate(vocabulary)}

    def read(self, line: str) -> list[Row]:
        """Return one sample per character; line ends only if they are in the vocabulary."""
        line = line.replace("\r\n", "\n")
        if "\n" not in self._codes:
            line = line.removesuffix("\n")
        unknown = [character for character in line if character not in self._codes]
        if unknown:
            vocabulary = "".join(self._codes)
            raise _bad(f"characters of the training text, {vocabulary!r}", repr(unknown[0]))
        return [(self._codes[character], None) for character in line]


def _bad(expected: str, got: str) -> DataError:
    return DataError(
        f"Expected {expected}, got {got}. Correct the line, or skip such lines with --skip."
    )


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
    raise _bad("numbers", f"'{shortened(str(field))}'")


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
    raise _bad("a time, as a number or an ISO date", f"'{shortened(str(field))}'")
