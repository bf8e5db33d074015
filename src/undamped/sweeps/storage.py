"""Where the trials of a sweep are written down: a journal in its folder, or a database."""

from __future__ import annotations

import contextlib
import os
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undamped.errors import RunError, explain

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

MEETINGS = 20
"""How often machines that begin a sweep at the same moment may get in each other's way."""


@contextlib.contextmanager
def held(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold a lock that is gone with the process, however it ends; say whether it is held.

    Systems without such locks hold nothing: there a sweep has one process.

    Args:
        path: The file that is locked; it is made if it is not there.
        wait: Whether to wait for whoever holds it.
    """
    try:
        import fcntl
    except ModuleNotFoundError:
        yield True
        return
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True


class _JournalLock:
    """Holds a journal while something is added, and cuts off a line that was never finished.

    A full disk, or a machine that lost its power, may leave half a line; what is added behind it
    could never be read.
    """

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._stack = contextlib.ExitStack()

    def acquire(self) -> bool:
        """Take the lock, and mend the journal."""
        self._stack.enter_context(held(self._journal.with_suffix(".lock")))
        with self._journal.open("rb+") as file:
            size = file.seek(0, os.SEEK_END)
            if size:
                tail = min(size, 1 << 20)
                file.seek(size - tail)
                end = file.read(tail)
                if not end.endswith(b"\n"):
                    file.truncate(size - tail + end.rfind(b"\n") + 1)
        return True

    def release(self) -> None:
        """Give the lock back."""
        self._stack.close()


def open_storage(folder: Path, url: str | None) -> BaseStorage:
    """Open the journal of a folder, or a database.

    Args:
        folder: The folder of the sweep.
        url: The database, such as `postgresql+psycopg://user:password@host/name`.
    """
    if url is None:
        return _journal(folder / "journal.log")
    from optuna.storages import RDBStorage
    from sqlalchemy.exc import SQLAlchemyError
    from sqlalchemy.pool import NullPool

    with database_errors(url):
        for chance in reversed(range(MEETINGS)):
            try:
                # Between two trials lies a training: a connection kept for so long may be gone.
                return RDBStorage(_with_driver(url), engine_kwargs={"poolclass": NullPool})
            except SQLAlchemyError as error:
                if not chance or not _was_made_meanwhile(error):
                    raise
                time.sleep(random.uniform(0.05, 0.5))
    raise AssertionError("the last chance returns or raises")


def _was_made_meanwhile(error: Exception) -> bool:
    """Whether another machine, beginning the same sweep now, made the tables just before us."""
    from sqlalchemy.exc import IntegrityError

    return isinstance(error, IntegrityError) or "already exists" in str(error)


def _journal(path: Path) -> BaseStorage:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    path.touch()
    lock: Any = _JournalLock(path)
    return JournalStorage(JournalFileBackend(str(path), lock_obj=lock))


def _with_driver(url: str) -> str:
    """Let PostgreSQL be spoken to by the driver that comes with the extra."""
    return re.sub(r"^postgres(?:ql)?://", "postgresql+psycopg://", url)


@contextlib.contextmanager
def database_errors(url: str | None) -> Iterator[None]:
    """Say in one sentence what is wrong with a database.

    Args:
        url: Its address; None lets all errors pass.
    """
    if url is None:
        yield
        return
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, StorageInternalError, ImportError) as error:
        cause = error.__cause__ if isinstance(error, StorageInternalError) else error
        raise RunError(
            explain(
                "--storage",
                expected=f"a database at {without_password(url)}",
                got=_first_line(cause or error),
                remedy="Start it or correct the address; the same command goes on from there.",
            )
        ) from None


def without_password(url: str) -> str:
    """Return an address that may be shown and kept."""
    return re.sub(r"(://[^:/@]*):[^@/]*@", r"\1:…@", url)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
