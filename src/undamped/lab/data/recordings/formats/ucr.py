"""The older text formats of the UCR and UEA archives, and their pairs of files.

A line is a series: `.tsv` and `.txt` files have the label first; `.arff` files, the format of Weka,
have it last. A set is a pair of files, `Name_TRAIN` and `Name_TEST`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from undamped._base.errors import DataError, shortened
from undamped._base.registry import readers
from undamped.lab.data.recordings.labels import label_of
from undamped.lab.data.recordings.reader import reads
from undamped.lab.data.recordings.series import SeriesSet

SUFFIXES = (".ts", ".tsv", ".txt", ".arff")


@reads(".tsv", ".txt")
def read_label_first(path: Path) -> SeriesSet:
    """Read one series per line, the label first; NaN at the end of a line is padding."""
    series, labels = [], []
    for number, line in _lines(path):
        words = [word for word in re.split(r"[,\s]+", line) if word]
        values = _numbers(words, path, number)
        observed = np.flatnonzero(~np.isnan(values[1:]))
        if not len(observed):
            raise line_error(path, number, "no values after the label")
        labels.append(label_of(values[0]))
        series.append(values[1 : 2 + observed[-1]].astype(np.float32)[:, None])
    return _as_set(series, labels, path)


@reads(".arff")
def read_arff(path: Path) -> SeriesSet:
    """Read one series per line below @data, the label last; the header is skipped."""
    series, labels, in_data = [], [], False
    for number, line in _lines(path):
        if line.startswith("%"):
            continue
        if not in_data:
            in_data = line.lower().startswith("@data")
            continue
        quoted = re.match(r"""(['"])(.*?)\1\s*,\s*(.*)$""", line)
        if quoted:  # a relation: channels are separated by a literal \n
            rows = [row.split(",") for row in quoted[2].split("\\n")]
            columns = [_numbers(row, path, number) for row in rows]
            if len({len(column) for column in columns}) != 1:
                raise line_error(path, number, "channels have different lengths")
            label = quoted[3]
        else:
            try:
                words = next(csv.reader([line], quotechar="'", skipinitialspace=True))
            except csv.Error as error:
                raise line_error(path, number, shortened(error)) from None
            columns, label = [_numbers(words[:-1], path, number)], words[-1] if words else ""
        array = np.stack(columns, axis=1).astype(np.float32)
        if not len(array):
            raise line_error(path, number, "no values before the label")
        series.append(array)
        labels.append(label.strip().strip("'\""))
    return _as_set(series, labels, path)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the non-empty lines of a text file with their numbers."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line.strip()
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text.") from None
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror or error}.") from None


def _numbers(words: list[str], path: Path, number: int) -> np.ndarray:
    """Return words as numbers; a question mark or an empty word is a missing value."""
    try:
        values = np.array(["nan" if w.strip() in ("?", "") else w for w in words], dtype=np.float64)
    except ValueError as error:
        raise line_error(path, number, shortened(error)) from None
    if (np.abs(values[~np.isnan(values)]) > np.finfo(np.float32).max).any():
        raise line_error(path, number, "a number is infinite or too large for single precision")
    return values


def _as_set(series: list[np.ndarray], labels: list[str], path: Path) -> SeriesSet:
    """Return series (time, channels) and their labels as a set."""
    if not series:
        raise DataError(f"{path} has no series.")
    widths = {values.shape[1] for values in series}
    if len(widths) > 1:
        raise DataError(f"{path}: all series must have the same channels, got {sorted(widths)}.")
    names = channel_names(series[0].shape[1])
    return SeriesSet(series, names, np.array(labels), source=str(path))


def channel_names(width: int) -> list[str]:
    """Return the names of channels in a format that has none."""
    return ["value"] if width == 1 else [f"channel {number}" for number in range(width)]


def line_error(source: str | Path, number: int, problem: str) -> DataError:
    """Return the error for a line of a file.

    Args:
        source: The file.
        number: The number of the line.
        problem: What is wrong with it.
    """
    return DataError(f"{source}, line {number}: {problem}.")


def read_ucr_file(path: str | Path) -> SeriesSet:
    """Read one .ts, .tsv, .txt or .arff file of the archive."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(f"{path} must be one of {', '.join(SUFFIXES)}.")
    return readers[suffix].read(path)


def read_ucr(path: str | Path) -> SeriesSet:
    """Read a published data set with its split.

    Args:
        path: The file `Name_TRAIN.…` beside `Name_TEST.…`, or a folder that holds such a pair.
    """
    train = find_training_file(Path(path))
    if train is None:
        raise DataError(f"{path} has no pair Name_TRAIN, Name_TEST of {', '.join(SUFFIXES)}.")
    test = train.with_name(train.name.replace("_TRAIN", "_TEST"))
    first, second = read_ucr_file(train), read_ucr_file(test)
    if first.channels != second.channels:
        raise DataError(
            f"{test} has {len(second.channels)} channels, but {train.name} has "
            f"{len(first.channels)}."
        )
    return SeriesSet(
        [*first.series, *second.series],
        first.channels,
        None
        if first.targets is None or second.targets is None
        else np.concatenate([np.asarray(first.targets), np.asarray(second.targets)]),
        [*(f"train {i}" for i in first.ids), *(f"test {i}" for i in second.ids)],
        times=None
        if first.times is None or second.times is None
        else [*first.times, *second.times],
        parts=np.array(["train"] * len(first) + ["test"] * len(second)),
        source=str(path),
    )


def find_training_file(path: Path) -> Path | None:
    """Return the training file of a published pair, or None if there is no pair."""
    if path.is_file():
        candidates = [path] if path.stem.endswith("_TRAIN") else []
    else:
        candidates = [p for s in SUFFIXES for p in sorted(path.glob(f"*_TRAIN{s}"))]
    for train in candidates:
        if train.with_name(train.name.replace("_TRAIN", "_TEST")).is_file():
            return train
    return None
