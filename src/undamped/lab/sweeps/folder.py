"""The folder of a sweep: its plan, a journal of its trials, and a run for each."""

from __future__ import annotations

import contextlib
import platform
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from undamped._base.errors import OptionError, RunError, UndampedError, shortened
from undamped._base.options import convert
from undamped.lab.files import read_json, write_json
from undamped.lab.sweeps.plan import Plan
from undamped.lab.sweeps.storage import file_lock, without_password
from undamped.lab.training.run import Run

FORMAT = 1
_FORM: dict[str, Any] = {
    "plan": Mapping[str, Any],
    "metric": str,
    "higher_is_better": bool,
    "storage": str | None,
    "identity": str | None,
}


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
                        "plan": plan.to_dict(),
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
