"""The grammar of settings: `task.delay=200 model.hidden_size=128 train.steps=2000 seed=3`.

`recipe=NAME` stands for settings that a paper prints. The same keys can be in a TOML file; the
command line takes precedence. A file or folder in place of a task becomes a task, whose options
need no prefix: `data.csv target=label`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from undamped._base.errors import OptionError, UndampedError, UnknownNameError, shortened
from undamped._base.options import (
    NonNegativeInt,
    check,
    check_against,
    convert,
    nearest,
    options_of,
    unknown_name,
)
from undamped._base.registry import models, tasks
from undamped.lab.catalogue import settings_of
from undamped.lab.data.recordings.read import is_data_path
from undamped.lab.training.fit import AUTO
from undamped.lab.training.options import TrainOptions
from undamped.lab.training.portfolio.attempt import check_auto_options
from undamped.lab.training.recipes import with_printed
from undamped.models.for_task import check_options, model_options

SECTIONS = ("task", "model", "train")
FILE_TASKS = ("recordings", "trajectories", "picture-sequences")
"""Tasks that read files of the user, whose options need no prefix."""


@dataclass
class Settings:
    """The names and settings of a command; a section is one of `SECTIONS` or a model."""

    names: list[str] = field(default_factory=list)
    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    seed: int = 0
    recipe: str = ""

    @property
    def reads_file(self) -> bool:
        """Whether the task reads a file of the user."""
        return bool(self.names) and self.names[0] in FILE_TASKS

    def model_options(self, model: str) -> dict[str, Any]:
        """Return the checked options of a model: those for all models, then its own."""
        options = {**self.sections.get("model", {}), **self.sections.get(model, {})}
        if model == AUTO:
            return check_auto_options(options, text=True)
        return check_options(model, options, text=True)

    def task_options(self, task: str) -> dict[str, Any]:
        """Return the checked options of the task."""
        return check(task, tasks[task], self.sections.get("task", {}), text=True)

    def train_options(self) -> dict[str, Any]:
        """Return the checked options of training."""
        options = check("train", TrainOptions, self.sections.get("train", {}), text=True)
        TrainOptions(**options)
        return options


def read_settings(
    words: list[str], config: Path | None = None, content: Mapping[str, Any] | None = None
) -> Settings:
    """Read the words of a command line, which override a configuration file.

    Args:
        words: The words.
        config: The file.
        content: Its content, if it has been read.
    """
    settings = Settings()
    if config is not None:
        _add_all(settings, read_toml(config) if content is None else content)
    names = [word for word in words if "=" not in word]
    settings.names = names or settings.names
    _replace_file(settings)
    for word in words:
        key, equals, value = word.partition("=")
        if equals:
            _add(settings, key.strip(), value.strip())
    if settings.recipe:
        settings.sections = with_printed(settings.recipe, settings.names, settings.sections)
    return settings


def read_options(name: str, entry: Any, words: list[str]) -> dict[str, Any]:
    """Read `key=value` words as options of a registered class or function, and check them.

    Args:
        name: Its name.
        entry: The class or function.
        words: The words.
    """
    for word in words:
        if "=" not in word:
            raise OptionError(
                f"Settings of {name} have the form key=value, got '{word}'. 'undamped show {name}' "
                "lists them."
            )
    options = dict(word.split("=", 1) for word in words)
    return check_against(name, settings_of(entry), options, text=True)


def _replace_file(settings: Settings) -> None:
    """Replace a file or folder in place of the task by the task that reads it."""
    if not settings.names or settings.names[0] in (*tasks, *models):
        return
    if is_data_path(settings.names[0]):
        file, *names = settings.names
        model = models[names[0]] if names and names[0] in models else None
        settings.names[0] = getattr(model, "own_data", FILE_TASKS[0])
        path = str(Path(file).expanduser().absolute())
        settings.sections.setdefault("task", {})["file"] = path


def _add(settings: Settings, key: str, value: Any) -> None:
    section, dot, name = key.partition(".")
    if key == "seed":
        settings.seed = convert(NonNegativeInt, value, "seed", text=True)
    elif key == "recipe":
        settings.recipe = str(value)
    elif dot and (section in (*SECTIONS, AUTO) or section in models):
        settings.sections.setdefault(section, {})[name] = value
    elif settings.reads_file and key in options_of(tasks[settings.names[0]]):
        settings.sections.setdefault("task", {})[key] = value
    elif not dot:
        raise _without_section(key, settings.names)
    else:
        raise unknown_name("section of the settings", section, [*SECTIONS, "seed", *models])


def read_toml(path: Path) -> dict[str, Any]:
    """Read a configuration file, or raise an error that says what is wrong with it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise OptionError(f"No such file: {path}") from None
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{path} is not a valid TOML file: {error}.") from None
    except OSError as error:
        raise OptionError(f"{path} cannot be read: {error.strerror}.") from None


def _add_all(settings: Settings, content: Mapping[str, Any]) -> None:
    names: dict[str, str] = {}
    for key, value in content.items():
        if isinstance(value, Mapping):
            for name, entry in value.items():
                if name == "name" and key in ("task", "model"):
                    names[key] = str(entry)
                else:
                    _add(settings, f"{key}.{name}", entry)
        else:
            _add(settings, key, value)
    settings.names = [names[key] for key in ("task", "model") if key in names]


def _without_section(key: str, names: Sequence[str]) -> UndampedError:
    """Return the error for a setting without a section, with the full name it may stand for."""
    full_names = _full_names(names)
    close = key if key in full_names else nearest(key, full_names)
    hint = (
        "'undamped show NAME' lists the settings of a task or a model."
        if close is None
        else f"Did you mean '{full_names[close]}'?"
    )
    return UnknownNameError(f"Unknown setting '{shortened(key)}'. {hint}")


def _full_names(names: Sequence[str]) -> dict[str, str]:
    """Return all settings by their last name; those of the task take precedence.

    Args:
        names: The task and the models of the command; all tasks and models if there are none.
    """
    prefix = "" if names[:1] and names[0] in FILE_TASKS else "task."
    full_names = {option: f"train.{option}" for option in options_of(TrainOptions)}
    for name in [name for name in names if name in models] or models:
        full_names |= {option: f"model.{option}" for option in model_options(name)}
    for name in [name for name in names if name in tasks] or tasks:
        full_names |= {option: f"{prefix}{option}" for option in options_of(tasks[name])}
    return {**full_names, "seed": "seed", "recipe": "recipe"}
