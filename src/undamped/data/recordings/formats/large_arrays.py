"""NumPy files larger than memory: mapped where they lie, or copied once, piece by piece.

An array of a .npy file, or one that was stored in an archive as it is (`numpy.savez`), is mapped.
What is compressed (`numpy.savez_compressed`), and recordings that are not in single precision, are
copied into the cache as plain numbers, which are mapped then.
"""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from undamped.data.recordings.formats.kept import kept, key_of, new_copy
from undamped.data.recordings.resolution import Resolution
from undamped.data.recordings.series import pieces
from undamped.errors import DataError, explain

_PIECE = 1 << 20  # numbers that are copied in one go
_SMALL = 1 << 24  # bytes of an array that is read all the same
_LOCAL_HEADER = struct.Struct("<26x2H")  # of a member of an archive: how long name and extras are


@dataclass(frozen=True)
class Large:
    """An array on disk.

    Args:
        array: The array, mapped.
        blurred: The numbers of channels of which single precision keeps too little.
    """

    array: np.ndarray
    blurred: tuple[int, ...] = ()


def size_of(path: Path) -> int:
    """Return how many bytes the arrays of a file would take in memory."""
    if not zipfile.is_zipfile(path):
        return path.stat().st_size
    with zipfile.ZipFile(path) as archive:
        return sum(member.file_size for member in archive.infolist())


def open_large(path: Path) -> dict[str, Large]:
    """Return the arrays of a file by name; small ones are read, others stay on disk.

    Args:
        path: A .npy file, whose array is called X, or an .npz file.
    """
    if not zipfile.is_zipfile(path):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        return {"X": _in_single_precision(path, "X", array)}
    found = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if member.file_size <= _SMALL:
                with archive.open(member) as file:
                    found[name] = Large(np.lib.format.read_array(file, allow_pickle=False))
            elif member.compress_type == zipfile.ZIP_STORED:
                found[name] = _in_single_precision(path, name, _mapped(path, member))
            else:
                with archive.open(member) as file:
                    found[name] = _unpacked(path, name, file)
    return found


def _mapped(path: Path, member: zipfile.ZipInfo) -> np.ndarray:
    """Return a member of an archive that lies there as it is."""
    with path.open("rb") as file:
        file.seek(member.header_offset)
        lengths = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
        file.seek(sum(lengths), 1)
        shape, turned, dtype = _header(file)
        order = "F" if turned else "C"
        return np.memmap(path, dtype, mode="r", offset=file.tell(), shape=shape, order=order)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0
    shape, turned, dtype = (read if version == (1, 0) else np.lib.format.read_array_header_2_0)(
        file
    )
    if dtype.hasobject:
        raise ValueError("pickled objects")
    return shape, turned, dtype


def _in_single_precision(path: Path, name: str, array: np.ndarray) -> Large:
    """Return recordings in single precision, a copy where they are not; others as they are."""
    if name.lower() != "x" or array.dtype == np.float32 or array.dtype.kind not in "iufb":
        return Large(array)
    if not array.flags.c_contiguous:
        raise _turned(path)
    flat = array.reshape(-1, 1)
    parts = (flat[piece, 0] for piece in pieces(flat))
    return _copied(path, name, parts, array.shape, np.dtype(np.float32))


def _unpacked(path: Path, name: str, file: IO[bytes]) -> Large:
    """Return a copy of a compressed array."""
    shape, turned, dtype = _header(file)
    if turned and len(shape) > 1:
        raise _turned(path)
    count = math.prod(shape)

    def parts() -> Iterator[np.ndarray]:
        for start in range(0, count, _PIECE):
            size = min(_PIECE, count - start) * dtype.itemsize
            data = file.read(size)
            if len(data) < size:
                raise zipfile.BadZipFile
            yield np.frombuffer(data, dtype)

    single = name.lower() == "x" and dtype.kind in "iufb"
    return _copied(path, name, parts(), shape, np.dtype(np.float32) if single else dtype)


def _copied(
    path: Path, name: str, parts: Iterator[np.ndarray], shape: tuple[int, ...], dtype: np.dtype
) -> Large:
    key = key_of(path, {"array": name})
    ready = kept(key)
    if ready is None:
        width = shape[2] if len(shape) == 3 else 1
        seen = Resolution()
        with new_copy(key) as store:
            rest = np.zeros(0)
            for piece in parts:
                with np.errstate(over="ignore"):
                    rounded = piece.astype(dtype, copy=False)
                store.append("values", rounded)
                if dtype == np.float32:
                    rest = np.concatenate([rest, piece]) if len(rest) else piece
                    whole = len(rest) // width * width
                    rows = rest[:whole].reshape(-1, width)
                    with np.errstate(over="ignore"):
                        seen.add(rows, rows.astype(np.float32))
                    rest = rest[whole:]
            blurred = seen.blurred([str(channel) for channel in range(width)])
            store.write_meta({"blurred": [int(channel) for channel in blurred]})
        ready = kept(key)
        assert ready is not None
    columns, meta = ready
    return Large(columns["values"].reshape(shape), tuple(meta["blurred"]))


def _turned(path: Path) -> DataError:
    return DataError(
        explain(
            str(path),
            expected="arrays in C order, since the file is larger than memory allows",
            got="one in Fortran order",
            remedy="Write it with numpy.ascontiguousarray(X).",
        )
    )
