"""A run is a folder that describes a training, with its result.

`run.json` has everything that is needed to repeat it, `metrics.csv` the curves, `model.safetensors`
the best weights, and `checkpoints/` what is needed to resume. Nothing in it is ever unpickled.
"""

from __future__ import annotations

import contextlib
import copy
import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from undamped._base.contract import TaskShape
from undamped._base.errors import OptionError, RunError, UndampedError, shortened
from undamped._base.options import NonNegativeInt, check, convert, options_of
from undamped._base.registry import models, tasks
from undamped.lab.data.recordings.bands import Bands
from undamped.lab.data.recordings.preparation import Preparation
from undamped.lab.files import read_json, read_tensors, write_json, write_tensors, write_text
from undamped.lab.tasks.task import Task
from undamped.lab.training.options import TrainOptions
from undamped.lab.training.origins import check_origins
from undamped.lab.zoo import ZOO, zoo_folder, zoo_index
from undamped.models.for_task import model_for, model_options
from undamped.models.task_model import TaskModel

FORMAT = 1
_ABSENT = object()
_TYPES: dict[str, Any] = {
    "status": str,
    "command": str | None,
    "seed": NonNegativeInt,
    "task": Mapping[str, Any],
    "task.name": str,
    "task.options": Mapping[str, Any],
    "model": Mapping[str, Any],
    "model.name": str,
    "model.options": Mapping[str, Any],
    "model.shape": Mapping[str, Any] | None,
    "train": Mapping[str, Any],
    "versions": Mapping[str, Any],
    "outside": Sequence[Mapping[str, Any]],
    "preparation": Mapping[str, Any] | None,
    "bands": Mapping[str, Any] | None,
    "columns": Mapping[str, Any] | None,
    "answer_names": Sequence[str] | None,
    "result": Mapping[str, Any] | None,
    "found": Sequence[str],
    "tried": Sequence[Mapping[str, Any]],
    "why": str,
    "updates": Sequence[Mapping[str, Any]],
    "updated_from": str,
    "profile": Mapping[str, Any],
}
"""The types of the entries of run.json, which are checked when it is read."""
_REQUIRED = ("status", "seed", "task.name", "task.options", "model.name", "model.options", "train")


@dataclass
class _Cache:
    """The task and the settings of a run that were built or read before."""

    task: Task | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    version: tuple[int, int, int] | None = None  # of the run.json that `settings` was read from


