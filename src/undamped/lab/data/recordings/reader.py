"""Registration of file readers, by the extensions of their files.

    @reads(".edf")
    def read_edf(path: Path) -> SeriesSet: ...

`undamped train`, `data check` and `predict` then accept such files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from undamped._base.registry import readers
from undamped.lab.data.recordings.series import SeriesSet

Read = TypeVar("Read", bound=Callable[..., SeriesSet])


@dataclass(frozen=True)
class Reader:
    """The reader of files with one extension.

    Args:
        read: Returns the recordings of a path; for files with named columns, it also accepts the
            options of `read_recordings`.
        columns: Whether files have named columns, one of which may be the target, the time, ….
        array: Returns the array of a file of plain numbers, (time, features) or (sequences, time,
            features), for models that were not trained on recordings.
        lazy: Whether `read` accepts `in_memory`, the size in bytes above which a file stays on
            disk.
    """

    read: Callable[..., SeriesSet]
    columns: bool = False
    array: Callable[[Path], np.ndarray] | None = None
    lazy: bool = False


def reads(
    *suffixes: str,
    columns: bool = False,
    array: Callable[[Path], np.ndarray] | None = None,
    lazy: bool = False,
) -> Callable[[Read], Read]:
    """Return a decorator that registers a function as the reader of files with these extensions.

    Args:
        suffixes: The extensions, in lower case, with the dot.
        columns: See `Reader`.
        array: See `Reader`.
        lazy: See `Reader`.
    """

    def decorate(read: Read) -> Read:
        for suffix in suffixes:
            readers.register(suffix)(Reader(read, columns, array, lazy))
        return read

    return decorate
