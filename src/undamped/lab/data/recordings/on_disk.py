"""Memory-mapped arrays, which are sent to other processes as the location of their file."""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np


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


def plain_view(array: np.ndarray) -> np.ndarray:
    """Return the same data as an ordinary array: every slice of a memmap has a dictionary."""
    return array.view(np.ndarray)


@dataclass(frozen=True)
class FileArray:
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
    return [_from_file_array(x, files) if isinstance(x, FileArray) else x for x in locations]


def _to_file_array(array: Any) -> Any:
    file = mapped_from(array) if isinstance(array, np.ndarray) else None
    if file is None or file.filename is None:
        return array
    before = array.__array_interface__["data"][0] - file.__array_interface__["data"][0]
    offset = int(file.offset) + before
    return FileArray(str(file.filename), offset, array.dtype.str, array.shape, array.strides)


def _from_file_array(location: FileArray, files: dict[str, np.memmap]) -> np.ndarray:
    path = location.file
    if path not in files:
        files[path] = np.memmap(path, dtype=np.uint8, mode="r")
    return np.ndarray(
        location.shape,
        location.dtype,
        files[path],
        offset=location.offset,
        strides=location.strides,
    )