@dataclass(frozen=True)
class Run:
    """A run folder.

    run.json is read again only when it has changed, and the task is built once: its data may be
    a large file.

    Args:
        path: The folder.
    """

    path: Path
    _cache: _Cache = field(default_factory=_Cache, init=False, repr=False, compare=False)

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Open an existing run; raise a `RunError` if it is missing or damaged.

        Args:
            path: The folder, or the name of an entry of the zoo.
        """
        folder = cls.folder_of(path)
        if not folder.exists():
            raise RunError(f"No such run folder: {folder}")
        if not (folder / "run.json").is_file():
            raise RunError(
                f"{folder} is not a run folder, since it has no run.json. Name a folder that "
                "'undamped train' created."
            )
        run = cls(folder)
        settings = run.settings
        for part in _REQUIRED:
            if _entry(settings, part) is _ABSENT:
                raise run._damaged(part)
        return run

    @staticmethod
    def folder_of(path: str | Path) -> Path:
        """Return `path`; if it does not exist, the folder of the zoo's entry with this name."""
        folder, name = Path(path), str(path)
        return zoo_folder(name) if not folder.exists() and name in zoo_index() else folder

    @property
    def output_folder(self) -> Path:
        """The folder of pages and exports: the run's, or the current one for the zoo's runs."""
        return Path() if self.path.resolve().parent == ZOO else self.path

    @classmethod
    def create(cls, out: str | Path, name: str) -> Run:
        """Create a new, empty run folder `name-1`, `name-2`, … in `out`."""
        parent = Path(out)
        try:
            parent.mkdir(parents=True, exist_ok=True)
            suffixes = [path.name.rpartition("-")[2] for path in parent.glob(f"{name}-*")]
            number = max((int(suffix) for suffix in suffixes if suffix.isdigit()), default=0)
            while True:
                number += 1
                folder = parent / f"{name}-{number}"
                try:
                    folder.mkdir()
                except FileExistsError:
                    continue
                (folder / "checkpoints").mkdir()
                return cls(folder)
        except OSError as error:
            reason = error.strerror or "unknown error"
            raise RunError(
                f"Cannot write to the folder {parent} ({reason}). Choose another with --out."
            ) from None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder during training, so that no second process trains in it.

        The lock belongs to the process, and ends with it.
        """
        try:
            import fcntl
        except ModuleNotFoundError:  # not a POSIX system
            yield
            return
        with (self.path / "checkpoints" / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RunError(
                    f"Another process is training {self.path}. Wait for it, or stop it."
                ) from None
            yield

    # Files of the folder

    @property
    def settings(self) -> dict[str, Any]:
        """A copy of everything in run.json."""
        path, cache = self.path / "run.json", self._cache
        version = _file_version(path)
        if version is None or version != cache.version:
            cache.settings, cache.version = _read_settings(path), version
        return copy.deepcopy(cache.settings)

    def _damaged(self, part: str) -> RunError:
        return RunError(
            f"{self.path / 'run.json'}: {part} is missing or damaged. Restore the file from a "
            "copy, or train again."
        )

    @contextlib.contextmanager
    def _reading(self, part: str) -> Iterator[None]:
        """Turn any error about a part of run.json into one that names the file and the part."""
        try:
            yield
        except UndampedError as error:
            raise RunError(f"{self.path / 'run.json'}: {error}") from None
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
            raise self._damaged(part) from None

    def update(self, **changes: Any) -> None:
        """Change entries of run.json."""
        path = self.path / "run.json"
        before = self.settings if path.exists() else {}
        write_json(path, {"format": FORMAT, **before, **changes})

    @property
    def result(self) -> dict[str, Any] | None:
        """The result, or None while the run is not finished."""
        return self.settings.get("result")

    @property
    def shape(self) -> TaskShape:
        """The shape of the task that the model was built for."""
        stored = self.settings["model"].get("shape")
        if not stored:
            return self.task().task_shape
        name = self.settings["task"]["name"]
        with self._reading("model.shape"):
            if "answer" not in stored and stored["output_size"] and name in tasks:
                stored["answer"] = tasks[name].answer  # of runs of earlier versions
            return TaskShape.from_dict(stored)

    @property
    def checkpoint(self) -> Path:
        """The file from which an interrupted run is resumed."""
        return self.path / "checkpoints" / "last.safetensors"

    def metrics(self) -> list[dict[str, float]]:
        """Return the rows of metrics.csv, without values that were not measured."""
        try:
            text = (self.path / "metrics.csv").read_text(encoding="utf-8")
            rows = [
                {name: float(value) for name, value in row.items() if value not in ("", None)}
                for row in csv.DictReader(io.StringIO(text), strict=True)
            ]
            if not all(math.isfinite(row.get("step", 0)) for row in rows):
                raise ValueError("a step is not a number")
            return rows
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError, csv.Error):
            raise RunError(
                f"{self.path / 'metrics.csv'} is damaged. Restore it from a copy; the weights are "
                "not affected."
            ) from None

    def write_metrics(self, rows: list[dict[str, float]]) -> None:
        """Replace metrics.csv."""
        names = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        table = csv.DictWriter(text, names, restval="", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
        write_text(self.path / "metrics.csv", text.getvalue())

    # Model and task

    def task(self) -> Task:
        """Return the task of the run, which is built from run.json at the first call."""
        task = self._cache.task
        if task is None:
            entry = self.settings["task"]
            if entry["name"] not in tasks:
                check_origins(str(self.path), self.settings, f"the task '{entry['name']}'")
            task_class = tasks[entry["name"]]
            for name, option in options_of(task_class).items():
                if option.required and name not in entry["options"]:
                    raise self._damaged(f"task.options.{name}")
            task = task_class(**check(entry["name"], task_class, entry["options"]))
            self.set_task(task)
        return task

    def set_task(self, task: Task) -> None:
        """Set the task of the run, so that it is not built again."""
        self._cache.task = task

    def empty_model(self) -> TaskModel:
        """Build the model of the run with fresh weights."""
        settings = self.settings
        name = settings["model"]["name"]
        absent = f"the model '{name}'" if name not in models else None
        check_origins(str(self.path), settings, absent)
        if name not in models:
            raise RunError(
                f"{self.path}: there is no registered model '{shortened(name)}'. Build the module "
                "and call load_into(module)."
            )
        options = settings["model"]["options"]
        try:
            return model_for(self.shape, name, options)
        except TypeError:
            declared = model_options(name).items()
            for missing in [n for n, o in declared if o.required and n not in options]:
                if missing not in ("input_size", "output_size"):  # they follow from the shape
                    raise self._damaged(f"model.options.{missing}") from None
            raise

    def preparation(self) -> Preparation | None:
        """Return the preparation of the data, for runs on recordings; None for others."""
        stored = self.settings.get("preparation")
        with self._reading("preparation"):
            return None if stored is None else Preparation.from_dict(stored)

    def bands(self) -> Bands | None:
        """Return the bands of the forecasts of the run; None if it has none."""
        stored = self.settings.get("bands")
        with self._reading("bands"):
            return None if stored is None else Bands.from_dict(stored)

    def train_options(self) -> TrainOptions:
        """Return the training options of the run."""
        with self._reading("train"):
            return TrainOptions(**check("train", TrainOptions, self.settings["train"]))

    def model(self) -> TaskModel:
        """Build the model of the run with its best weights, in evaluation mode."""
        model = self.empty_model()
        self.load_into(model)
        return model.eval()

    def load_into(self, module: nn.Module) -> None:
        """Load the best weights of the run into a module of the same shape."""
        path = self.path / "model.safetensors"
        weights, _ = read_tensors(path)
        load_weights(module, weights, str(path))

    def save_model(self, module: nn.Module) -> None:
        """Save the weights of a module as the best of the run."""
        write_tensors(self.path / "model.safetensors", module.state_dict())


def load_weights(module: nn.Module, weights: dict[str, torch.Tensor], source: str) -> None:
    """Load weights; raise a `RunError` if they do not fit."""
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        first = str(error).splitlines()[-1].strip()
        raise RunError(
            f"{source} does not have the weights of this model: {shortened(first)}"
        ) from None


def _read_settings(path: Path) -> dict[str, Any]:
    settings = read_json(path)
    if not isinstance(settings, dict) or settings.get("format") != FORMAT:
        version = shortened(settings.get("format")) if isinstance(settings, dict) else None
        raise RunError(
            f"{path} must have run format {FORMAT}, got {version}. Use the version of undamped "
            "that made the run."
        )
    for part, annotation in _TYPES.items():
        entry = _entry(settings, part)
        if entry is not _ABSENT:
            try:
                convert(annotation, entry, f"{path}: {part}")
            except OptionError as error:
                raise RunError(str(error)) from None
    return settings


def _entry(settings: Mapping[str, Any], part: str) -> Any:
    """Return an entry of run.json by its path, such as "task.name"; `_ABSENT` if it is missing."""
    entry: Any = settings
    for name in part.split("."):
        if not isinstance(entry, Mapping) or name not in entry:
            return _ABSENT
        entry = entry[name]
    return entry


def _file_version(path: Path) -> tuple[int, int, int] | None:
    """Return a value that changes whenever a file is replaced; None for a missing file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
