"""NumPy files as recordings; nothing in them is ever unpickled."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from undamped._base.errors import DataError
from undamped.lab.data.published.arrays import DAMAGE
from undamped.lab.data.recordings.formats.large_arrays import open_large, size_of
from undamped.lab.data.recordings.on_disk import IN_MEMORY, READ_IN_BLOCKS
from undamped.lab.data.recordings.reader import reads
from undamped.lab.data.recordings.series import Resolution, SeriesSet, as_numbers

_BEGINNINGS = (b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06")  # an array, an archive, an empty one
_SHAPE = "(series, time, channels)"


def read_array(path: Path) -> np.ndarray:
    """Read the one array of a .npy file."""
    return _load(path)[0]["X"]


@reads(".npz", lazy=True)
@reads(".npy", array=read_array, lazy=True)
def read_arrays(path: str | Path, *, in_memory: int = IN_MEMORY) -> SeriesSet:
    """Read an .npz file with X and optional y, lengths, ids, groups, times, channels.

    A .npy file contains X only. X is (series, time, channels) or (series, time). A .npy file in
    single precision is always memory-mapped.

    Args:
        path: The file.
        in_memory: Arrays of more bytes stay on disk, or in a copy in the cache.
    """
    path = Path(path)
    stored, notes, blurred = _load(path, in_memory)
    arrays = {name.lower(): array for name, array in stored.items()}
    if "x" not in arrays:
        names = ", ".join(sorted(stored)) or "none"
        raise DataError(f"{path} has no array X of shape {_SHAPE}; its arrays: {names}.")
    for name in ("channels", "ids", "groups"):
        if name in arrays and arrays[name].ndim != 1:
            raise _shape_error(path, name, "(n,)", arrays[name])
    if "times" in arrays and arrays["times"].dtype.kind not in "iufb":
        raise DataError(f"{path}: times must be numbers, got {arrays['times'].dtype}.")
    values = arrays["x"][:, :, None] if arrays["x"].ndim == 2 else arrays["x"]
    series = _cut_series(path, values, arrays.get("lengths"))
    names = arrays.get("channels")
    channels = [str(name) for name in (range(values.shape[2]) if names is None else names)]
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
        blurred=tuple(channels[channel] for channel in blurred if channel < len(channels))
        or _blurred(values, series, channels),
    )


def _targets(
    path: Path, y: np.ndarray | None, series: list[np.ndarray]
) -> np.ndarray | list[np.ndarray] | None:
    """Return one target per series, or one per step."""
    if y is None:
        return None
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim not in (1, 2) or len(y) != len(series):
        raise _shape_error(path, "y", f"({len(series)},) or (series, time)", y)
    return y if y.ndim == 1 else _cut(path, "y", y, series)


def _blurred(values: np.ndarray, series: list[np.ndarray], channels: list[str]) -> tuple[str, ...]:
    """Return channels that float32 blurs; `SeriesSet` checks the number of channels."""
    if len(channels) != values.shape[2]:
        return ()
    resolution = Resolution()
    for exact, rounded in zip(values, series, strict=True):
        if exact.dtype.kind in "iuf":
            resolution.add(exact[: len(rounded)], rounded)
    return resolution.blurred(channels)


def _load(
    path: Path, in_memory: int = IN_MEMORY
) -> tuple[dict[str, np.ndarray], tuple[str, ...], tuple[int, ...]]:
    """Return the arrays of a file, notes about it, and the channels that are blurred."""
    try:
        with path.open("rb") as file:
            if not file.read(len(_BEGINNINGS[0])).startswith(_BEGINNINGS):
                raise zipfile.BadZipFile  # NumPy would try to read it as a pickle
        if size_of(path) > in_memory:
            large = open_large(path)
            blurred = next((array.blurred for array in large.values() if array.blurred), ())
            return {name: array.array for name, array in large.items()}, (READ_IN_BLOCKS,), blurred
        if path.suffix.lower() == ".npy":
            return {"X": np.load(path, mmap_mode="r", allow_pickle=False)}, (), ()
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            if isinstance(archive, np.ndarray):
                return {"X": archive}, (), ()
            return {name: _plain(archive[name]) for name in archive.files}, (), ()
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(f"No such file: {path}") from None
    except (zipfile.BadZipFile, EOFError):
        problem = "it is damaged or not a NumPy file"
    except ValueError as error:
        pickled = "pickle" in str(error).lower() or "object" in str(error).lower()
        problem = "pickled objects are never loaded" if pickled else "it is not a NumPy file"
    except MemoryError:
        problem = "it is larger than memory"
    except DAMAGE as error:
        problem = getattr(error, "strerror", None) or "it is damaged"
    raise DataError(
        f"Cannot read {path}: {problem}. Write it with numpy.savez(file, X=…, y=…) from arrays of "
        "numbers or text."
    )


def _plain(array: Any) -> np.ndarray:
    """Return a valid array; NumPy returns the bytes of a member that is not an array."""
    if not isinstance(array, np.ndarray):
        raise zipfile.BadZipFile
    if array.dtype.kind == "U" and array.size:
        codes = np.ascontiguousarray(array).reshape(-1).view(array.dtype.str[0] + "u4")
        if codes.max() > sys.maxunicode:
            raise zipfile.BadZipFile
    return array


def _cut_series(path: Path, values: np.ndarray, lengths: np.ndarray | None) -> list[np.ndarray]:
    """Return the series of X (series, time, channels), without their padding."""
    if values.ndim != 3 or not values.nbytes:
        raise _shape_error(path, "X", _SHAPE, values)
    if lengths is None:
        return list(as_numbers(values, f"{path}: X"))
    if lengths.shape != (len(values),):
        raise _shape_error(path, "lengths", f"({len(values)},)", lengths)
    if lengths.dtype.kind not in "iu":
        raise DataError(f"{path}: lengths must be integers, got {lengths.dtype}.")
    bad = np.flatnonzero((lengths < 1) | (lengths > values.shape[1]))
    if len(bad):
        raise DataError(
            f"{path}: lengths must be from 1 to {values.shape[1]}, got {lengths[bad[0]]} for "
            f"series {bad[0]}."
        )
    return [as_numbers(x[:n], f"{path}: X") for x, n in zip(values, lengths, strict=True)]


def _cut(path: Path, name: str, array: np.ndarray, series: list[Any]) -> list[np.ndarray]:
    if array.ndim != 2 or len(array) != len(series):
        raise _shape_error(path, name, "(series, time)", array)
    longest = max(len(values) for values in series)
    if array.shape[1] < longest:
        raise DataError(f"{path}: {name} has {array.shape[1]} steps, but X has {longest}.")
    return [row[: len(values)] for row, values in zip(array, series, strict=True)]


def _shape_error(path: Path, name: str, expected: str, array: np.ndarray) -> DataError:
    return DataError(f"{path}: {name} must have the shape {expected}, got {array.shape}.")
