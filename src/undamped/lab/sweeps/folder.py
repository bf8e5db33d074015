"""A sweep is a folder: its plan, a journal of its trials, and an ordinary run for each."""

from __future__ import annotations

import contextlib
import platform
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from undamped._base.errors import OptionError, RunError, UndampedError, explain
from undamped._base.files import read_json, write_json
from undamped._base.options import convert
from undamped.lab.sweeps.plan import Plan
from undamped.lab.sweeps.storage import held, without_password
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
        path: Where it lies.
    """

    path: Path

    @classmethod
    def open(cls, path: str | Path) -> SweepFolder:
        """Open one that is there, or say why that cannot be."""
        folder = cls(Path(path))
        if not folder._file.is_file():
            raise RunError(
                explain(
                    str(path),
                    expected="the folder of a sweep, with a sweep.json in it",
                    got="something else" if folder.path.exists() else "no such folder",
                    remedy="Name a folder that 'undamped sweep' made.",
                )
            )
        folder._stored()
        return folder

    @classmethod
    def join(
        cls, path: str | Path, plan: Plan, metric: str, higher: bool, url: str | None = None
    ) -> SweepFolder:
        """Make the folder of a sweep, or take part in the one that lies there.

        Args:
            path: Where.
            plan: What it is about.
            metric: What is judged.
            higher: Whether more of it is better.
            url: The database that knows the trials, if it is not the journal of the folder.
        """
        folder = cls(Path(path))
        (folder.path / "trials").mkdir(parents=True, exist_ok=True)
        with folder.alone():
            storage = None if url is None else without_password(url)
            if not folder._file.exists():
                if any(folder._trial_folders()):
                    raise OptionError(
                        explain(
                            str(path),
                            expected="an empty folder, or one of a sweep",
                            got="trials without a sweep.json",
                            remedy="Choose another --out.",
                        )
                    )
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
            if folder._stored()["storage"] != storage:
                raise OptionError(
                    explain(
                        "--storage",
                        expected=folder._stored()["storage"] or "none: the sweep has a journal",
                        got=storage or "none",
                        remedy="Type the command that the sweep was begun with.",
                    )
                )
        return folder

    @property
    def _file(self) -> Path:
        return self.path / "sweep.json"

    def _stored(self) -> dict[str, Any]:
        stored = read_json(self._file)
        if not isinstance(stored, dict) or stored.get("format") != FORMAT:
            raise RunError(
                explain(
                    str(self._file),
                    expected=f"sweep format {FORMAT}",
                    got=stored.get("format") if isinstance(stored, dict) else "something else",
                    remedy="Use the version of undamped that made the sweep.",
                )
            )
        for name, annotation in _FORM.items():
            try:
                convert(annotation, stored.get(name), f"{self._file}: {name}")
            except OptionError as error:
                raise RunError(str(error)) from None
        return stored

    @property
    def plan(self) -> Plan:
        """What the sweep is about."""
        try:
            return Plan.from_dict(self._stored()["plan"])
        except UndampedError as error:
            raise RunError(f"{self._file}: {error}") from None

    @property
    def metric(self) -> str:
        """What is judged."""
        return self._stored()["metric"]

    @property
    def higher_is_better(self) -> bool:
        """Whether more of it is better."""
        return self._stored()["higher_is_better"]

    @property
    def database(self) -> str | None:
        """The database that knows the trials, without a password; None for the journal."""
        return self._stored()["storage"]

    @property
    def identity(self) -> str:
        """What tells this folder from others of the same name, on this machine or another."""
        return self._stored().get("identity") or platform.node()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the folder while deciding who does what; no training happens meanwhile."""
        with held(self.path / "lock"):
            yield

    def trial(self, number: int) -> Path:
        """Return the folder of a trial."""
        return self.path / "trials" / f"{number:04d}"

    def _trial_folders(self) -> list[Path]:
        return sorted((self.path / "trials").iterdir())

    def run(self, number: int) -> Run | None:
        """Return the run of a trial; None where none has begun."""
        found = sorted(self.trial(number).glob("*/run.json"), key=lambda path: path.parent.name)
        return Run.open(found[-1].parent) if found else None
