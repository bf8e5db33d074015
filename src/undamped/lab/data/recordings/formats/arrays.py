"""NumPy files as recordings; nothing in them is ever unpickled."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from undamped._base.errors import DataError, explain
from undamped.lab.data.published.arrays import DAMAGE
from undamped.lab.data.recordings.formats.kept import IN_MEMORY, READ_IN_PIECES
from undamped.lab.data.recordings.formats.large_arrays import open_large, size_of
from undamped.lab.data.recordings.reader import reads
from undamped.lab.data.recordings.resolution import Resolution
from undamped.lab.data.recordings.series import SeriesSet, as_numbers

_BEGINNINGS = (b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06")  # an array, an archive, an empty one
_FORM = "X of shape (series, time, channels)"


def read_array(path: Path) -> np.ndarray:
    """Read the one array of a .npy file."""
    return _load(path)[0]["X"]


@reads(".npz", in_pieces=True)
@reads(".npy", array=read_array, in_pieces=True)
def read_arrays(path: str | Path, *, in_memory: int = IN_MEMORY) -> SeriesSet:
    """Read an .npz file with X and, where there are such, y, lengths, ids, groups, times, channels.

    A .npy file holds X alone. X is (series, time, channels) or (series, time). In single precision
    it stays on disk, in a .npy file always.

    Args:
        path: The file.
        in_memory: Arrays that are larger together stay on disk, or in a copy in the cache.
    """
    path = Path(path)
    found, notes, lost = _load(path, in_memory)
    arrays = {name.lower(): array for name, array in found.items()}
    if "x" not in arrays:
        raise _wrong(path, f"an array {_FORM}", f"only {', '.join(sorted(found)) or 'nothing'}")
    for name in ("channels", "ids", "groups"):
        if name in arrays and arrays[name].ndim != 1:
            raise _wrong(path, f"{name} of shape (n,)", f"{arrays[name].shape}")
    if "times" in arrays and arrays["times"].dtype.kind not in "iufb":
        raise _wrong(path, "times as numbers", f"the type {arrays['times'].dtype}")
    values = _values(path, arrays["x"])
    series = _series(path, values, _lengths(path, arrays.get("lengths"), values))
    named = arrays.get("channels")
    channels = [str(name) for name in (range(values.shape[2]) if named is None else named)]
    times = arrays.get("times")
    return SeriesSet(
        series,
        channels,
        _targets(path, arrays.get("y"), series),
        [str(name) for name in arrays.get("ids", ())],
        arrays.get("groups"),
        None
        if times is None
        else _cut(path, "times", times.astype(np.float64, copy=False), series),
        source=str(path),
        notes=notes,
        blurred=tuple(channels[channel] for channel in lost if channel < len(channels))
        or _blurred(values, series, channels),
    )


def _values(path: Path, values: np.ndarray) -> np.ndarray:
    """Return X as (series, time, channels)."""
    if values.ndim == 2:
        values = values[:, :, None]
    if values.ndim != 3 or not values.nbytes:
        raise _wrong(path, _FORM, f"shape {values.shape}")
    return values


def _series(path: Path, values: np.ndarray, lengths: list[int] | None) -> list[np.ndarray]:
    if lengths is None:
        return list(as_numbers(values, f"{path}: X"))
    return [
        as_numbers(one[:length], f"{path}: X") for one, length in zip(values, lengths, strict=True)
    ]


def _targets(
    path: Path, y: np.ndarray | None, series: list[np.ndarray]
) -> np.ndarray | list[np.ndarray] | None:
    """Return an answer for every series, or one for every step of it."""
    if y is None:
        return None
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim not in (1, 2) or len(y) != len(series):
        raise _wrong(path, f"y of shape ({len(series)},) or (series, time)", f"{y.shape}")
    return y if y.ndim == 1 else _cut(path, "y", y, series)


def _blurred(values: np.ndarray, series: list[np.ndarray], channels: list[str]) -> tuple[str, ...]:
    """Return what float32 cannot tell apart; a wrong number of channels is said elsewhere."""
    if len(channels) != values.shape[2]:
        return ()
    resolution = Resolution()
    for exact, one in zip(values, series, strict=True):
        if exact.dtype.kind in "iuf":
            resolution.add(exact[: len(one)], one)
    return resolution.blurred(channels)


def _load(
    path: Path, in_memory: int = IN_MEMORY
) -> tuple[dict[str, np.ndarray], tuple[str, ...], tuple[int, ...]]:
    """Return the arrays of a file, what is to be said of it, and which channels are blurred."""
    try:
        with path.open("rb") as opened:
            if not opened.read(len(_BEGINNINGS[0])).startswith(_BEGINNINGS):
                # NumPy would take it for a pickle, and say so.
                raise zipfile.BadZipFile
        if size_of(path) > in_memory:
            large = open_large(path)
            blurred = next((one.blurred for one in large.values() if one.blurred), ())
            return {name: one.array for name, one in large.items()}, (READ_IN_PIECES,), blurred
        if path.suffix.lower() == ".npy":
            return {"X": np.load(path, mmap_mode="r", allow_pickle=False)}, (), ()
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            if isinstance(file, np.ndarray):
                return {"X": file}, (), ()
            return {name: _plain(file[name]) for name in file.files}, (), ()
    except DataError:
        raise
    except FileNotFoundError:
        got = "no such file"
    except (zipfile.BadZipFile, EOFError):
        got = "a damaged one"
    except ValueError as error:
        pickled = "pickle" in str(error).lower() or "object" in str(error).lower()
        got = "pickled objects, which are never opened" if pickled else "another file"
    except MemoryError:
        got = "one larger than memory"
    except DAMAGE as error:
        got = getattr(error, "strerror", None) or "a damaged one"
    raise DataError(
        explain(
            str(path),
            expected="a NumPy file of plain arrays",
            got=got,
            remedy="Write it with numpy.savez(file, X=…, y=…) from arrays of numbers or text.",
        )
    )


def _plain(array: Any) -> np.ndarray:
    """Return an array; of a member that is none, NumPy returns the bytes."""
    if not isinstance(array, np.ndarray):
        raise zipfile.BadZipFile
    if array.dtype.kind == "U" and array.size:
        codes = np.ascontiguousarray(array).reshape(-1).view(array.dtype.str[0] + "u4")
        if codes.max() > sys.maxunicode:
            raise zipfile.BadZipFile
    return array


def _lengths(path: Path, lengths: np.ndarray | None, values: np.ndarray) -> list[int] | None:
    if lengths is None:
        return None
    expected = f"lengths from 1 to {values.shape[1]}, one for each of {len(values)} series"
    if lengths.shape != (len(values),):
        raise _wrong(path, expected, f"shape {lengths.shape}")
    if lengths.dtype.kind not in "iu":
        raise _wrong(path, f"{expected}, as whole numbers", f"the type {lengths.dtype}")
    bad = np.flatnonzero((lengths < 1) | (lengths > values.shape[1]))
    if len(bad):
        raise _wrong(path, expected, f"{lengths[bad[0]]} for series {bad[0]}")
    return [int(n) for n in lengths]


def _cut(path: Path, name: str, array: np.ndarray, series: list[Any]) -> list[np.ndarray]:
    if array.ndim != 2 or len(array) != len(series):
        raise _wrong(path, f"{name} of shape (series, time)", f"{array.shape}")
    if array.shape[1] < max(len(one) for one in series):
        raise _wrong(path, f"{name} for every time step", f"{array.shape[1]} steps")
    return [row[: len(one)] for row, one in zip(array, series, strict=True)]


def _wrong(path: Path, expected: str, got: str) -> DataError:
    return DataError(explain(str(path), expected=expected, got=got, remedy="Write the file anew."))
