"""What to try after a training: commands that fit the run's task and model."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from undamped.lab.cli.verbs.data_check import READING

if TYPE_CHECKING:
    from undamped.lab.training.run import Run


def next_steps(run: Run) -> list[str]:
    """Suggest commands that make sense after this run."""
    settings, task = run.settings, run.task()
    name, model = settings["task"]["name"], settings["model"]["name"]
    others = rivals(model)
    if "preparation" in settings and "file" in settings["task"]["options"]:
        return _with_recordings(run, model, others)
    steps, asked = [], _asked_of(name, settings["task"]["options"])
    if others:
        words = ["undamped compare", name, model, *others, *asked.values(), "--seeds 3"]
        steps.append(" ".join(words))
    for option, value in task.harder().items():
        harder = {**asked, option: f"task.{option}={value}"}
        steps.append(" ".join(["undamped train", name, model, *harder.values()]))
    if task.continues_text:
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


def rivals(model: str) -> list[str]:
    """Return the models that one is usually compared with: they read and answer the same."""
    from undamped._base.registry import models
    from undamped.models.continuous.images import ImageModel
    from undamped.models.irregular.network import StampedNetwork
    from undamped.models.task_model import TaskModel, answers_of
    from undamped.nn.recurrent import Recurrent

    def kind(member: Any) -> tuple[Any, ...]:
        whole = issubclass(member, TaskModel)
        series = whole and member.sequential and "vectors" in member.input_kinds
        recurrent = issubclass(member, Recurrent) or series
        others = (issubclass(member, base) for base in (ImageModel, StampedNetwork))
        return recurrent, *others, whole and not series, answers_of(member)

    if model not in models:
        return []
    chosen = models[model]
    return [
        name
        for name in models
        if name != model
        # Asked of the class itself: what descends from a usual choice is not one.
        and vars(getattr(models[name], "cell_class", models[name])).get("usual_choice")
        and kind(models[name]) == kind(chosen)
    ]


def _with_recordings(run: Run, model: str, others: list[str]) -> list[str]:
    options = dict(run.settings["task"]["options"])
    file = shlex.quote(options.pop("file"))
    options.pop("seed", None)
    settings = {key: shlex.quote(f"{key}={_written(value)}") for key, value in options.items()}
    prepared = run.settings["preparation"]
    if prepared["kind"] == "forecast" and not prepared["stamps"]:
        named = dict.fromkeys([model, "seasonal-naive", "ridge-lags"])
        return [
            " ".join(["undamped backtest", file, *named, *settings.values()]),
            f"undamped predict {run.path} --picture future.png",
            f"undamped show {model}",
        ]
    reading = [word for key, word in settings.items() if key in READING]
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
