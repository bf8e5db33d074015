"""The storage of the trials of a sweep: a journal in its folder, or a database."""

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

from undamped._base.errors import RunError, shortened

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

STUDY = "sweep"
"""The name of the study in a journal."""
ATTEMPTS = 20
"""Attempts to create the tables of a database, which several machines may do simultaneously."""
_CHUNK = 1 << 20


@contextlib.contextmanager
def file_lock(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold a lock that the operating system releases when the process ends; yield whether it holds.

    On systems without such locks a sweep must have one process only.

    Args:
        path: The file that is locked; it is created if necessary.
        wait: Whether to wait for another process that has the lock.
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
    """Locks a journal for writing, and removes an incomplete last line.

    A full disk or a power failure may leave half a line, and lines after it could not be read.
    """

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._stack = contextlib.ExitStack()

    def acquire(self) -> bool:
        """Acquire the lock, and repair the journal."""
        self._stack.enter_context(file_lock(self._journal.with_suffix(".lock")))
        with self._journal.open("rb+") as file:
            size = file.seek(0, os.SEEK_END)
            end = _end_of_last_line(file, size)
            if end < size:
                file.truncate(end)
        return True

    def release(self) -> None:
        """Release the lock."""
        self._stack.close()


def _end_of_last_line(file: BinaryIO, size: int) -> int:
    """Return how many bytes of a file belong to complete lines."""
    start = size
    while start:
        length = min(start, _CHUNK)
        start -= length
        file.seek(start)
        index = file.read(length).rfind(b"\n")
        if index >= 0:
            return start + index + 1
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
    from sqlalchemy.exc import IntegrityError, SQLAlchemyError
    from sqlalchemy.pool import NullPool

    # The extra installs this driver for PostgreSQL.
    address = re.sub(r"^postgres(?:ql)?://", "postgresql+psycopg://", url)
    with database_errors(url):
        for remaining in reversed(range(ATTEMPTS)):
            try:
                # A connection may not last for a training, so none is kept between two trials.
                return RDBStorage(address, engine_kwargs={"poolclass": NullPool})
            except SQLAlchemyError as error:
                # Another machine may have created the tables a moment before.
                conflict = isinstance(error, IntegrityError) or "already exists" in str(error)
                if not remaining or not conflict:
                    raise
                time.sleep(random.uniform(0.05, 0.5))
    raise AssertionError("the last attempt returns or raises")


def _journal(path: Path) -> BaseStorage:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    path.touch()
    lock: Any = _JournalLock(path)
    lock.acquire()  # an incomplete last line is removed
    lock.release()
    _check_lines(path)
    try:
        storage = JournalStorage(JournalFileBackend(str(path), lock_obj=lock))
        studies = storage.get_all_studies()
        if [study.study_name for study in studies] not in ([], [STUDY]):
            raise ValueError("it has another study")
        for study in studies:
            if len(study.directions) != 1:
                raise ValueError("it has several directions")
            for trial in storage.get_all_trials(study._study_id):
                _check_trial(trial)
    except Exception as error:  # Optuna does not check what it reads, and fails in many ways
        raise _damaged(path, f"Optuna cannot read it ({_first_line(error)})") from None
    return storage


def _check_lines(path: Path) -> None:
    """Raise an error for a line that is not a JSON object."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                entry = None
            if not isinstance(entry, dict):
                raise _damaged(path, f"line {number} is damaged")


def _check_trial(trial: FrozenTrial) -> None:
    """Raise an error for a trial with invalid values."""
    results, steps = trial.values or [], trial.intermediate_values
    if len(results) != (trial.state.name == "COMPLETE"):
        raise ValueError("a trial has a wrong number of results")
    numbers = [*results, *steps.values()]
    if not all(isinstance(number, (int, float)) for number in numbers):
        raise TypeError("a result is not a number")
    if not all(isinstance(step, int) for step in steps) or set(trial.params) != set(
        trial.distributions
    ):
        raise TypeError("a step or a setting has a wrong type")
    for name, distribution in trial.distributions.items():
        if not distribution._contains(distribution.to_internal_repr(trial.params[name])):
            raise ValueError(f"a value of {name} is outside its range")


def _damaged(path: Path, problem: str) -> RunError:
    return RunError(
        f"{path} is damaged: {shortened(problem)}. Restore it from a copy, or start the sweep in "
        "another folder; the runs of the trials are not affected."
    )


@contextlib.contextmanager
def database_errors(url: str | None) -> Iterator[None]:
    """Turn errors of a database into a `RunError`.

    Args:
        url: Its URL; None for a journal, whose errors are not changed.
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
        reason = shortened(_first_line(cause or error))
        raise RunError(
            f"Cannot use the database {without_password(url)}: {reason}. "
            "Start it or correct --storage; the same command resumes the sweep."
        ) from None


def without_password(url: str) -> str:
    """Return a URL without its password, for messages and files."""
    return re.sub(r"(://[^:/@]*):[^@/]*@", r"\1:…@", url)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
