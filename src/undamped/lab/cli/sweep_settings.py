"""The settings of a sweep: those that are fixed for all trials, and those that are searched.

`model.dt=0.01..0.5:log` and `model.hidden_size=32,64` are searched, `train.steps=500` is fixed. The
same keys can be in a TOML file; those that are searched, and `trials`, `sampler` and `pruner`, are
in its table `[sweep]`.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from undamped.lab.cli.settings import SECTIONS, Settings, read_settings, read_toml
from undamped.lab.sweeps.plan import Plan, Pruner, Sampler
from undamped.lab.sweeps.space import Choices, Range, read_space
from undamped.lab.training.options import TrainOptions
from undamped.models.for_task import check_options, model_options

TRIALS = 20


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
