"""Trainings of an experiment that are not made twice.

An experiment of many trainings is stopped and started again. A run in the folder that was made
with the same settings is taken if it is finished, and gone on with if it is not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from undamped._base.errors import RunError
from undamped.lab.training import Run, fit, resume
from undamped.lab.training.fit import AUTO


def kept_fit(
    model: str,
    task: str,
    *,
    model_options: Mapping[str, Any],
    task_options: Mapping[str, Any],
    train: Mapping[str, Any],
    seed: int,
    out: str | Path,
    tell: Callable[[str], None] | None = None,
) -> Run:
    """Train a model on a task, unless that has been done.

    Args:
        model: Registry name of the model.
        task: Registry name of the task.
        model_options: Options of the network.
        task_options: Options of the task.
        train: Options of training.
        seed: Where all random numbers come from.
        out: The folder for the runs.
        tell: Called now and then with a line that says how it goes.

    Raises:
        KeyboardInterrupt: The training was stopped; the same call goes on with it.
    """
    settings = {"model": model_options, "task": task_options, "train": train, "seed": seed}
    command = f"reproduce: {model} on {task} {json.dumps(settings, sort_keys=True)}"
    # The run of a race bears the name of its winner.
    run = _found(Path(out), f"{task}-{'*' if model == AUTO else model}", command)
    if run is None:
        run = fit(
            model,
            task,
            model_options=model_options,
            task_options=task_options,
            train=train,
            seed=seed,
            out=out,
            progress=tell or False,
            command=command,
        )
    elif run.settings["status"] != "finished":
        run = resume(run.path, progress=tell or False)
    if run.settings["status"] != "finished":
        raise KeyboardInterrupt
    return run


def _found(out: Path, name: str, command: str) -> Run | None:
    for path in sorted(out.glob(f"{name}-*")):
        try:
            run = Run.open(path)
            settings = run.settings
        except RunError:  # a folder that was just made, or something else
            continue
        usable = settings["status"] == "finished" or run.checkpoint.exists()
        if settings.get("command") == command and usable and settings["status"] != "failed":
            return run
    return None
