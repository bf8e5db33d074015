"""Where the trials of a sweep are written down: a journal in its folder, or a database."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from undamped._base.errors import RunError, explain

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

STUDY = "sweep"
"""What the study of a journal is called."""
_CHUNK = 1 << 20
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
            end = _end_of_last_line(file, size)
            if end < size:
                file.truncate(end)
        return True

    def release(self) -> None:
        """Give the lock back."""
        self._stack.close()


def _end_of_last_line(file: BinaryIO, size: int) -> int:
    """Return how many bytes of a file belong to finished lines."""
    start = size
    while start:
        length = min(start, _CHUNK)
        start -= length
        file.seek(start)
        place = file.read(length).rfind(b"\n")
        if place >= 0:
            return start + place + 1
    return 0


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
    lock.acquire()  # a line that was never finished is no damage
    lock.release()
    _check_lines(path)
    try:
        storage = JournalStorage(JournalFileBackend(str(path), lock_obj=lock))
        studies = storage.get_all_studies()
        if [study.study_name for study in studies] not in ([], [STUDY]):
            raise ValueError("another study")
        for study in studies:
            if len(study.directions) != 1:
                raise ValueError("several directions")
            for trial in storage.get_all_trials(study._study_id):
                _check_trial(trial)
    except Exception as error:  # Optuna believes what it reads, and fails in many ways
        raise _damaged(path, f"one that Optuna cannot follow ({_first_line(error)})") from None
    return storage


def _check_lines(path: Path) -> None:
    """Refuse a journal with a line that is no JSON object, and say which."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                entry = None
            if not isinstance(entry, dict):
                raise _damaged(path, f"a damaged line {number}")


def _check_trial(trial: FrozenTrial) -> None:
    """Raise where a trial holds values of another kind than trials have."""
    results, steps = trial.values or [], trial.intermediate_values
    if len(results) != (trial.state.name == "COMPLETE"):
        raise ValueError("a trial with another number of results")
    numbers = [*results, *steps.values()]
    if not all(isinstance(number, (int, float)) for number in numbers):
        raise TypeError("a result that is no number")
    if not all(isinstance(step, int) for step in steps) or set(trial.params) != set(
        trial.distributions
    ):
        raise TypeError("a step or a setting of another kind")
    for name, distribution in trial.distributions.items():
        if not distribution._contains(distribution.to_internal_repr(trial.params[name])):
            raise ValueError(f"a value of {name} outside its range")


def _damaged(path: Path, got: str) -> RunError:
    return RunError(
        explain(
            str(path),
            expected="the journal of a sweep",
            got=got,
            remedy="Restore it from a copy, or begin the sweep in another folder; the trials' "
            "runs are not affected.",
        )
    )


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
