"""The folder that fetched data lives in, and whether a set in it is whole."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from undamped._base.errors import DataError, explain
from undamped.lab.data.published.sources import DataSet, File

MANIFEST = "undamped.json"
_LOCK_SECONDS = 3600.0


def root() -> Path:
    """Return the cache root: `UNDAMPED_DATA`, else XDG's cache folder, else `~/.cache`.

    It is not created before something is written to it.
    """
    own = os.environ.get("UNDAMPED_DATA")
    if own:
        return Path(own).expanduser()
    xdg = os.environ.get("XDG_CACHE_HOME")
    # The XDG specification says that a relative path is to be ignored.
    base = Path(xdg) if xdg and Path(xdg).is_absolute() else Path.home() / ".cache"
    return base / "undamped"


def folder(name: str) -> Path:
    """Return the folder of a set that has been fetched.

    Names, sizes and the record are looked at, which is quick; `undamped data info` reads
    every byte.

    Args:
        name: Name of the set, as in `undamped data list`.

    Example:
        >>> folder("mnist") / "train-images-idx3-ubyte"  # doctest: +SKIP
    """
    from undamped.lab.data.published import catalogue

    data_set = catalogue.find(name)
    problems = quick_problems(data_set)
    if not problems:
        return place(data_set)
    raise DataError(
        explain(
            f"data set {data_set.name}",
            expected=f"its files in {place(data_set)}",
            got=problems[0],
            remedy=f"Run `undamped data fetch {data_set.name}`.",
        )
    )


def place(data_set: DataSet) -> Path:
    """Return where a set lives or would live."""
    return root() / data_set.place


def manifest(data_set: DataSet) -> dict[str, Any] | None:
    """Return the record written when the set was fetched; None where there is none to read."""
    try:
        record = json.loads((place(data_set) / MANIFEST).read_text(encoding="utf-8"))
        for entry in record["files"]:
            File(str(entry["name"]), int(entry["size"]), str(entry["sha256"]))
        record["source"]
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return record


def recorded_files(data_set: DataSet) -> list[File] | None:
    """Return the files the set should have according to its record; None without a record."""
    record = manifest(data_set)
    if record is None:
        return None
    return [File(entry["name"], entry["size"], entry["sha256"]) for entry in record["files"]]


def quick_problems(data_set: DataSet) -> list[str]:
    """Return what is missing or has the wrong size; empty if all seems well."""
    files = recorded_files(data_set)
    if files is None:
        there = place(data_set).exists()
        return ["a folder without a readable record" if there else "nothing there yet"]
    problems = []
    for file in files:
        path = place(data_set) / file.name
        if not path.is_file():
            problems.append(f"{file.name} missing")
        elif path.stat().st_size != file.size:
            problems.append(f"{file.name} of {path.stat().st_size} bytes instead of {file.size}")
    return problems


def problems(data_set: DataSet) -> list[str]:
    """Return what is wrong with the set, every byte read; empty if it is as fetched."""
    found = quick_problems(data_set)
    if found:
        return found
    return [
        f"{file.name} with a wrong checksum"
        for file in recorded_files(data_set) or []
        if sha256(place(data_set) / file.name) != file.sha256
    ]


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def lock(name: str) -> Iterator[None]:
    """Hold a set or a download so that no other process fetches it; waits for its turn.

    The kernel lets go of the lock when the process ends, however it ends.
    """
    try:
        import fcntl
    except ImportError:  # Windows: two fetches at once are merely wasteful there
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
                        explain(
                            name,
                            expected="no other process fetching it",
                            got=f"one that has held it for {_LOCK_SECONDS / 60:.0f} minutes",
                            remedy="End the other process, or wait for it.",
                        )
                    ) from None
                time.sleep(0.2)
        yield
