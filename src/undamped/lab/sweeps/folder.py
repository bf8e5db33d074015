"""The folder of a sweep: its plan, a run for each trial, and the storage of its trials."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import random
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from undamped._base.errors import OptionError, RunError, UndampedError, shortened
from undamped._base.options import convert
from undamped.lab.files import file_lock, read_json, write_json
from undamped.lab.sweeps.plan import Plan
from undamped.lab.training.run import Run

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

STUDY = "sweep"
"""The name of the study in a journal."""
ATTEMPTS = 20
"""Attempts to create the tables of a database, which several machines may do simultaneously."""
_CHUNK = 1 << 20

FORMAT = 1
_FORM: dict[str, Any] = {
    "plan": Mapping[str, Any],
    "metric": str,
    "higher_is_better": bool,
    "storage": str | None,
    "identity": str | None,
}


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
    # The result of a pruned trial is its last validation, if there was one.
    counts = {"COMPLETE": (1,), "PRUNED": (0, 1)}
    if len(results) not in counts.get(trial.state.name, (0,)):
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


@dataclass(frozen=True)
class SweepFolder:
    """The folder of a sweep.

    Args:
        path: The folder.
    """

    path: Path

    @classmethod
    def open(cls, path: str | Path) -> SweepFolder:
        """Open the folder of an existing sweep."""
        folder = cls(Path(path))
        if not folder._file.is_file():
            if not folder.path.exists():
                raise RunError(f"No such folder: {path}")
            raise RunError(f"{path} is not the folder of a sweep: it has no sweep.json.")
        folder._stored()
        return folder

    @classmethod
    def join(
        cls, path: str | Path, plan: Plan, metric: str, higher: bool, url: str | None = None
    ) -> SweepFolder:
        """Create the folder of a sweep, or join the sweep that is in it.

        Args:
            path: The folder.
            plan: The plan.
            metric: The metric of the results.
            higher: Whether higher values are better.
            url: The database of the trials, if it is not the journal of the folder.
        """
        folder = cls(Path(path))
        (folder.path / "trials").mkdir(parents=True, exist_ok=True)
        with folder.lock():
            storage = None if url is None else without_password(url)
            if not folder._file.exists():
                if any((folder.path / "trials").iterdir()):
                    raise OptionError(f"{path} has trials but no sweep.json. Choose another --out.")
                write_json(
                    folder._file,
                    {
                        "format": FORMAT,
                        "plan": asdict(plan),
                        "metric": metric,
                        "higher_is_better": higher,
                        "storage": storage,
                        "identity": uuid.uuid4().hex,
                    },
                )
            folder.plan.check_same(plan, str(path))
            if folder.database != storage:
                raise OptionError(
                    f"--storage of this sweep is {folder.database or 'not set'}, got "
                    f"{storage or 'none'}. Use the command that started the sweep."
                )
        return folder

    @property
    def _file(self) -> Path:
        return self.path / "sweep.json"

    def _stored(self) -> dict[str, Any]:
        stored = read_json(self._file)
        if not isinstance(stored, dict) or stored.get("format") != FORMAT:
            version = shortened(stored.get("format")) if isinstance(stored, dict) else "none"
            raise RunError(
                f"{self._file} must have the format {FORMAT}, got {version}. Use the version of "
                "undamped that created the sweep."
            )
        for name, annotation in _FORM.items():
            try:
                convert(annotation, stored.get(name), f"{self._file}: {name}")
            except OptionError as error:
                raise RunError(str(error)) from None
        return stored

    @property
    def plan(self) -> Plan:
        """The plan of the sweep."""
        try:
            return Plan.from_dict(self._stored()["plan"])
        except UndampedError as error:
            raise RunError(f"{self._file}: {error}") from None

    @property
    def metric(self) -> str:
        """The metric of the results."""
        return self._stored()["metric"]

    @property
    def higher_is_better(self) -> bool:
        """Whether higher values are better."""
        return self._stored()["higher_is_better"]

    @property
    def database(self) -> str | None:
        """The database of the trials, without a password; None for the journal."""
        return self._stored()["storage"]

    @property
    def identity(self) -> str:
        """An identifier that distinguishes folders of the same name, on any machine."""
        return self._stored().get("identity") or platform.node()

    def lock(self) -> contextlib.AbstractContextManager[bool]:
        """Lock the folder for a short time, while a process selects its next trial."""
        return file_lock(self.path / "lock")

    def trial(self, number: int) -> Path:
        """Return the folder of a trial."""
        return self.path / "trials" / f"{number:04d}"

    def run(self, number: int) -> Run | None:
        """Return the run of a trial; None if there is none yet."""
        files = sorted(self.trial(number).glob("*/run.json"), key=lambda path: path.parent.name)
        return Run.open(files[-1].parent) if files else None
