"""NumPy files larger than memory: mapped where they lie, or copied once, piece by piece.

An array of a .npy file, or one that was stored in an archive as it is (`numpy.savez`), is mapped.
What is compressed (`numpy.savez_compressed`), and recordings that are not in single precision, are
copied into the cache as plain numbers, which are mapped then.
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
from typing import IO

import numpy as np

from undamped._base.errors import DataError, explain
from undamped.lab.data.published.cache import root
from undamped.lab.data.published.progress import human
from undamped.lab.data.recordings.formats.kept import kept, key_of, new_copy
from undamped.lab.data.recordings.resolution import Resolution
from undamped.lab.data.recordings.series import pieces

_PIECE = 1 << 20  # numbers that are copied in one go
_SMALL = 1 << 24  # bytes of an array that is read all the same
_LARGEST = 100 * 10**9  # bytes of compressed arrays that are unpacked into the cache
_LARGEST_RATIO = 100  # how much larger than the archive they may be
LIMIT = "UNDAMPED_UNPACK_GB"
"""The variable that sets another limit, whatever the ratio."""
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
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        _check_unpacked_size(path, archive)
        for member in archive.infolist():
            name = _name(member)
            if member.file_size <= _SMALL:
                with archive.open(member) as file:
                    arrays[name] = Large(np.lib.format.read_array(file, allow_pickle=False))
            elif member.compress_type == zipfile.ZIP_STORED:
                arrays[name] = _in_single_precision(path, name, _mapped(path, member))
            else:
                with archive.open(member) as file:
                    arrays[name] = _unpacked(path, name, file, member.file_size)
    return arrays


def _name(member: zipfile.ZipInfo) -> str:
    return member.filename.removesuffix(".npy")


def _check_unpacked_size(path: Path, archive: zipfile.ZipFile) -> None:
    """Refuse an archive that would fill the disk of the cache, or that looks made to do so."""
    members = [
        member
        for member in archive.infolist()
        if member.compress_type != zipfile.ZIP_STORED
        and member.file_size > _SMALL
        and kept(_key(path, _name(member))) is None
    ]
    size = sum(member.file_size for member in members)
    packed = sum(member.compress_size for member in members)
    limit = _number(path, os.environ.get(LIMIT, "")) or min(_LARGEST, _LARGEST_RATIO * packed)
    place = root()
    place.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(place).free
    if size > limit:
        expected = f"arrays that unpack to at most {human(limit)}"
        remedy = f"If you trust the file, set {LIMIT} to the gigabytes it may take."
    elif size > free:
        expected = f"arrays that fit into the {human(free)} free in {place}"
        remedy = "Make room, set UNDAMPED_DATA to a folder on another disk, or use numpy.savez."
    else:
        return
    got = f"{human(size)} packed into {human(packed)}"
    raise DataError(explain(str(path), expected=expected, got=got, remedy=remedy))


def _number(path: Path, gigabytes: str) -> int:
    """Return the limit somebody set, in bytes; 0 if nobody did."""
    try:
        return int(float(gigabytes or 0) * 1e9)
    except (ValueError, OverflowError):
        raise DataError(
            explain(
                str(path),
                expected=f"a number of gigabytes in {LIMIT}",
                got=f"'{gigabytes}'",
                remedy="Set it to a number, or leave it out.",
            )
        ) from None


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


def _unpacked(path: Path, name: str, file: IO[bytes], size: int) -> Large:
    """Return a copy of a compressed array in a member of `size` bytes."""
    shape, turned, dtype = _header(file)
    if turned and len(shape) > 1:
        raise _turned(path)
    count = math.prod(shape)
    if min(shape, default=0) < 0 or count * dtype.itemsize > size:
        raise zipfile.BadZipFile

    def parts() -> Iterator[np.ndarray]:
        for start in range(0, count, _PIECE):
            size = min(_PIECE, count - start) * dtype.itemsize
            data = file.read(size)
            if len(data) < size:
                raise zipfile.BadZipFile
            yield np.frombuffer(data, dtype)

    single = name.lower() == "x" and dtype.kind in "iufb"
    return _copied(path, name, parts(), shape, np.dtype(np.float32) if single else dtype)


def _key(path: Path, name: str) -> str:
    return key_of(path, {"array": name})


def _copied(
    path: Path, name: str, parts: Iterator[np.ndarray], shape: tuple[int, ...], dtype: np.dtype
) -> Large:
    key = _key(path, name)
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
