"""The folder of fetched data sets, and whether a set in it is complete and unchanged."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from undamped._base.errors import DataError
from undamped.lab.data.published.sources import DataSet, File

MANIFEST = "undamped.json"
_LOCK_SECONDS = 3600.0


def root() -> Path:
    """Return the cache root: `UNDAMPED_DATA`, else XDG's cache folder, else `~/.cache`.

    It is created by the first fetch.
    """
    configured = os.environ.get("UNDAMPED_DATA")
    if configured:
        return Path(configured).expanduser()
    xdg = os.environ.get("XDG_CACHE_HOME")
    # The XDG specification says that a relative path is to be ignored.
    base = Path(xdg) if xdg and Path(xdg).is_absolute() else Path.home() / ".cache"
    return base / "undamped"


def folder(name: str) -> Path:
    """Return the folder of a set that has been fetched.

    Only names and sizes are checked, which is fast; `undamped data info` reads every byte.

    Args:
        name: Name of the set, as in `undamped data list`.

    Example:
        >>> folder("mnist") / "train-images-idx3-ubyte"  # doctest: +SKIP
    """
    from undamped.lab.data.published import catalogue

    data_set = catalogue.find(name)
    problems = quick_problems(data_set)
    if not problems:
        return path_of(data_set)
    raise DataError(
        f"Data set {data_set.name} is not in {path_of(data_set)}: {problems[0]}. Run `undamped "
        f"data fetch {data_set.name}`."
    )


def path_of(data_set: DataSet) -> Path:
    """Return the folder of a set, which need not exist."""
    return root() / data_set.folder


def manifest(data_set: DataSet) -> dict[str, Any] | None:
    """Return the record written when the set was fetched; None without a readable one."""
    try:
        record = json.loads((path_of(data_set) / MANIFEST).read_text(encoding="utf-8"))
        for entry in record["files"]:
            File(str(entry["name"]), int(entry["size"]), str(entry["sha256"]))
        record["source"]
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return record


def quick_problems(data_set: DataSet) -> list[str]:
    """Return which files are missing or have a wrong size."""
    record = manifest(data_set)
    if record is None:
        exists = path_of(data_set).exists()
        return ["its record cannot be read" if exists else "it is not fetched yet"]
    problems = []
    for file in record["files"]:
        path = path_of(data_set) / file["name"]
        if not path.is_file():
            problems.append(f"{file['name']} missing")
        elif (size := path.stat().st_size) != file["size"]:
            problems.append(f"{file['name']} of {size} bytes instead of {file['size']}")
    return problems


def problems(data_set: DataSet) -> list[str]:
    """Return what is wrong with the set after reading every byte; empty if it is unchanged."""
    return quick_problems(data_set) or [
        f"{file['name']} with a wrong checksum"
        for file in (manifest(data_set) or {"files": []})["files"]
        if sha256_of(path_of(data_set) / file["name"]) != file["sha256"]
    ]


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def lock(name: str) -> Iterator[None]:
    """Hold a lock, so that no other process fetches the same set or file; wait for it if necessary.

    The operating system releases the lock when the process ends.
    """
    try:
        import fcntl
    except ImportError:  # Windows: two simultaneous fetches are only wasteful there
        yield
        return
    path = root() / ".locks" / f"{name.replace('/', '-')}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        until = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise DataError(
                        f"Another process has been fetching {name} for {_LOCK_SECONDS / 60:.0f} "
                        "minutes. End it, or wait for it."
                    ) from None
                time.sleep(0.2)
        yield
