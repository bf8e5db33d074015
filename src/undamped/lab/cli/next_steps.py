"""Commands to try after a training, which fit the run's task and model."""

from __future__ import annotations

import shlex
from typing import Any

from undamped._base.options import options_of
from undamped._base.registry import models, tasks
from undamped.lab.cli.screen import as_typed
from undamped.lab.data.recordings.options import ReadingOptions
from undamped.lab.tasks import optional
from undamped.lab.training.portfolio.ensembles import ENSEMBLE
from undamped.lab.training.recipes import common_baselines, recipe_of
from undamped.lab.training.run import Run
from undamped.models.task_model import TaskModel, answers_of


def next_steps(run: Run) -> list[str]:
    """Return commands that make sense after a run."""
    settings, task = run.settings, run.task()
    name, model = settings["task"]["name"], settings["model"]["name"]
    baselines = baselines_for(model)
    if "preparation" in settings and "file" in settings["task"]["options"]:
        return _with_recordings(run, model, baselines)
    steps, options = [], _changed_options(name, settings["task"]["options"])
    if baselines:
        words = ["undamped compare", name, model, *baselines, *options.values(), "--seeds 3"]
        steps.append(" ".join(words))
    for option, value in optional.harder(task).items():
        harder = {**options, option: f"task.{option}={value}"}
        steps.append(" ".join(["undamped train", name, model, *harder.values()]))
    if optional.continues_text(task):
        steps.append(f"undamped predict {run.path} --prompt h --length 20")
    elif task.sequential:
        steps.append(f"undamped predict {run.path}")
    else:
        steps.append(
            " ".join(["undamped train", name, model, *options.values(), "train.steps=2000"])
        )
    return [*steps, f"undamped show {model}"]


def _changed_options(name: str, options: dict[str, Any]) -> dict[str, str]:
    """Return the options of a task that differ from its defaults, as words of a command."""
    defaults = {key: option.default for key, option in options_of(tasks[name]).items()}
    return {
        key: shlex.quote(f"task.{key}={as_typed(value)}")
        for key, value in options.items()
        if key != "seed" and value is not None and as_typed(value) != as_typed(defaults.get(key))
    }


def baselines_for(model: str) -> list[str]:
    """Return common baselines of the same kind as a model, without importing all models."""
    if model not in models:
        return []
    package = _package(model)
    if package == "undamped.nn":
        return sorted(name for name in common_baselines() if name != model)
    candidates = {
        *common_baselines(),
        *(name for name in models if _package(name) in (package, "")),  # "": third-party models
    }
    kind = _kind_of_model(model)
    return [
        name
        for name in sorted(candidates - {model})
        if recipe_of(name).usual_choice and _kind_of_model(name) == kind
    ]


def _package(model: str) -> str:
    """Return the package of a model, such as "undamped.nn"; "" for a third-party model."""
    module = models.index.get(model, "").partition(":")[0]
    return ".".join(module.split(".")[: 2 if module.startswith("undamped.nn") else 3])


def _kind_of_model(name: str) -> tuple[Any, ...]:
    """Return what a model reads and predicts; models of the same kind can be compared."""
    from undamped.models.continuous.images import ImageModel
    from undamped.models.irregular.network import TimestampedNetwork
    from undamped.nn.recurrent import Recurrent

    model: Any = models[name]
    is_task_model = issubclass(model, TaskModel)
    reads_series = is_task_model and model.sequential and "vectors" in model.input_kinds
    recurrent = issubclass(model, Recurrent) or reads_series
    bases = (issubclass(model, base) for base in (ImageModel, TimestampedNetwork))
    return recurrent, *bases, is_task_model and not reads_series, answers_of(model)


def _with_recordings(run: Run, model: str, baselines: list[str]) -> list[str]:
    options = dict(run.settings["task"]["options"])
    file = shlex.quote(options.pop("file"))
    options.pop("seed", None)
    settings = {key: shlex.quote(f"{key}={as_typed(value)}") for key, value in options.items()}
    prepared = run.settings["preparation"]
    if prepared["kind"] == "forecast" and not prepared["timestamps"]:
        names = dict.fromkeys([model, "seasonal-naive", "ridge-lags"])
        return [
            " ".join(["undamped backtest", file, *names, *settings.values()]),
            f"undamped predict {run.path} --figure future.png",
            f"undamped show {model}",
        ]
    reading = [word for key, word in settings.items() if key in ReadingOptions.__annotations__]
    baselines = _runners_up(run.settings.get("tried", []), model, run) or baselines
    return [
        " ".join(["undamped compare", file, model, *baselines, *settings.values(), "--seeds 3"]),
        " ".join(["undamped data check", file, *reading]),
        f"undamped predict {run.path} {file}",
        f"undamped show {model}",
    ]


def _runners_up(attempts: list[dict[str, Any]], model: str, run: Run) -> list[str]:
    """Return the two models of a portfolio that came after the selected one."""
    best: dict[str, float] = {}
    higher = run.task().higher_is_better
    for attempt in attempts:
        name, score = attempt["model"], attempt.get("score")
        if score is not None and name not in (model, ENSEMBLE):
            best[name] = (max if higher else min)(score, best.get(name, score))
    return sorted(best, key=best.__getitem__, reverse=higher)[:2]
