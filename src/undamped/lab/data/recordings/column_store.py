"""Columns that grow block by block, in memory or on disk.

A file larger than memory is copied once into plain arrays in the cache, from which windows are read
on demand. The name of the copy depends on the file's path, size and modification time.
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
"""Bytes of the largest file that is read into memory."""
READ_IN_BLOCKS = "The file is larger than the memory limit: it stays on disk and is read in blocks."


class Store(Protocol):
    """A store of named columns."""

    def append(self, name: str, block: np.ndarray) -> None:
        """Add rows to a column."""
        ...


class MemoryStore:
    """Columns in memory."""

    def __init__(self) -> None:
        self._blocks: dict[str, list[np.ndarray]] = {}

    def append(self, name: str, block: np.ndarray) -> None:
        """Add rows to a column."""
        self._blocks.setdefault(name, []).append(block)

    def finish(self) -> dict[str, np.ndarray]:
        """Return the complete columns."""
        return {name: np.concatenate(blocks) for name, blocks in self._blocks.items()}


class DiskStore:
    """Columns in files of a folder.

    Args:
        folder: An existing folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._shapes: dict[str, tuple[str, list[int]]] = {}

    def append(self, name: str, block: np.ndarray) -> None:
        """Add rows to a column."""
        dtype, shape = self._shapes.setdefault(name, (block.dtype.str, [0, *block.shape[1:]]))
        with (self.folder / f"{name}.bin").open("ab") as file:
            np.ascontiguousarray(block, dtype=dtype).tofile(file)
        shape[0] += len(block)

    def write_meta(self, extra: dict[str, Any]) -> None:
        """Write the contents of the files; a folder without this file is incomplete."""
        text = json.dumps({"shapes": self._shapes, **extra})
        (self.folder / META).write_text(text, encoding="utf-8")


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


@contextlib.contextmanager
def new_copy(key: str) -> Iterator[DiskStore]:
    """Yield a store that is moved into the cache on success, and deleted otherwise."""
    parent = root() / "recordings"
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=parent, prefix=".new-"))
    try:
        yield DiskStore(folder)
        copy = parent / key
        if copy.exists():
            shutil.rmtree(copy)
        folder.rename(copy)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
