"""The contract of a reader: one file per format, entered by the endings of its files.

    @reads(".edf")
    def read_edf(path: Path) -> SeriesSet: ...

From then on `undamped train`, `data check` and `predict` take such files.
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
    """How files of one ending are read.

    Args:
        read: Takes a path and returns recordings; where there are named columns, it takes the
            options of `read_recordings` too.
        columns: Whether files have named columns, of which one may be the target, the time, ….
        array: Takes a path and returns the numbers of a file that holds nothing else: (time,
            features) or (sequences, time, features). Models that were not trained on recordings
            are asked with those.
        in_pieces: Whether `read` takes `in_memory`, the bytes from which on a file stays on disk.
    """

    read: Callable[..., SeriesSet]
    columns: bool = False
    array: Callable[[Path], np.ndarray] | None = None
    lazy: bool = False


def reads(
    *endings: str,
    columns: bool = False,
    array: Callable[[Path], np.ndarray] | None = None,
    lazy: bool = False,
) -> Callable[[Read], Read]:
    """Return a decorator that enters a function as the reader of files with these endings.

    Args:
        endings: In small letters, with the dot.
        columns: See `Reader`.
        array: See `Reader`.
        in_pieces: See `Reader`.
    """

    def enter(read: Read) -> Read:
        for ending in endings:
            readers.register(ending)(Reader(read, columns, array, lazy))
        return read

    return enter
