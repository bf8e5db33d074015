"""NumPy files as recordings; nothing in them is ever unpickled.

Files larger than memory are memory-mapped, or copied once, block by block: an array of a .npy file,
or an uncompressed one of an archive (`numpy.savez`), is memory-mapped. Compressed arrays
(`numpy.savez_compressed`), and recordings that are not in single precision, are copied into the
cache as plain numbers, and the copy is mapped.
"""

from __future__ import annotations

import math
import os
import shutil
import struct
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from undamped._base.errors import DataError
from undamped.lab.data.published.arrays import DAMAGE
from undamped.lab.data.published.cache import root
from undamped.lab.data.published.progress import human
from undamped.lab.data.recordings.on_disk import (
    IN_MEMORY,
    READ_IN_BLOCKS,
    Append,
    cached_columns,
    cached_copy,
    copy_key,
)
from undamped.lab.data.recordings.reader import reads
from undamped.lab.data.recordings.series import (
    BLOCK,
    Resolution,
    SeriesSet,
    as_numbers,
    time_slices,
)

_SMALL = 1 << 24  # bytes of an array that is read into memory all the same
_LARGEST = 100 * 10**9  # bytes of compressed arrays that are unpacked into the cache
_LARGEST_RATIO = 100  # how much larger than the archive they may be
LIMIT = "UNDAMPED_UNPACK_GB"
"""The environment variable that sets another limit, whatever the ratio."""
_LOCAL_HEADER = struct.Struct("<26x2H")  # of an entry of an archive: how long name and extras are

_BEGINNINGS = (b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06")  # an array, an archive, an empty one
_SHAPE = "(series, time, channels)"


@dataclass(frozen=True)
class Large:
    """An array on disk.

    Args:
        array: The array, mapped.
        blurred: The indices of channels that single precision blurs.
    """

    array: np.ndarray
    blurred: tuple[int, ...] = ()


def size_of(path: Path) -> int:
    """Return how many bytes the arrays of a file would take in memory."""
    if not zipfile.is_zipfile(path):
        return path.stat().st_size
    with zipfile.ZipFile(path) as archive:
        return sum(entry.file_size for entry in archive.infolist())


def open_large(path: Path, small: int = _SMALL, block: int = BLOCK) -> dict[str, Large]:
    """Return the arrays of a file by name; small ones are read, others stay on disk.

    Args:
        path: A .npy file, whose array is called X, or an .npz file.
        small: Arrays of at most this many bytes are read into memory all the same.
        block: Numbers that are copied at once.
    """
    if not zipfile.is_zipfile(path):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        return {"X": _in_single_precision(path, "X", array, block)}
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        _check_unpacked_size(path, archive, small)
        for entry in archive.infolist():
            name = _name(entry)
            if entry.file_size <= small:
                with archive.open(entry) as file:
                    arrays[name] = Large(np.lib.format.read_array(file, allow_pickle=False))
            elif entry.compress_type == zipfile.ZIP_STORED:
                arrays[name] = _in_single_precision(path, name, _mapped(path, entry), block)
            else:
                with archive.open(entry) as file:
                    arrays[name] = _unpacked(path, name, file, entry.file_size, block)
    return arrays


def _name(entry: zipfile.ZipInfo) -> str:
    return entry.filename.removesuffix(".npy")


def _check_unpacked_size(path: Path, archive: zipfile.ZipFile, small: int) -> None:
    """Raise an error for an archive that would fill the disk of the cache, or seems made to."""
    entries = [
        entry
        for entry in archive.infolist()
        if entry.compress_type != zipfile.ZIP_STORED
        and entry.file_size > small
        and cached_columns(_key(path, _name(entry))) is None
    ]
    size = sum(entry.file_size for entry in entries)
    packed = sum(entry.compress_size for entry in entries)
    limit = _size_limit(path) or min(_LARGEST, _LARGEST_RATIO * packed)
    cache = root()
    cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache).free
    unpacks = f"{path} unpacks from {human(packed)} to {human(size)}"
    if size > limit:
        raise DataError(
            f"{unpacks}, more than the limit of {human(limit)}. If you trust the file, set {LIMIT} "
            "to the gigabytes it may take."
        )
    if size > free:
        raise DataError(
            f"{unpacks}, but {cache} has {human(free)} free. Free some space, set UNDAMPED_DATA to "
            "a folder on another disk, or use numpy.savez."
        )


def _size_limit(path: Path) -> int:
    """Return the limit in the environment, in bytes; 0 if it is not set."""
    gigabytes = os.environ.get(LIMIT, "")
    try:
        return int(float(gigabytes or 0) * 1e9)
    except (ValueError, OverflowError):
        raise DataError(
            f"{path}: the environment variable {LIMIT} must be a number of gigabytes, got "
            f"'{gigabytes}'."
        ) from None


