"""What to try after a training: commands that fit the run's task and model."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from undamped.lab.training.run import Run


def next_steps(run: Run) -> list[str]:
    """Suggest commands that make sense after this run."""
    from undamped.lab.tasks import optional

    settings, task = run.settings, run.task()
    name, model = settings["task"]["name"], settings["model"]["name"]
    others = baselines_for(model)
    if "preparation" in settings and "file" in settings["task"]["options"]:
        return _with_recordings(run, model, others)
    steps, asked = [], _asked_of(name, settings["task"]["options"])
    if others:
        words = ["undamped compare", name, model, *others, *asked.values(), "--seeds 3"]
        steps.append(" ".join(words))
    for option, value in optional.harder(task).items():
        harder = {**asked, option: f"task.{option}={value}"}
        steps.append(" ".join(["undamped train", name, model, *harder.values()]))
    if optional.continues_text(task):
        steps.append(f"undamped predict {run.path} --prompt h --length 20")
    elif task.sequential:
        steps.append(f"undamped predict {run.path}")
    else:
        steps.append(" ".join(["undamped train", name, model, *asked.values(), "train.steps=2000"]))
    return [*steps, f"undamped show {model}"]


def _asked_of(name: str, options: dict[str, Any]) -> dict[str, str]:
    """Return the words that make the same task again: those that differ from its defaults."""
    from undamped._base.options import options_of
    from undamped._base.registry import tasks

    usual = {key: option.default for key, option in options_of(tasks[name]).items()}
    return {
        key: shlex.quote(f"task.{key}={_written(value)}")
        for key, value in options.items()
        if key != "seed" and value is not None and _written(value) != _written(usual.get(key))
    }


def baselines_for(model: str) -> list[str]:
    """Return common baselines of the same kind as a model, without importing all models."""
    from undamped._base.registry import models
    from undamped.lab.training.recipes import common_baselines, recipe_of

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
    from undamped._base.registry import models

    module = models.index.get(model, "").partition(":")[0]
    return ".".join(module.split(".")[: 2 if module.startswith("undamped.nn") else 3])


def _kind_of_model(name: str) -> tuple[Any, ...]:
    """Return what a model reads and predicts; models of the same kind can be compared."""
    from undamped._base.registry import models
    from undamped.models.continuous.images import ImageModel
    from undamped.models.irregular.network import TimestampedNetwork
    from undamped.models.task_model import TaskModel, answers_of
    from undamped.nn.recurrent import Recurrent

    model: Any = models[name]
    is_task_model = issubclass(model, TaskModel)
    reads_series = is_task_model and model.sequential and "vectors" in model.input_kinds
    recurrent = issubclass(model, Recurrent) or reads_series
    bases = (issubclass(model, base) for base in (ImageModel, TimestampedNetwork))
    return recurrent, *bases, is_task_model and not reads_series, answers_of(model)


def _with_recordings(run: Run, model: str, others: list[str]) -> list[str]:
    from undamped.lab.data.recordings.options import ReadingOptions

    options = dict(run.settings["task"]["options"])
    file = shlex.quote(options.pop("file"))
    options.pop("seed", None)
    settings = {key: shlex.quote(f"{key}={_written(value)}") for key, value in options.items()}
    prepared = run.settings["preparation"]
    if prepared["kind"] == "forecast" and not prepared["timestamps"]:
        named = dict.fromkeys([model, "seasonal-naive", "ridge-lags"])
        return [
            " ".join(["undamped backtest", file, *named, *settings.values()]),
            f"undamped predict {run.path} --figure future.png",
            f"undamped show {model}",
        ]
    reading = [word for key, word in settings.items() if key in ReadingOptions.__annotations__]
    others = _next_best(run.settings.get("tried", []), model, run) or others
    return [
        " ".join(["undamped compare", file, model, *others, *settings.values(), "--seeds 3"]),
        " ".join(["undamped data check", file, *reading]),
        f"undamped predict {run.path} {file}",
        f"undamped show {model}",
    ]


def _next_best(tried: list[dict[str, Any]], model: str, run: Run) -> list[str]:
    """Return the two best of a race behind the model that won it."""
    best: dict[str, float] = {}
    higher = run.task().higher_is_better
    for one in tried:
        if "score" in one and one["model"] != model:
            pick = max if higher else min
            best[one["model"]] = pick(one["score"], best.get(one["model"], one["score"]))
    return sorted(best, key=lambda name: best[name], reverse=higher)[:2]


def _written(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
