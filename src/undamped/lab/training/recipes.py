"""Default settings of a task and a model.

A task may have settings for all models or for one (`Task.recipes`), and suggest some from its data
(`Task.suggest`); a model may have settings for all tasks (`recipe_of`). They are merged here, and
the options of the user override all of them.

Hyperparameters of papers have names, `undamped train ucr linoss recipe=linoss-paper`. They override
all recommended settings; the options of the user override them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from undamped._base.contract import TaskShape
from undamped._base.errors import OptionError
from undamped._base.options import Option, convert, options_of, unknown_name
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

_TWO_BLOCKS: Settings = {"model": {"num_layers": 2, "block": "layer-norm"}}
_TWO_LAYERS: Settings = {"model": {"num_layers": 2}}
_OSCILLATORS = {"model.dt": "0.01..0.5:log", "model.alpha": "0.1..20:log"}
# The largest rate of the LinOSS papers. Tasks may recommend ten times as much. Then squared
# frequencies become negative within a few steps, and such an oscillator drifts without bound.
_LINOSS_RATE = 1e-3
DEFAULT_BUDGET = {"steps": 1000}


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
    "rnn-orth": Recipe(advice="start from an orthogonal recurrent matrix, which keeps every norm"),
    "s4d": Recipe(_TWO_BLOCKS),
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


@dataclass(frozen=True)
class _Row:
    """A row of the table of hyperparameters of LinOSS."""

    blocks: int
    features: int
    oscillators: int
    rate: float
    method: str = "im"
    batch: int = 32


_LINOSS = {
    "EigenWorms": _Row(2, 128, 64, 1e-3, batch=4),
    "SelfRegulationSCP1": _Row(6, 128, 256, 1e-4),
    "SelfRegulationSCP2": _Row(6, 64, 256, 1e-5, method="imex"),
    "EthanolConcentration": _Row(4, 16, 16, 1e-5),
    "Heartbeat": _Row(6, 16, 16, 1e-3),
    "MotorImagery": _Row(2, 128, 16, 1e-5),
}


def _linoss(options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the settings of T. K. Rusch and D. Rus for a data set of the UEA archive.

    They use batch normalisation, the mean over time, Adam with a constant learning rate, validation
    every 1,000 steps and early stopping after ten validations without improvement. Here there is
    no channel with the time of a sample, which most of their data sets have, and a dropout mask is
    the same for all steps of a sequence.
    """
    dataset = str(options.get("dataset", "none"))
    if dataset not in _LINOSS:
        raise OptionError(
            f"recipe=linoss-paper has settings for the data sets {', '.join(_LINOSS)} only, got "
            f"task.dataset={dataset}. Omit the recipe for others."
        )
    row = _LINOSS[dataset]
    return {
        "task": {"split": "stratified"},
        "linoss": {
            "num_layers": row.blocks,
            "hidden_size": row.features,
            "oscillators": row.oscillators,
            "method": row.method,
            "block": "batch-norm",
            "dropout": 0.05,
            "readout": "mean",
        },
        "train": {
            "learning_rate": row.rate,
            "batch_size": row.batch,
            "steps": 100_000,
            "validate_every": 1000,
            "patience": 10,
        },
    }


PRINTED = {"linoss-paper": ("ucr", "linoss", _linoss)}
"""By name: the task, the model, and a function from the options of the task to settings."""


def with_printed(
    recipe: str, names: list[str], parts: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Add the settings of a paper to the options of the user.

    Args:
        recipe: The name of the settings.
        names: The names of the task and the models.
        parts: The options of the user by "task", "model", "train" or the name of a model.
    """
    if recipe not in PRINTED:
        raise unknown_name("recipe", recipe, list(PRINTED))
    task, model, settings = PRINTED[recipe]
    if names[:1] != [task] or model not in names[1:]:
        raise OptionError(
            f"recipe={recipe} is for the task {task} and the model {model}, got "
            f"{' '.join(names) or 'neither'}. For example: undamped train {task} {model} "
            f"recipe={recipe}."
        )
    printed = settings(parts.get("task", {}))
    user_options = {**parts, model: {**parts.get("model", {}), **parts.get(model, {})}}
    if any(budget in user_options.get("train", {}) for budget in BUDGETS):
        del printed["train"]["steps"]
    defaults = {
        part: {k: v for k, v in values.items() if k not in user_options.get(part, {})}
        for part, values in printed.items()
    }
    return parts | {part: {**values, **parts.get(part, {})} for part, values in defaults.items()}
