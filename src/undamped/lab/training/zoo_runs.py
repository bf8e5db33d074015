"""Runs of the zoo: load them, measure their scores again, copy them, and add new ones."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from undamped._base.errors import OptionError, RunError
from undamped._base.options import options_of
from undamped._base.registry import tasks
from undamped.lab.files import write_json
from undamped.lab.training.evaluation import evaluate, with_full_history
from undamped.lab.training.run import Run
from undamped.lab.zoo import FILES, ZOO, checksums, zoo_folder, zoo_index
from undamped.models.for_task import model_options

MAX_BYTES = 100_000
"""Size of the largest entry, because all entries are part of the wheel."""


def load(name: str) -> Run:
    """Return a trained model of the zoo, with its task, settings, curve and scores, as a run.

    The files come with the library, and their checksums are verified. `undamped zoo` lists the
    names, which commands such as `undamped diagnose` accept in place of a run folder.

    Args:
        name: The name of the entry.

    Example:
        >>> run = undamped.load("flags-latch")
        >>> model, task = run.model(), run.task()
    """
    return Run.open(zoo_folder(name))


def measure(run: Run, batches: int | None = None) -> dict[str, dict[str, float]]:
    """Return the metric of a run on each test split by its name, measured again.

    Args:
        run: The run.
        batches: The number of batches to use, of the first split alone; by default all data.
    """
    model, size = run.model(), run.train_options().batch_size
    splits = with_full_history(model, run.task()).test_tasks()
    if batches is not None:
        splits = dict([*splits.items()][:1])
    return {
        name: {task.metric: evaluate(model, task, "test", size, batches=batches).metric}
        for name, task in splits.items()
    }


def differences(
    name: str, tolerance: float = 0.01, *, part: bool = False, zoo: Path = ZOO
) -> list[str]:
    """Measure an entry again, and return a sentence for each score that differs.

    Args:
        name: The name of the entry.
        tolerance: The largest relative difference, since machines round differently.
        part: Whether to use the first batch of the first test split only.
        zoo: The folder of the zoo.
    """
    entry = zoo_index(zoo)[name]
    scores = measure(Run.open(zoo_folder(name, zoo)), 1 if part else None)
    return [
        f"{name}: {metric} on '{split}' is {scores[split][metric]:.6g}, "
        f"but the zoo has {stored:.6g}."
        for split, metrics in entry["part" if part else "scores"].items()
        for metric, stored in metrics.items()
        # Also true if a score is not a number.
        if not math.isclose(scores[split][metric], stored, rel_tol=tolerance)
    ]


def find(task: str, model: str, settings: Mapping[str, Any]) -> str:
    """Return the name of the only entry with this task, this model and these settings.

    Args:
        task: The name of the task.
        model: The name of the model.
        settings: Values by their names on the command line, such as "task.delay" or "seed".
    """
    index = zoo_index()
    names = [n for n, entry in index.items() if (entry["task"], entry["model"]) == (task, model)]
    matches = [name for name in names if _has(load(name), settings)]
    if len(matches) == 1:
        return matches[0]
    same = ", ".join(matches or names) or "none"
    raise OptionError(
        f"--from-zoo needs settings that exactly one entry has, got those of {len(matches)}. "
        f"Entries of '{model}' on '{task}': {same}."
    )


def _has(run: Run, settings: Mapping[str, Any]) -> bool:
    """Return whether a run was made with these settings."""
    stored = run.settings
    task, model = stored["task"], stored["model"]
    used = {"seed": stored["seed"], **{f"train.{k}": v for k, v in stored["train"].items()}}
    for section, options, declared in (
        ("task", task["options"], options_of(tasks[task["name"]])),
        ("model", model["options"], model_options(model["name"])),
    ):
        defaults = {key: option.default for key, option in declared.items()}
        used |= {f"{section}.{key}": value for key, value in {**defaults, **options}.items()}
    return all(_plain(used.get(key)) == _plain(value) for key, value in settings.items())


def _plain(value: Any) -> Any:
    """Return a value as JSON has it, in which a tuple is a list."""
    return json.loads(json.dumps(value, default=str))


def copy_run(name: str, out: str | Path) -> Run:
    """Copy an entry to a new run folder in `out`, which can be changed.

    Args:
        name: The name of the entry.
        out: The parent of the new folder.
    """
    source = load(name)
    settings = source.settings
    run = Run.create(out, f"{settings['task']['name']}-{settings['model']['name']}")
    for file in FILES:
        shutil.copyfile(source.path / file, run.path / file)
    return Run.open(run.path)


def pack(folder: str | Path, name: str, about: str, paper: str = "", zoo: Path = ZOO) -> None:
    """Add a finished run to the zoo of a source tree: weights, settings and curve.

    Args:
        folder: The run folder.
        name: The name of the new entry; an entry with this name is replaced.
        about: A sentence about the entry.
        paper: The value of a paper and its source, if there is one for these settings.
        zoo: The folder of the zoo.
    """
    run = Run.open(folder)
    settings, result = run.settings, run.result
    if result is None:
        raise RunError(f"{run.path} is not finished. Continue it with 'undamped resume'.")
    if not re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", name):
        raise OptionError(f"The name of an entry has letters, digits and hyphens, got '{name}'.")
    size = sum((run.path / file).stat().st_size for file in FILES)
    if size > MAX_BYTES:
        raise OptionError(f"An entry must have at most {MAX_BYTES:,} bytes, got {size:,}.")
    task, splits = run.task(), run.task().test_tasks()
    entry: dict[str, Any] = {
        "about": about,
        "task": settings["task"]["name"],
        "model": settings["model"]["name"],
        "scores": {name: {t.metric: result[name][t.metric]} for name, t in splits.items()},
        "chance": {task.metric: task.chance.metric},
        "part": measure(run, 1),
        "paper": paper,
        "parameters": settings["model"]["parameters"],
        "cpu_seconds": result["cpu_seconds"],
        "bytes": size,
        "command": settings["command"],
        "sha256": checksums(run.path),
    }
    (zoo / name).mkdir(parents=True, exist_ok=True)
    for file in FILES:
        shutil.copyfile(run.path / file, zoo / name / file)
    index = zoo_index(zoo) if (zoo / "index.json").exists() else {}
    write_json(zoo / "index.json", dict(sorted({**index, name: entry}.items())))
