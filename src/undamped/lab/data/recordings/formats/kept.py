"""Columns that grow piece by piece, in memory or on disk.

A file larger than memory is copied once into plain arrays in the cache; windows are then cut from
those without reading the rest. The copy is keyed by the file's name, size and time of change.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from undamped.lab.data.published.cache import root

META = "columns.json"
IN_MEMORY = 1 << 30
"""Bytes of a file that is read as a whole."""
READ_IN_PIECES = "The file is larger than memory allows: it is read in pieces."


class Store(Protocol):
    """Where the pieces of named columns go."""

    def append(self, name: str, piece: np.ndarray) -> None:
        """Add rows to a column."""
        ...

    def finish(self) -> dict[str, np.ndarray]:
        """Return the whole columns."""
        ...


class MemoryStore:
    """Columns in memory."""

    def __init__(self) -> None:
        self._pieces: dict[str, list[np.ndarray]] = {}

    def append(self, name: str, piece: np.ndarray) -> None:
        """Add rows to a column."""
        self._pieces.setdefault(name, []).append(piece)

    def finish(self) -> dict[str, np.ndarray]:
        """Return the whole columns."""
        return {name: np.concatenate(pieces) for name, pieces in self._pieces.items()}


class DiskStore:
    """Columns in files of a folder.

    Args:
        folder: Where; it has to be there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._shapes: dict[str, tuple[str, list[int]]] = {}

    def append(self, name: str, piece: np.ndarray) -> None:
        """Add rows to a column."""
        dtype, shape = self._shapes.setdefault(name, (piece.dtype.str, [0, *piece.shape[1:]]))
        with (self.folder / f"{name}.bin").open("ab") as file:
            np.ascontiguousarray(piece, dtype=dtype).tofile(file)
        shape[0] += len(piece)

    def finish(self) -> dict[str, np.ndarray]:
        """Return the whole columns, which stay on disk."""
        return mapped(self.folder, self._shapes)

    def write_meta(self, extra: dict[str, Any]) -> None:
        """Write down what the files hold; a folder without this is not whole."""
        text = json.dumps({"shapes": self._shapes, **extra})
        (self.folder / META).write_text(text, encoding="utf-8")


def mapped(folder: Path, shapes: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return columns that lie in a folder without reading them.

    Numbers and text only: bytes of a file that are taken for objects are pointers to anywhere.
    """
    columns = {}
    for name, (code, shape) in shapes.items():
        dtype = np.dtype(code)
        if dtype.kind not in "iufbSUM":
            raise ValueError(f"{folder / META}: a column of the type {dtype}")
        columns[name] = np.memmap(folder / f"{name}.bin", dtype, mode="r", shape=tuple(shape))
    return columns


def key_of(path: Path, settings: dict[str, Any]) -> str:
    """Return a name for the copy of a file, another one when the file has changed."""
    state = path.stat()
    words = [str(path.resolve()), state.st_size, state.st_mtime_ns, settings]
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:24]


def kept(key: str) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """Return the columns of an earlier copy and what was noted with them, or None."""
    folder = root() / "recordings" / key
    try:
        meta = json.loads((folder / META).read_text(encoding="utf-8"))
        return mapped(folder, meta.pop("shapes")), meta
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError):
        return None  # none, or a damaged one, which is made anew


@contextlib.contextmanager
def new_copy(key: str) -> Iterator[DiskStore]:
    """Give a store to fill; it takes its place in the cache when all went well, else it is gone."""
    parent = root() / "recordings"
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=parent, prefix=".new-"))
    try:
        yield DiskStore(folder)
        place = parent / key
        if place.exists():
            shutil.rmtree(place)
        folder.rename(place)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
