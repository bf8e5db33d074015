"""The other forms of the UCR archive: .txt and .tsv with the label first, .arff with it last.

`read_ucr` reads a published pair of files, `Name_TRAIN` and `Name_TEST`, as one set that knows its
split.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from undamped.data.recordings.formats.ts import read_ts
from undamped.data.recordings.labels import label_of
from undamped.data.recordings.series import SeriesSet
from undamped.errors import DataError, explain

SUFFIXES = (".ts", ".tsv", ".txt", ".arff")


def read_ucr_file(path: str | Path) -> SeriesSet:
    """Read one .ts, .tsv, .txt or .arff file of the archive."""
    path = Path(path)
    if path.suffix == ".ts":
        return read_ts(path)
    return _read_arff(path) if path.suffix == ".arff" else _read_rows(path)


def read_ucr(path: str | Path) -> SeriesSet:
    """Read a published data set with its own split.

    Args:
        path: The file `Name_TRAIN.…` beside `Name_TEST.…`, or a folder that holds such a pair.
    """
    train = find_training_file(Path(path))
    if train is None:
        raise DataError(
            explain(
                str(path),
                expected="Name_TRAIN and Name_TEST as .ts, .tsv, .txt or .arff",
                got="none",
                remedy="Name the folder that holds them.",
            )
        )
    test = train.with_name(train.name.replace("_TRAIN", "_TEST"))
    first, second = read_ucr_file(train), read_ucr_file(test)
    if first.channels != second.channels:
        raise DataError(
            explain(
                str(test),
                expected=f"{len(first.channels)} channels as in training",
                got=len(second.channels),
                remedy="Is it the test part of the same set?",
            )
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
    """Return the training file of a published pair, or None if this is none."""
    if path.is_file():
        candidates = [path] if path.stem.endswith("_TRAIN") else []
    else:
        candidates = [p for s in SUFFIXES for p in sorted(path.glob(f"*_TRAIN{s}"))]
    for train in candidates:
        if train.with_name(train.name.replace("_TRAIN", "_TEST")).is_file():
            return train
    return None


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line.strip()
    except UnicodeDecodeError:
        raise _wrong(path, 0, "UTF-8 text", "other bytes") from None
    except OSError as error:
        raise _wrong(path, 0, "a file", error.strerror or "one that cannot be read") from None


def _read_rows(path: Path) -> SeriesSet:
    """Read one series per line, the label first; NaN at the end of a line is padding."""
    series, labels = [], []
    for number, line in _lines(path):
        words = [word for word in re.split(r"[,\s]+", line) if word]
        values = _values(words, path, number)
        there = np.flatnonzero(~np.isnan(values[1:]))
        if not len(there):
            raise _wrong(path, number, "a label and values", "no values")
        labels.append(label_of(values[0]))
        series.append(values[1 : 2 + there[-1]].astype(np.float32)[:, None])
    return _as_set(series, labels, path)


def _read_arff(path: Path) -> SeriesSet:
    """Read the form of Weka: attributes, then values with the label last."""
    series, labels, in_data = [], [], False
    for number, line in _lines(path):
        if line.startswith("%"):
            continue
        if not in_data:
            in_data = line.lower().startswith("@data")
            continue
        quoted = re.match(r"""(['"])(.*?)\1\s*,\s*(.*)$""", line)
        if quoted:  # a relation: channels apart by a written \n
            rows = [row.split(",") for row in quoted[2].split("\\n")]
            columns = [_values(row, path, number) for row in rows]
            if len({len(column) for column in columns}) != 1:
                raise _wrong(path, number, "channels of one length", "others")
            label = quoted[3]
        else:
            try:
                words = next(csv.reader([line], quotechar="'", skipinitialspace=True))
            except csv.Error:
                raise _wrong(path, number, "values apart by commas", "a broken line") from None
            columns, label = [_values(words[:-1], path, number)], words[-1] if words else ""
        array = np.stack(columns, axis=1).astype(np.float32)
        if not len(array):
            raise _wrong(path, number, "values and a label", "no values")
        series.append(array)
        labels.append(label.strip().strip("'\""))
    return _as_set(series, labels, path)


def _values(words: list[str], path: Path, number: int) -> np.ndarray:
    try:
        values = np.array(["nan" if w.strip() in ("?", "") else w for w in words], dtype=np.float64)
    except ValueError:
        raise _wrong(path, number, "numbers", "text") from None
    if (np.abs(values[~np.isnan(values)]) > np.finfo(np.float32).max).any():
        raise _wrong(path, number, "finite numbers", "one too large")
    return values


def _as_set(series: list[np.ndarray], labels: list[str], path: Path) -> SeriesSet:
    if not series:
        raise _wrong(path, 0, "at least one series", "none")
    widths = {one.shape[1] for one in series}
    if len(widths) > 1:
        raise _wrong(path, 0, "series with the same channels", f"{sorted(widths)} channels")
    width = series[0].shape[1]
    names = ["value"] if width == 1 else [f"channel {number}" for number in range(width)]
    return replace(SeriesSet(series, names, np.array(labels)), source=str(path))


def _wrong(path: Path, number: int, expected: str, got: str) -> DataError:
    place = f"{path}, line {number}" if number else str(path)
    return DataError(explain(place, expected=expected, got=got, remedy="Correct that place."))
