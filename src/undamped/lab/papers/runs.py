"""Trainings of experiments that are reused, and groups of options that experiments share.

An experiment of many trainings can be interrupted and started again: a finished run in the output
folder with the same settings is reused, and an unfinished one is resumed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypedDict

from undamped._base.errors import RunError
from undamped._base.options import Default, NonNegativeInt, unknown_name
from undamped._base.registry import experiments
from undamped.lab.report.table import Progress, reports, silent
from undamped.lab.training import Run, fit, resume
from undamped.lab.training.fit import AUTO

experiment = partial(reports, experiments)
"""Return a decorator that registers an experiment."""


class RunOptions(TypedDict):
    """Options of experiments that train models."""

    out: Annotated[
        str, Default("runs", "Folder for the runs; finished trainings in it are reused.")
    ]
    progress: Annotated[
        Progress,
        Default(silent, "Called with a line of text and, if it is known, the finished fraction."),
    ]


class SeedOptions(RunOptions):
    """Options of experiments that train every model once."""

    seed: Annotated[NonNegativeInt, Default(0, "Seed of all random numbers.")]


def fit_once(
    model: str,
    task: str,
    *,
    model_options: Mapping[str, Any],
    task_options: Mapping[str, Any],
    train: Mapping[str, Any],
    seed: int,
    out: str | Path,
    progress: Progress | None = None,
) -> Run:
    """Train a model on a task, or return the run of an earlier training with the same settings.

    Args:
        model: Registry name of the model.
        task: Registry name of the task.
        model_options: Options of the network.
        task_options: Options of the task.
        train: Options of training.
        seed: Seed of all random numbers.
        out: The folder for the runs.
        progress: Called with a line of text from time to time.

    Raises:
        KeyboardInterrupt: The training was interrupted; the same call resumes it.
    """
    settings = {"model": model_options, "task": task_options, "train": train, "seed": seed}
    command = f"reproduce: {model} on {task} {json.dumps(settings, sort_keys=True)}"
    # The run of `auto` has the name of the selected model.
    run = _earlier_run(Path(out), f"{task}-{'*' if model == AUTO else model}", command)
    if run is None:
        run = fit(
            model,
            task,
            model_options=model_options,
            task_options=task_options,
            train=train,
            seed=seed,
            out=out,
            progress=progress or False,
            command=command,
        )
    elif run.settings["status"] != "finished":
        run = resume(run.path, progress=progress or False)
    if run.settings["status"] != "finished":
        raise KeyboardInterrupt
    return run


def _earlier_run(out: Path, name: str, command: str) -> Run | None:
    for path in sorted(out.glob(f"{name}-*")):
        try:
            run = Run.open(path)
            settings = run.settings
        except RunError:  # a folder that another process has just created, or not a run
            continue
        usable = settings["status"] == "finished" or run.checkpoint.exists()
        if settings.get("command") == command and usable and settings["status"] != "failed":
            return run
    return None


def prefixed(progress: Progress, prefix: str, *fraction: float) -> Progress:
    """Return a progress function that puts a prefix before every line.

    Args:
        progress: The function of the whole experiment.
        prefix: What is trained.
        fraction: The finished fraction of the experiment, if it is known.
    """
    return lambda line: progress(f"{prefix}: {line}", *fraction)


def check_names(kind: str, names: Sequence[str], choices: Sequence[str]) -> None:
    """Raise an error for the first name that is not one of the choices."""
    for name in names:
        if name not in choices:
            raise unknown_name(kind, name, list(choices))


def unique(values: Any) -> list[Any]:
    """Return the different values in the order of their first appearance."""
    return list(dict.fromkeys(values))
