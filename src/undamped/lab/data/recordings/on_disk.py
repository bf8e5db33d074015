"""Arrays that lie in files: mapped, not read, and sent to other processes as their place."""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np


def mapped_from(array: np.ndarray) -> np.memmap | None:
    """Return the mapping of a file that an array is a view of; None if it lies in memory."""
    found, below = None, array
    while isinstance(below, np.ndarray):
        found = below if isinstance(below, np.memmap) else found
        below = below.base
    return found


def let_go(arrays: Iterable[np.ndarray]) -> None:
    """Let the system take back the pages of files that were looked at.

    They are read again when they are needed. Without this, a process that has looked through a file
    seems to use as much memory as the file has, wherever there is so much.

    Args:
        arrays: Whatever was looked at; those in memory stay as they are.
    """
    files = {id(file): file for one in arrays if (file := mapped_from(one)) is not None}
    for file in files.values():
        pages = file.base
        if isinstance(pages, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
            pages.madvise(mmap.MADV_DONTNEED)


def plain_view(array: np.ndarray) -> np.ndarray:
    """Return the same numbers as an ordinary array: slices of a mapping carry a dictionary each."""
    return array.view(np.ndarray)


@dataclass(frozen=True)
class Place:
    """Where the numbers of an array lie: what is sent to another process instead of them.

    Args:
        file: The file.
        offset: Bytes before the first number.
        dtype: The type of the numbers.
        shape: How many there are.
        strides: Bytes between them.
    """

    file: str
    offset: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def as_places(arrays: Any) -> Any:
    """Return a list of arrays, with the place of each that lies in a file instead of its numbers.

    Args:
        arrays: A list of arrays; anything else is returned as it is.
    """
    return [_as_place(one) for one in arrays] if isinstance(arrays, list) else arrays


def as_arrays(places: Any) -> Any:
    """Return what `as_places` was given; every file is mapped once.

    Args:
        places: What it returned.
    """
    if not isinstance(places, list):
        return places
    files: dict[str, np.memmap] = {}
    return [_as_array(one, files) if isinstance(one, Place) else one for one in places]


def _as_place(array: Any) -> Any:
    file = mapped_from(array) if isinstance(array, np.ndarray) else None
    if file is None or file.filename is None:
        return array
    before = array.__array_interface__["data"][0] - file.__array_interface__["data"][0]
    offset = int(file.offset) + before
    return Place(str(file.filename), offset, array.dtype.str, array.shape, array.strides)


def _as_array(place: Place, files: dict[str, np.memmap]) -> np.ndarray:
    if place.file not in files:
        files[place.file] = np.memmap(place.file, dtype=np.uint8, mode="r")
    return np.ndarray(
        place.shape, place.dtype, files[place.file], offset=place.offset, strides=place.strides
    )
