"""The grammar of settings: `task.delay=200 model.hidden_size=128 train.steps=2000 seed=3`.

`recipe=NAME` stands for settings that a paper prints. The same keys may stand in a TOML file. What
is said on the command line wins. A file or folder in place of a task is a task made of it, and its
options need no prefix: `data.csv target=label`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from undamped._base.errors import OptionError, explain
from undamped._base.options import NonNegativeInt, check, convert, options_of, unknown_name
from undamped._base.registry import models, tasks
from undamped.lab.cli.setting_names import OWN_DATA, PARTS, without_part
from undamped.lab.data.recordings.read import is_data_path
from undamped.lab.training.fit import AUTO
from undamped.lab.training.options import TrainOptions
from undamped.lab.training.portfolio.attempt import check_no_model_options
from undamped.lab.training.printed_settings import with_printed
from undamped.models.for_task import check_options


@dataclass
class Settings:
    """What was asked for: names, and settings by part; parts may also be names of models."""

    names: list[str] = field(default_factory=list)
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    seed: int = 0
    recipe: str = ""

    def model_options(self, model: str) -> dict[str, Any]:
        """Return the checked options for one model: those for all, then its own."""
        chosen = {**self.parts.get("model", {}), **self.parts.get(model, {})}
        if model == AUTO:
            check_no_model_options(chosen)
            return {}
        return check_options(model, chosen, text=True)

    def task_options(self, task: str) -> dict[str, Any]:
        """Return the checked options of the task."""
        return check(task, tasks[task], self.parts.get("task", {}), text=True)

    def train_options(self) -> dict[str, Any]:
        """Return the checked options of training."""
        chosen = check("train", TrainOptions, self.parts.get("train", {}), text=True)
        TrainOptions(**chosen)
        return chosen


def read_settings(
    words: list[str], config: Path | None = None, content: Mapping[str, Any] | None = None
) -> Settings:
    """Read the words of a command line, over those of a configuration file.

    Args:
        words: The words.
        config: The file.
        content: What is in it, where it was read already.
    """
    settings = Settings()
    if config is not None:
        _enter_all(read_toml(config) if content is None else content, settings)
    names = [word for word in words if "=" not in word]
    settings.names = names or settings.names
    _take_file(settings)
    for word in words:
        key, equals, value = word.partition("=")
        if equals:
            _enter(settings, key.strip(), value.strip())
    if settings.recipe:
        settings.parts = with_printed(settings.recipe, settings.names, settings.parts)
    return settings


def _take_file(settings: Settings) -> None:
    """Let a file or folder in the place of the task be the task made of it."""
    if not settings.names or settings.names[0] in (*tasks, *models):
        return
    if is_data_path(settings.names[0]):
        file = str(Path(settings.names[0]).expanduser().absolute())
        settings.names[0] = _own_task(settings.names[1:])
        settings.parts.setdefault("task", {})["file"] = file


def _own_task(chosen: list[str]) -> str:
    """Return the task that a file becomes for a model, or for the usual ones."""
    member = models[chosen[0]] if chosen and chosen[0] in models else None
    return getattr(member, "own_data", OWN_DATA[0])


def _is_own(settings: Settings) -> bool:
    return bool(settings.names) and settings.names[0] in OWN_DATA


def _enter(settings: Settings, key: str, value: Any) -> None:
    part, dot, name = key.partition(".")
    if key == "seed":
        settings.seed = convert(NonNegativeInt, value, "seed", text=True)
    elif key == "recipe":
        settings.recipe = str(value)
    elif dot and (part in PARTS or part in models):
        settings.parts.setdefault(part, {})[name] = value
    elif _is_own(settings) and key in options_of(tasks[settings.names[0]]):
        settings.parts.setdefault("task", {})[key] = value
    elif not dot:
        raise without_part(key, settings.names)
    else:
        raise unknown_name("part of the settings", part, [*PARTS, "seed", *models])


def read_toml(path: Path) -> dict[str, Any]:
    """Read a configuration file, or say what is wrong with it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        got, remedy = "no such file", "Check the path."
    except (ValueError, RecursionError) as error:
        got, remedy = str(error), "Correct that place."
    except OSError as error:
        got, remedy = error.strerror or "another problem", "Check the path."
    raise OptionError(explain(str(path), expected="a TOML file", got=got, remedy=remedy))


def _enter_all(content: Mapping[str, Any], settings: Settings) -> None:
    names: dict[str, str] = {}
    for key, value in content.items():
        if isinstance(value, Mapping):
            for name, entry in value.items():
                if name == "name" and key in ("task", "model"):
                    names[key] = str(entry)
                else:
                    _enter(settings, f"{key}.{name}", entry)
        else:
            _enter(settings, key, value)
    settings.names = [names[key] for key in ("task", "model") if key in names]
