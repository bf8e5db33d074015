"""Recordings on disk: columns that are copied block by block, and memory-mapped arrays.

A file larger than memory is copied once into plain arrays in the cache, from which windows are read
on demand. The name of the copy depends on the file's path, size and modification time. Arrays that
are memory-mapped are sent to other processes as the location of their file.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from undamped.lab.data.published.cache import root

META = "columns.json"
IN_MEMORY = 1 << 30
"""Bytes of the largest file that is read into memory."""
Append = Callable[[str, np.ndarray], None]
"""Adds a block of rows to the column of a name."""
READ_IN_BLOCKS = "The file is larger than the memory limit: it stays on disk and is read in blocks."


def copy_key(path: Path, options: dict[str, Any]) -> str:
    """Return the name of the copy of a file, which changes with the file and the options."""
    state = path.stat()
    words = [str(path.resolve()), state.st_size, state.st_mtime_ns, options]
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:24]


def cached_columns(key: str) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """Return the memory-mapped columns of an earlier copy and its metadata, or None."""
    folder = root() / "recordings" / key
    try:
        meta = json.loads((folder / META).read_text(encoding="utf-8"))
        return _map_columns(folder, meta.pop("shapes")), meta
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError):
        return None  # missing or damaged; the copy is made again


def _map_columns(folder: Path, shapes: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return memory-mapped columns of numbers and text.

    Objects are refused: bytes of a file that are read as objects would be arbitrary pointers.
    """
    columns = {}
    for name, (code, shape) in shapes.items():
        dtype = np.dtype(code)
        if dtype.kind not in "iufbSUM":
            raise ValueError(f"{folder / META}: a column of the type {dtype}")
        columns[name] = np.memmap(folder / f"{name}.bin", dtype, mode="r", shape=tuple(shape))
    return columns


def cached_copy(
    key: str, fill: Callable[[Append], dict[str, Any]]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the memory-mapped columns of a copy in the cache, and its metadata.

    Args:
        key: The name of the copy.
        fill: Is called if there is no copy: it adds rows to columns and returns the metadata.
    """
    cached = cached_columns(key)
    if cached is None:
        _make_copy(root() / "recordings" / key, fill)
        cached = cached_columns(key)
        assert cached is not None
    return cached


def _make_copy(copy: Path, fill: Callable[[Append], dict[str, Any]]) -> None:
    """Fill a temporary folder, which becomes the copy when it is complete."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=copy.parent, prefix=".new-"))
    shapes: dict[str, tuple[str, list[int]]] = {}

    def append(name: str, block: np.ndarray) -> None:
        dtype, shape = shapes.setdefault(name, (block.dtype.str, [0, *block.shape[1:]]))
        with (folder / f"{name}.bin").open("ab") as file:
            np.ascontiguousarray(block, dtype=dtype).tofile(file)
        shape[0] += len(block)

    try:
        meta = fill(append)
        text = json.dumps({"shapes": shapes, **meta})
        (folder / META).write_text(text, encoding="utf-8")
        if copy.exists():
            shutil.rmtree(copy)
        folder.rename(copy)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def mapped_from(array: np.ndarray) -> np.memmap | None:
    """Return the memory map that an array is a view of; None if it is in memory."""
    mapping, base = None, array
    while isinstance(base, np.ndarray):
        mapping = base if isinstance(base, np.memmap) else mapping
        base = base.base
    return mapping


def release(arrays: Iterable[np.ndarray]) -> None:
    """Release the pages of memory-mapped files, which are read again when they are needed.

    Without this, a process that has read through a file seems to use as much memory as the file
    has.

    Args:
        arrays: The arrays that were read; those in memory are not changed.
    """
    files = {id(file): file for array in arrays if (file := mapped_from(array)) is not None}
    for file in files.values():
        pages = file.base
        if isinstance(pages, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
            pages.madvise(mmap.MADV_DONTNEED)


class FileArray(NamedTuple):
    """Where the data of an array is in a file, for sending it to another process.

    Args:
        file: The file.
        offset: Bytes before the first element.
        dtype: The type of the elements.
        shape: The shape.
        strides: Bytes between elements.
    """

    file: str
    offset: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def to_file_arrays(arrays: Any) -> Any:
    """Return a list in which every memory-mapped array is replaced by its location in the file.

    Args:
        arrays: A list of arrays; anything else is returned unchanged.
    """
    return [_to_file_array(array) for array in arrays] if isinstance(arrays, list) else arrays


def from_file_arrays(locations: Any) -> Any:
    """Return the argument of `to_file_arrays`; every file is mapped once.

    Args:
        locations: The result of `to_file_arrays`.
    """
    if not isinstance(locations, list):
        return locations
    files: dict[str, np.memmap] = {}
    arrays = []
    for location in locations:
        array = location
        if isinstance(location, FileArray):
            path, offset, dtype, shape, strides = location
            if path not in files:
                files[path] = np.memmap(path, dtype=np.uint8, mode="r")
            array = np.ndarray(shape, dtype, files[path], offset, strides)
        arrays.append(array)
    return arrays


def _to_file_array(array: Any) -> Any:
    file = mapped_from(array) if isinstance(array, np.ndarray) else None
    if file is None or file.filename is None:
        return array
    before = array.__array_interface__["data"][0] - file.__array_interface__["data"][0]
    offset = int(file.offset) + before
    return FileArray(str(file.filename), offset, array.dtype.str, array.shape, array.strides)
