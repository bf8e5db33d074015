"""The settings of a sweep, and `undamped compare --sweep`, which tunes every model.

`model.dt=0.01..0.5:log` and `model.hidden_size=32,64` are searched, `train.steps=500` is fixed for
all trials. The same keys can be in a TOML file; those that are searched, and `trials`, `sampler`
and `pruner`, are in its table `[sweep]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from undamped._base.errors import OptionError
from undamped._base.options import (
    PositiveInt,
    check_against,
    convert,
    describe,
    options_of,
    unknown_name,
)
from undamped._base.registry import models, tasks
from undamped.lab.baselines.closed_form import ClosedFormModel
from undamped.lab.cli.progress import sweep_progress
from undamped.lab.cli.settings import SECTIONS, Settings, read_settings, read_toml
from undamped.lab.sweeps.folder import SweepFolder
from undamped.lab.sweeps.plan import Choices, Plan, Pruner, Range, Sampler, read_space
from undamped.lab.sweeps.sweep import Progress, sweep
from undamped.lab.sweeps.trials import Trial, best_of
from undamped.lab.tasks.task import Task
from undamped.lab.training.options import TrainOptions
from undamped.lab.training.recipes import recipe_of
from undamped.models.for_task import check_options, model_options

RATES = {"train.learning_rate": "3e-4..3e-2:log"}
"""The search space of every model that is trained by gradient descent."""

TRIALS = 20


def default_space(model: str) -> dict[str, Any]:
    """Return the default search space of a model: the learning rate, and that of its recipe.

    It is empty for closed-form models, which select their hyperparameters themselves.

    Args:
        model: The name of the model.
    """
    cls = models[model]
    if isinstance(cls, type) and issubclass(cls, ClosedFormModel):
        return {}
    return {**RATES, **recipe_of(model).sweep_space}


def tune(
    plan: Plan,
    task: Task,
    trials: int,
    out: Path,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[SweepFolder, Trial | None]:
    """Run a sweep; return its folder and the best trial.

    Args:
        plan: The plan.
        task: The task.
        trials: The number of trials.
        out: The folder of the sweep.
        progress: Called with the progress.
    """
    folder = SweepFolder.join(out, plan, task.metric, task.higher_is_better)
    results = sweep(folder, trials, task=task, progress=progress)
    return folder, best_of(results, task.higher_is_better)


@dataclass(frozen=True)
class SweepSettings:
    """A sweep as the user specified it.

    Args:
        plan: What is searched, and how.
        trials: The number of trials.
        settings: The settings that are fixed for all trials.
    """

    plan: Plan
    trials: int
    settings: Settings


def read_sweep(
    words: list[str],
    config: Path | None,
    trials: int | None,
    sampler: str | None,
    pruner: str | None,
) -> SweepSettings:
    """Read the words of `undamped sweep`, which override a configuration file.

    Args:
        words: Task, model, settings.
        config: A TOML file, or None.
        trials: The number of trials, or None.
        sampler: The search method, or None.
        pruner: The rule for early stopping, or None.
    """
    content = {} if config is None else read_toml(config)
    table = content.pop("sweep", {})
    if not isinstance(table, Mapping):
        raise OptionError(f"{config}: [sweep] must be a table of settings, got {table!r}.")
    options = {key: table[key] for key in ("trials", "sampler", "pruner") if key in table}
    space = {k: v for k, v in _flat(table).items() if k not in options}
    rest, searched = split_words(words)
    settings = read_settings(rest, config, content)
    task, model = _names(settings)
    space |= searched
    lists = {key: space.pop(key) for key in list(space) if _is_list(key, task, model, space[key])}
    for key, value in lists.items():
        section, _, name = key.partition(".")
        settings.sections.setdefault(section, {})[name] = value
    if not space:
        raise OptionError(
            "A sweep needs at least one range or list of choices, for example "
            "train.learning_rate=1e-4..1e-1:log"
        )
    for key, value in space.items():
        check_space(key, value, task, model)
    fixed = {
        "task": settings.task_options(task),
        "model": settings.model_options(model),
        "train": settings.train_options(),
    }
    plan = Plan(
        task,
        model,
        {section: dict(values) for section, values in fixed.items() if values},
        space,
        settings.seed,
        convert(Sampler, sampler or options.get("sampler", "tpe"), "--sampler", text=True),
        convert(Pruner, pruner or options.get("pruner", "median"), "--pruner", text=True),
    )
    count = trials if trials is not None else options.get("trials", TRIALS)
    return SweepSettings(plan, convert(PositiveInt, count, "--trials"), settings)


def split_words(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return the words that are fixed for all trials, and what is searched, by name.

    Args:
        words: The words of a command line.
    """
    fixed, searched = [], {}
    for word in words:
        key, equals, value = word.partition("=")
        if equals and "." in key and read_space(key, value) is not None:
            searched[key.strip()] = value.strip()
        else:
            fixed.append(word)
    return fixed, searched


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return `[sweep.model] dt` as `model.dt`."""
    flat = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{name}": entry for name, entry in value.items()}
        else:
            flat[key] = value
    return flat


def _names(settings: Settings) -> tuple[str, str]:
    if len(settings.names) != 2:
        raise OptionError(
            "'undamped sweep' takes a task and a model, got "
            f"{' '.join(settings.names) or 'nothing'}. For example: undamped sweep digits unicornn "
            "model.dt=0.01..0.5:log"
        )
    task, model = settings.names
    return (tasks[task] and task), (models[model] and model)


def _options(key: str, task: str, model: str) -> tuple[str, Mapping[str, Any], str]:
    """Return the owner of a setting, the options that it has, and the name of the option."""
    section, dot, name = key.partition(".")
    if not dot or (section not in SECTIONS and section != model):
        raise unknown_name("section of the settings", section, [*SECTIONS, model])
    if section == "task":
        return task, options_of(tasks[task]), name
    if section == "train":
        return "train", options_of(TrainOptions), name
    return model, model_options(model), name


def _is_list(key: str, task: str, model: str, value: Any) -> bool:
    """Return whether a setting takes a list, so that a comma does not separate choices."""
    _, options, name = _options(key, task, model)
    if name not in options or not isinstance(read_space(key, value), Choices):
        return False
    return "list" in describe(options[name].annotation)


def check_space(key: str, value: Any, task: str, model: str) -> None:
    """Raise an error for a range that no trial could use, before the first trial.

    Args:
        key: The setting.
        value: The range or the choices.
        task: The name of the task.
        model: The name of the model.
    """
    owner, options, name = _options(key, task, model)
    if name not in options:
        raise unknown_name(f"option of {owner}", name, list(options))
    space = read_space(key, value)
    if space is None:
        raise OptionError(
            f"{key} in [sweep] must be a range or choices, got {value}. Write low..high."
        )
    ends = [space.low, space.high] if isinstance(space, Range) else list(space.values)
    for end in ends:
        if key.startswith(("task.", "train.")):
            check_against(owner, options, {name: end}, text=True)
        else:
            check_options(model, {name: end}, text=True)


def tune_all(
    name: str,
    task: Task,
    fits: dict[str, dict[str, Any]],
    space: dict[str, str],
    trials: int,
    seed: int,
    out: Path,
) -> dict[str, dict[str, Any]]:
    """Tune every model, set its options to the best ones, and return a report per model.

    Args:
        name: The name of the task.
        task: The task.
        fits: The arguments of `fit` for every model; changed in place.
        space: What is searched; `model.…` for all models that have the option, `unicornn.…` for
            one model. If it is empty, each model has a default space.
        trials: The number of trials of each model.
        seed: The seed.
        out: The folder for the sweeps.
    """
    plans = {}
    for model, fit in fits.items():
        fixed = {"task": fit["task_options"], "model": fit["model_options"], "train": fit["train"]}
        searched = _space_of(model, list(fits), space) if space else _default_space(model, fixed)
        for key, value in searched.items():
            check_space(key, value, name, model)
        plans[model] = Plan(name, model, {k: dict(v) for k, v in fixed.items()}, searched, seed)
    reports = {}
    for model, plan in plans.items():
        if not plan.space:
            reports[model] = {"sweep": {"words": "nothing to tune; trained with its options"}}
            continue
        file = plan.fixed["task"].get("file")
        data = name if file is None else Path(str(file)).stem
        with sweep_progress(f"tuning {model}") as progress:
            folder, best = tune(plan, task, trials, out / f"{data}-{model}", progress)
        options = {} if best is None else best.settings
        settings = plan.settings(options)
        fits[model]["model_options"] = settings.get("model", {})
        fits[model]["train"] = settings.get("train", {})
        words = ", ".join(f"{key}={short(value)}" for key, value in options.items())
        reports[model] = {
            "sweep": {
                "trials": trials,
                "folder": str(folder.path),
                "settings": options,
                "words": f"best of {trials} trials: {words or 'none, because all trials failed'}",
            }
        }
    return reports


def short(value: Any) -> str:
    """Return a value of a setting with at most four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _space_of(model: str, names: list[str], space: dict[str, str]) -> dict[str, Any]:
    """Return the space of a model: its own settings, and those of all models that it has."""
    searched = {}
    for key, value in space.items():
        section, _, option = key.partition(".")
        if section in names:
            if section == model:
                searched[f"model.{option}"] = value
        elif section != "model" or option in model_options(model):
            searched[key] = value
    return searched


def _default_space(model: str, fixed: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the default space of a model without the settings that the user fixed."""
    settings = {f"{section}.{name}" for section, values in fixed.items() for name in values}
    return {key: value for key, value in default_space(model).items() if key not in settings}