def _mapped(path: Path, entry: zipfile.ZipInfo) -> np.ndarray:
    """Return an uncompressed entry of an archive, memory-mapped."""
    with path.open("rb") as file:
        file.seek(entry.header_offset)
        lengths = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
        file.seek(sum(lengths), 1)
        shape, fortran, dtype = _header(file)
        order = "F" if fortran else "C"
        return np.memmap(path, dtype, mode="r", offset=file.tell(), shape=shape, order=order)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0
    shape, fortran, dtype = (read if version == (1, 0) else np.lib.format.read_array_header_2_0)(
        file
    )
    if dtype.hasobject:
        raise ValueError("pickled objects")
    return shape, fortran, dtype


def _in_single_precision(path: Path, name: str, array: np.ndarray, block: int) -> Large:
    """Return recordings in single precision, copied if necessary; other arrays unchanged."""
    if name.lower() != "x" or array.dtype == np.float32 or array.dtype.kind not in "iufb":
        return Large(array)
    if not array.flags.c_contiguous:
        raise _fortran_error(path)
    flat = array.reshape(-1, 1)
    blocks = (flat[steps, 0] for steps in time_slices(flat, block))
    return _copied(path, name, blocks, array.shape, np.dtype(np.float32))


def _unpacked(path: Path, name: str, file: IO[bytes], size: int, block: int) -> Large:
    """Return a copy of a compressed array in an entry of `size` bytes."""
    shape, fortran, dtype = _header(file)
    if fortran and len(shape) > 1:
        raise _fortran_error(path)
    count = math.prod(shape)
    if min(shape, default=0) < 0 or count * dtype.itemsize > size:
        raise zipfile.BadZipFile

    def blocks() -> Iterator[np.ndarray]:
        for start in range(0, count, block):
            size = min(block, count - start) * dtype.itemsize
            data = file.read(size)
            if len(data) < size:
                raise zipfile.BadZipFile
            yield np.frombuffer(data, dtype)

    single = name.lower() == "x" and dtype.kind in "iufb"
    return _copied(path, name, blocks(), shape, np.dtype(np.float32) if single else dtype)


def _key(path: Path, name: str) -> str:
    return copy_key(path, {"array": name})


def _copied(
    path: Path, name: str, blocks: Iterator[np.ndarray], shape: tuple[int, ...], dtype: np.dtype
) -> Large:
    width = shape[2] if len(shape) == 3 else 1

    def fill(append: Append) -> dict[str, Any]:
        resolution, rest = Resolution(), np.zeros(0)
        for block in blocks:
            with np.errstate(over="ignore"):
                append("values", block.astype(dtype, copy=False))
                if dtype == np.float32:
                    rest = np.concatenate([rest, block]) if len(rest) else block
                    complete = len(rest) // width * width
                    rows = rest[:complete].reshape(-1, width)
                    resolution.add(rows, rows.astype(np.float32))
                    rest = rest[complete:]
        blurred = resolution.blurred([str(channel) for channel in range(width)])
        return {"blurred": [int(channel) for channel in blurred]}

    columns, meta = cached_copy(_key(path, name), fill)
    return Large(columns["values"].reshape(shape), tuple(meta["blurred"]))


def _fortran_error(path: Path) -> DataError:
    return DataError(
        f"{path}: arrays larger than the memory limit must be in C order, got Fortran order. Write "
        "it with numpy.ascontiguousarray(X)."
    )


def read_array(path: Path) -> np.ndarray:
    """Read the one array of a .npy file."""
    return load_arrays(path)[0]["X"]


@reads(".npz", lazy=True)
@reads(".npy", array=read_array, lazy=True)
def read_arrays(path: str | Path, *, in_memory: int = IN_MEMORY, block: int = BLOCK) -> SeriesSet:
    """Read an .npz file with X and optional y, lengths, ids, groups, times, channels.

    A .npy file contains X only. X is (series, time, channels) or (series, time). A .npy file in
    single precision is always memory-mapped.

    Args:
        path: The file.
        in_memory: Arrays of more bytes stay on disk, or in a copy in the cache.
        block: Numbers that are copied at once.
    """
    path = Path(path)
    stored, notes, blurred = load_arrays(path, in_memory, block)
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


def load_arrays(
    path: Path, in_memory: int = IN_MEMORY, block: int = BLOCK
) -> tuple[dict[str, np.ndarray], tuple[str, ...], tuple[int, ...]]:
    """Return the arrays of a file, notes about it, and the channels that are blurred.

    Args:
        path: A .npz file, or a .npy file, whose array is called X.
        in_memory: Arrays of more bytes stay on disk, or in a copy in the cache.
        block: Numbers that are copied at once.
    """
    try:
        with path.open("rb") as file:
            if not file.read(len(_BEGINNINGS[0])).startswith(_BEGINNINGS):
                raise zipfile.BadZipFile  # NumPy would try to read it as a pickle
        if size_of(path) > in_memory:
            large = open_large(path, min(_SMALL, in_memory), block)
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
        f"Cannot read {path}: {problem}. Write it with numpy.savez from arrays of numbers or text."
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
