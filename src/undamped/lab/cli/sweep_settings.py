"""The settings of a sweep: those that hold for all trials, and those that vary.

`model.dt=0.01..0.5:log` varies, `model.hidden_size=32,64` too, `train.steps=500` does not. The same
keys may stand in a TOML file, below `[sweep]` what varies and `trials`, `sampler`, `pruner`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from undamped._base.errors import OptionError, explain
from undamped._base.options import PositiveInt, check, convert, describe, options_of, unknown_name
from undamped._base.registry import models, tasks
from undamped.lab.cli.setting_names import PARTS
from undamped.lab.cli.settings import Settings, read_settings, read_toml
from undamped.lab.sweeps.plan import Plan, Pruner, Sampler
from undamped.lab.sweeps.space import Choices, Range, read_space
from undamped.lab.training.options import TrainOptions
from undamped.models.for_task import check_options, model_options

TRIALS = 20


@dataclass(frozen=True)
class SweepSettings:
    """What was asked for.

    Args:
        plan: What the sweep is about.
        trials: How many trials there are to be.
        settings: The settings that hold for all trials.
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
    """Read the words of `undamped sweep`, over those of a configuration file.

    Args:
        words: Task, model, settings.
        config: A TOML file.
        trials: How many trials, if it was said.
        sampler: How settings are chosen, if it was said.
        pruner: Which trainings end early, if it was said.
    """
    content = {} if config is None else read_toml(config)
    table = content.pop("sweep", {})
    if not isinstance(table, Mapping):
        raise _refused("[sweep]", "a table of settings", table, "Write [sweep] above its keys.")
    own = {key: table[key] for key in ("trials", "sampler", "pruner") if key in table}
    space = {k: v for k, v in _flat(table).items() if k not in own}
    rest, varies = split_words(words)
    settings = read_settings(rest, config, content)
    task, model = _names(settings)
    space |= varies
    lists = {key: space.pop(key) for key in list(space) if _is_list(key, task, model, space[key])}
    for key, value in lists.items():
        part, _, name = key.partition(".")
        settings.parts.setdefault(part, {})[name] = value
    if not space:
        raise _refused(
            "sweep",
            "at least one setting that varies",
            "none",
            "For example train.learning_rate=1e-4..1e-1:log.",
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
        {part: dict(values) for part, values in fixed.items() if values},
        space,
        settings.seed,
        convert(Sampler, sampler or own.get("sampler", "tpe"), "--sampler", text=True),
        convert(Pruner, pruner or own.get("pruner", "median"), "--pruner", text=True),
    )
    count = trials if trials is not None else own.get("trials", TRIALS)
    return SweepSettings(plan, convert(PositiveInt, count, "--trials"), settings)


def split_words(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return the words that hold for all trials, and what varies by name.

    Args:
        words: The words of a command line.
    """
    fixed, varies = [], {}
    for word in words:
        key, equals, value = word.partition("=")
        if equals and "." in key and read_space(key, value) is not None:
            varies[key.strip()] = value.strip()
        else:
            fixed.append(word)
    return fixed, varies


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return `[sweep.model] dt` as `model.dt`."""
    found = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= {f"{key}.{name}": entry for name, entry in value.items()}
        else:
            found[key] = value
    return found


def _names(settings: Settings) -> tuple[str, str]:
    if len(settings.names) != 2:
        raise _refused(
            "sweep",
            "a task and a model",
            " ".join(settings.names) or "nothing",
            "For example: undamped sweep digits unicornn model.dt=0.01..0.5:log.",
        )
    task, model = settings.names
    return (tasks[task] and task), (models[model] and model)


def _options(key: str, task: str, model: str) -> tuple[str, Mapping[str, Any], str]:
    """Return whose setting it is, what may be set there, and its name."""
    part, dot, name = key.partition(".")
    if not dot or (part not in PARTS and part != model):
        raise unknown_name("part of the settings", part, [*PARTS, model])
    if part == "task":
        return task, options_of(tasks[task]), name
    if part == "train":
        return "train", options_of(TrainOptions), name
    return model, model_options(model), name


def _is_list(key: str, task: str, model: str, value: Any) -> bool:
    """Whether a setting takes a list, so that a comma does not separate choices."""
    _, known, name = _options(key, task, model)
    if name not in known or not isinstance(read_space(key, value), Choices):
        return False
    return "list" in describe(known[name].annotation)


def check_space(key: str, value: Any, task: str, model: str) -> None:
    """Refuse what no trial could be given, before the first one.

    Args:
        key: The setting.
        value: What varies.
        task: The task's name.
        model: The model's name.
    """
    owner, known, name = _options(key, task, model)
    if name not in known:
        raise unknown_name(f"option of {owner}", name, list(known))
    space = read_space(key, value)
    if space is None:
        raise _refused(
            key, "a range or choices, since it stands below [sweep]", value, "Write low..high."
        )
    ends = [space.low, space.high] if isinstance(space, Range) else list(space.values)
    for end in ends:
        if owner == "train":
            check("train", TrainOptions, {name: end}, text=True)
        elif owner == task:
            check(task, tasks[task], {name: end}, text=True)
        else:
            check_options(model, {name: end}, text=True)


def _refused(what: str, expected: str, got: Any, remedy: str) -> OptionError:
    return OptionError(explain(what, expected=expected, got=got, remedy=remedy))
