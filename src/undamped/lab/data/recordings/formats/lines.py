"""Text files with one series per line: what their readers share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from undamped._base.errors import DataError, explain
from undamped.lab.data.recordings.series import SeriesSet


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Give the lines of a text file that are not empty, with their numbers."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line.strip()
    except UnicodeDecodeError:
        raise wrong(path, 0, "UTF-8 text", "other bytes") from None
    except OSError as error:
        raise wrong(path, 0, "a file", error.strerror or "one that cannot be read") from None


def numbers_in(words: list[str], path: Path, number: int) -> np.ndarray:
    """Return words as numbers; a question mark or nothing is a gap."""
    try:
        values = np.array(["nan" if w.strip() in ("?", "") else w for w in words], dtype=np.float64)
    except ValueError:
        raise wrong(path, number, "numbers", "text") from None
    if (np.abs(values[~np.isnan(values)]) > np.finfo(np.float32).max).any():
        raise wrong(path, number, "finite numbers", "one too large")
    return values


def as_set(series: list[np.ndarray], labels: list[str], path: Path) -> SeriesSet:
    """Return series (time, channels) and their labels as a set, if they fit together."""
    if not series:
        raise wrong(path, 0, "at least one series", "none")
    widths = {one.shape[1] for one in series}
    if len(widths) > 1:
        raise wrong(path, 0, "series with the same channels", f"{sorted(widths)} channels")
    width = series[0].shape[1]
    names = ["value"] if width == 1 else [f"channel {number}" for number in range(width)]
    return replace(SeriesSet(series, names, np.array(labels)), source=str(path))


def wrong(path: Path, number: int, expected: str, got: str) -> DataError:
    """Return the error for a line; 0 stands for the whole file."""
    place = f"{path}, line {number}" if number else str(path)
    return DataError(explain(place, expected=expected, got=got, remedy="Correct that place."))
