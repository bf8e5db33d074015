"""NumPy files larger than memory: memory-mapped, or copied once, block by block.

An array of a .npy file, or an uncompressed one of an archive (`numpy.savez`), is memory-mapped.
Compressed arrays (`numpy.savez_compressed`), and recordings that are not in single precision, are
copied into the cache as plain numbers, and the copy is mapped.
"""

from __future__ import annotations

import math
import os
import shutil
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from undamped._base.errors import DataError
from undamped.lab.data.published.cache import root
from undamped.lab.data.published.progress import human
from undamped.lab.data.recordings.on_disk import Append, cached_columns, cached_copy, copy_key
from undamped.lab.data.recordings.series import Resolution, time_slices

_BLOCK = 1 << 20  # numbers that are copied at once
_SMALL = 1 << 24  # bytes of an array that is read into memory all the same
_LARGEST = 100 * 10**9  # bytes of compressed arrays that are unpacked into the cache
_LARGEST_RATIO = 100  # how much larger than the archive they may be
LIMIT = "UNDAMPED_UNPACK_GB"
"""The environment variable that sets another limit, whatever the ratio."""
_LOCAL_HEADER = struct.Struct("<26x2H")  # of an entry of an archive: how long name and extras are


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


def open_large(path: Path) -> dict[str, Large]:
    """Return the arrays of a file by name; small ones are read, others stay on disk.

    Args:
        path: A .npy file, whose array is called X, or an .npz file.
    """
    if not zipfile.is_zipfile(path):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        return {"X": _in_single_precision(path, "X", array)}
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        _check_unpacked_size(path, archive)
        for entry in archive.infolist():
            name = _name(entry)
            if entry.file_size <= _SMALL:
                with archive.open(entry) as file:
                    arrays[name] = Large(np.lib.format.read_array(file, allow_pickle=False))
            elif entry.compress_type == zipfile.ZIP_STORED:
                arrays[name] = _in_single_precision(path, name, _mapped(path, entry))
            else:
                with archive.open(entry) as file:
                    arrays[name] = _unpacked(path, name, file, entry.file_size)
    return arrays


def _name(entry: zipfile.ZipInfo) -> str:
    return entry.filename.removesuffix(".npy")


def _check_unpacked_size(path: Path, archive: zipfile.ZipFile) -> None:
    """Raise an error for an archive that would fill the disk of the cache, or seems made to."""
    entries = [
        entry
        for entry in archive.infolist()
        if entry.compress_type != zipfile.ZIP_STORED
        and entry.file_size > _SMALL
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


def _in_single_precision(path: Path, name: str, array: np.ndarray) -> Large:
    """Return recordings in single precision, copied if necessary; other arrays unchanged."""
    if name.lower() != "x" or array.dtype == np.float32 or array.dtype.kind not in "iufb":
        return Large(array)
    if not array.flags.c_contiguous:
        raise _fortran_error(path)
    flat = array.reshape(-1, 1)
    blocks = (flat[steps, 0] for steps in time_slices(flat))
    return _copied(path, name, blocks, array.shape, np.dtype(np.float32))


def _unpacked(path: Path, name: str, file: IO[bytes], size: int) -> Large:
    """Return a copy of a compressed array in an entry of `size` bytes."""
    shape, fortran, dtype = _header(file)
    if fortran and len(shape) > 1:
        raise _fortran_error(path)
    count = math.prod(shape)
    if min(shape, default=0) < 0 or count * dtype.itemsize > size:
        raise zipfile.BadZipFile

    def blocks() -> Iterator[np.ndarray]:
        for start in range(0, count, _BLOCK):
            size = min(_BLOCK, count - start) * dtype.itemsize
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
