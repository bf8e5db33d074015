"""Default settings of a task and a model.

A task may have settings for all models or for one (`Task.recipes`), and suggest some from its data
(`Task.suggest`); a model may have settings for all tasks (`recipe_of`). They are merged here, and
the options of the user override all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from undamped._base.contract import TaskShape
from undamped._base.errors import OptionError
from undamped._base.options import Option, convert, options_of
from undamped._base.registry import models
from undamped.lab.tasks import optional
from undamped.lab.tasks.task import Settings, Task
from undamped.lab.training.options import BUDGETS
from undamped.models.for_task import model_options
from undamped.models.task_model import TaskModel, is_kind, refuse_unfit

ANY = "*"
FOR_ALL: Settings = {"model": {"hidden_size": 128}, "train": {}}
"""Settings for all models on all tasks."""

EXCLUDES = {
    "bottleneck_size": ("detail", "hidden_layers"),
    "noise": ("trace",),
    "step_size": ("tolerance",),
}
"""Options of models, and the options that have no meaning together with them."""


@dataclass(frozen=True)
class Recipe:
    """Settings of the workbench for a model, beyond the options of its constructor.

    Args:
        settings: Settings for all tasks: options by "model", "task", "train".
        largest_rate: The largest learning rate that a task's settings for all models may set.
        sweep_space: What a search varies besides the learning rate, as on the command line.
        usual_choice: Whether it is a common baseline, which is suggested for comparisons.
        advice: Why to prefer it to a similar network that forgets; reports print it.
    """

    settings: Settings = field(default_factory=dict)
    largest_rate: float = math.inf
    sweep_space: Mapping[str, Any] = field(default_factory=dict)
    usual_choice: bool = False
    advice: str = ""


_TWO_BLOCKS: Settings = {"model": {"num_layers": 2, "block": "layer-norm"}}
_TWO_LAYERS: Settings = {"model": {"num_layers": 2}}
_OSCILLATORS = {"model.dt": "0.01..0.5:log", "model.alpha": "0.1..20:log"}
# The largest rate of the LinOSS papers. Tasks may recommend ten times as much. Then squared
# frequencies become negative within a few steps, and such an oscillator drifts without bound.
_LINOSS_RATE = 1e-3

_RECIPES: dict[str, Recipe] = {
    "cornn": Recipe(sweep_space={"model.dt": "0.01..0.2:log", "model.gamma": "0.3..100:log"}),
    "d-linoss": Recipe(_TWO_BLOCKS, _LINOSS_RATE),
    "gru": Recipe(usual_choice=True),
    "linoss": Recipe(_TWO_BLOCKS, _LINOSS_RATE),
    "lru": Recipe(_TWO_BLOCKS),
    "lstm": Recipe(usual_choice=True),
    "mingru": Recipe(_TWO_LAYERS),
    "minlstm": Recipe(_TWO_LAYERS),
    "residual-unicornn": Recipe({"model": {"num_layers": 4}}, sweep_space=_OSCILLATORS),
    "rnn-orth": Recipe(
        advice="start from an orthogonal recurrent matrix, which keeps every norm",
    ),
    "unicornn": Recipe(
        _TWO_LAYERS,
        sweep_space=_OSCILLATORS,
        usual_choice=True,
        advice="take a network of undamped oscillators",
    ),
}


def register_recipe(model: str, recipe: Recipe) -> None:
    """Set the recipe of a model, for instance of a third-party package.

    Args:
        model: The name under which the model is registered.
        recipe: Its settings.
    """
    _RECIPES[model] = recipe


def recipe_of(model: str) -> Recipe:
    """Return the recipe of a model: the registered one, or the attributes of its class."""
    if model in _RECIPES or model not in models:
        return _RECIPES.get(model, Recipe())
    attributes: Any = models[model]
    return Recipe(
        settings=getattr(attributes, "recipe", {}),
        largest_rate=getattr(attributes, "largest_rate", math.inf),
        sweep_space=getattr(attributes, "sweep_space", {}),
        # Of the class itself: a subclass of a common baseline is not one.
        usual_choice=vars(attributes).get("usual_choice", False),
    )


def common_baselines() -> list[str]:
    """Return the models of the table above that are common baselines."""
    return [name for name, recipe in _RECIPES.items() if recipe.usual_choice]


DEFAULT_BUDGET = {"steps": 1000}


def recommended(task: Task | type[Task], model: str, suggested: Settings | None = None) -> Settings:
    """Return the default settings; specific ones override general ones.

    Args:
        task: The task, or its class.
        model: Name of the model.
        suggested: Settings that the data suggests. They override those for all tasks, and the
            recipes of the task override them.
    """
    settings: Settings = {"model": {}, "task": {}, "train": {}}
    for recipe in (
        FOR_ALL,
        _of_model(model, task),
        suggested or {},
        optional.recipes(task).get(ANY, {}),
    ):
        _override(settings, recipe)
    train, largest = settings["train"], recipe_of(model).largest_rate
    if train.get("learning_rate", 0.0) > largest:
        train["learning_rate"] = largest
    _override(settings, optional.recipes(task).get(model, {}))
    return settings


def _override(settings: Settings, recipe: Settings) -> None:
    """Update settings in place; a budget replaces any other budget."""
    for part, values in recipe.items():
        if any(name in values for name in BUDGETS):
            for name in BUDGETS:
                settings[part].pop(name, None)
        settings[part].update(values)


def _of_model(model: str, task: Task | type[Task]) -> Settings:
    """Return a model's settings for all tasks, without options that this task does not accept."""
    settings = recipe_of(model).settings
    if "task" not in settings:
        return settings
    accepted = options_of(task if isinstance(task, type) else type(task))
    task_options = {
        name: value
        for name, value in settings["task"].items()
        if name in accepted and _accepts(accepted[name], value)
    }
    return {**settings, "task": task_options}


def _accepts(option: Option, value: Any) -> bool:
    try:
        convert(option.annotation, value, option.name)
    except OptionError:
        return False
    return True


def refuse_misfit(shape: TaskShape, name: str) -> None:
    """Refuse the model called `name` if it does not fit tasks of a shape, without building it."""
    if is_kind(name, TaskModel):
        refuse_unfit(name, models[name], shape)


def merged(
    task: Task | type[Task], model: str, user_options: Settings, suggested: Settings | None = None
) -> Settings:
    """Return the options of the user over the recommended settings.

    A budget of the user replaces the recommended one, and recommended options that contradict an
    option of the user are dropped, so that no error is about a value that the user never set.
    """
    settings = recommended(task, model, suggested)
    if model in models:
        accepted = model_options(model)
        settings["model"] = {k: v for k, v in settings["model"].items() if k in accepted}
    for name, excluded in EXCLUDES.items():
        if user_options.get("model", {}).get(name):
            for excluded_name in excluded:
                settings["model"].pop(excluded_name, None)
    _override(settings, user_options)
    if not any(name in settings["train"] for name in BUDGETS):
        settings["train"].update(DEFAULT_BUDGET)
    return settings
