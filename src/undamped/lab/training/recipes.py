"""Settings to start from: what was not said comes from the task's recipes and from the data.

A task knows settings that are good for it, for all models or for one (`Task.recipes`), and may
suggest some from its data (`Task.suggest`); a model may want some wherever it is used (`recipe`).
Here they are put over one another, and what a person said over all of them.
"""

from __future__ import annotations

import math
from typing import Any

from undamped._base.errors import OptionError
from undamped._base.options import Option, convert, options_of
from undamped._base.registry import models
from undamped.lab.tasks.task import Settings, Task
from undamped.models.for_task import model_options

ANY = "*"
FOR_ALL: Settings = {"model": {"hidden_size": 128}, "train": {}}
"""What holds for any model on any task that says nothing else."""

EXCLUDES = {
    "bottleneck_size": ("detail", "hidden_layers"),
    "noise": ("trace",),
    "step_size": ("tolerance",),
}
"""Options of models, and those that have no meaning beside them."""

LAST_RESORT = {"steps": 1000}
_BUDGETS = ("steps", "epochs", "seconds", "minutes")


def recommended(task: Task | type[Task], model: str, suggested: Settings | None = None) -> Settings:
    """Return the settings to start from, the more special ones over the more general.

    Args:
        task: The task, or its class.
        model: Name of the model.
        suggested: What the data itself suggests: over what holds for all tasks, under what is
            known to be good for this one.
    """
    settings: Settings = {"model": {}, "task": {}, "train": {}}
    for recipe in (FOR_ALL, _of_model(model, task), suggested or {}, task.recipes.get(ANY, {})):
        _put_over(settings, recipe)
    train, largest = settings["train"], _largest_rate(model)
    if train.get("learning_rate", 0.0) > largest:
        train["learning_rate"] = largest
    _put_over(settings, task.recipes.get(model, {}))
    return settings


def _put_over(settings: Settings, recipe: Settings) -> None:
    for part, values in recipe.items():
        if any(name in values for name in _BUDGETS):
            _forget_budget(settings[part])
        settings[part].update(values)


def _member(model: str) -> Any:
    """Return who knows what a model wants: the cell of a recurrent network, or the model."""
    member = models[model]
    return getattr(member, "cell_class", member)


def _largest_rate(model: str) -> float:
    return getattr(_member(model), "largest_rate", math.inf) if model in models else math.inf


def _of_model(model: str, task: Task | type[Task]) -> Settings:
    """Return what a model wants on any task, as far as this one lets itself be told."""
    if model not in models:
        return {}
    wanted: Settings = getattr(_member(model), "recipe", {})
    known = options_of(task if isinstance(task, type) else type(task))
    of_task = {
        name: value
        for name, value in wanted.get("task", {}).items()
        if name in known and _accepts(known[name], value)
    }
    return {**wanted, "task": of_task} if "task" in wanted else wanted


def _accepts(option: Option, value: Any) -> bool:
    try:
        convert(option.annotation, value, option.name)
    except OptionError:
        return False
    return True


def merged(
    task: Task | type[Task], model: str, given: Settings, suggested: Settings | None = None
) -> Settings:
    """Put what was said over what is recommended.

    A budget that was said replaces the other, and what contradicts something said is dropped:
    nobody should be told of a value that they never gave.
    """
    settings = recommended(task, model, suggested)
    if model in models:
        known = model_options(model)
        settings["model"] = {k: v for k, v in settings["model"].items() if k in known}
    for name, others in EXCLUDES.items():
        if given.get("model", {}).get(name):
            for other in others:
                settings["model"].pop(other, None)
    if any(name in given.get("train", {}) for name in _BUDGETS):
        _forget_budget(settings["train"])
    for part, values in given.items():
        settings[part].update(values)
    if not any(name in settings["train"] for name in _BUDGETS):
        settings["train"].update(LAST_RESORT)
    return settings


def _forget_budget(settings: dict[str, Any]) -> None:
    for name in _BUDGETS:
        settings.pop(name, None)
