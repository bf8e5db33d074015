"""Plain sequences of numbers or symbols, for models that were not trained on recordings."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from undamped._base.errors import DataError, explain
from undamped._base.registry import readers
from undamped.lab.data.recordings.series import SeriesSet


def read_sequences(path: Path, features: int, *, symbols: bool = False) -> np.ndarray:
    """Read sequences of a file as (time, sequences, features), or (time, sequences) of symbols.

    A file of plain numbers (.npy, .csv) holds one sequence, or several of one length; any other
    that a reader of recordings knows is read by it.

    Args:
        path: The file.
        features: Numbers per time step.
        symbols: Whether the sequences are of symbols: whole numbers, one per time step.
    """
    expected = f"a file of sequences with {features} numbers per time step"
    if symbols:
        expected = "a file of sequences of symbols, one whole number per time step"
    suffix = path.suffix.lower()
    got, remedy = "", "Convert it to .npy or .csv."
    if not path.is_file():
        got, remedy = "no such file", "Check the path."
    elif suffix not in readers:
        got = suffix or "no ending"
    if got:
        raise DataError(explain(str(path), expected=expected, got=got, remedy=remedy))
    reader = readers[suffix]
    array = reader.array(path) if reader.array is not None else _stacked(path, reader.read(path))
    if symbols and array.ndim == 2 and suffix == ".csv" and array.shape[1] == 1:
        array = array.T  # a column is one sequence
    return _arranged(path, array, features, symbols, expected)


def _stacked(path: Path, series_set: SeriesSet) -> np.ndarray:
    lengths = sorted({len(one) for one in series_set.series})
    if len(lengths) > 1:
        raise DataError(
            explain(
                str(path),
                expected="sequences of one length",
                got=f"{lengths[0]} to {lengths[-1]} steps",
                remedy="Ask for one length at a time.",
            )
        )
    return np.stack([np.asarray(one) for one in series_set.series])


def _arranged(
    path: Path, array: np.ndarray, features: int, symbols: bool, expected: str
) -> np.ndarray:
    whole = 1 if symbols else 2
    if array.ndim == whole:
        array = array[None]
    shaped = array.ndim == whole + 1 and array.size > 0 and array.dtype.kind in "biuf"
    if not shaped or (not symbols and array.shape[-1] != features):
        raise DataError(
            explain(
                str(path),
                expected=expected,
                got=f"an array of shape {array.shape} and type {array.dtype}",
                remedy="Arrange it as (time, features) or (sequences, time, features).",
            )
        )
    if not np.isfinite(array).all():
        raise DataError(
            explain(
                str(path),
                expected="finite numbers",
                got="missing or infinite ones",
                remedy="Fill the gaps first.",
            )
        )
    if symbols and (array != np.floor(array)).any():
        raise DataError(
            explain(
                str(path),
                expected=expected,
                got="numbers that are not whole",
                remedy="Number the symbols from 0.",
            )
        )
    turned = np.swapaxes(array, 0, 1)
    return np.ascontiguousarray(turned, dtype=np.int64 if symbols else np.float32)
