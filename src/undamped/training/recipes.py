"""Settings to start from, where a task or a model has some that are known to be good.

They are what `undamped train` uses for whatever is not said. The digits settings were chosen on
the validation part alone; `docs/results.md` names the commands.
"""

from __future__ import annotations

from typing import Any

from undamped.options import options_of
from undamped.registry import models

Settings = dict[str, dict[str, Any]]

ANY = "*"

RECIPES: dict[tuple[str, str], Settings] = {
    (ANY, ANY): {"model": {"hidden_size": 128}, "train": {}},
    (ANY, "unicornn"): {"model": {"num_layers": 2}},
    (ANY, "residual-unicornn"): {"model": {"num_layers": 4}},
    ("digits", ANY): {
        "model": {"hidden_size": 64},
        "train": {
            "learning_rate": 1e-2,
            "batch_size": 64,
            "clip": 1.0,
            "epochs": 24,
            "schedule": "cosine",
        },
    },
    ("digits", "unicornn"): {"model": {"dt": 0.3, "alpha": 13.0}},
    ("copy", ANY): {"train": {"steps": 2000, "batch_size": 64, "clip": 1.0}},
    ("transfer-copy", ANY): {"train": {"steps": 2000, "batch_size": 64, "clip": 1.0}},
    ("denoise", ANY): {"train": {"steps": 2000, "batch_size": 64, "clip": 1.0}},
    ("adding", ANY): {"train": {"steps": 2000, "batch_size": 64, "clip": 1.0}},
    ("annuli", ANY): {"model": {"hidden_size": 32}, "train": {"steps": 500, "batch_size": 128}},
    ("spirals", ANY): {"model": {"hidden_size": 32}, "train": {"steps": 500, "batch_size": 128}},
    ("characters", ANY): {
        "train": {"steps": 1000, "batch_size": 32, "clip": 1.0, "learning_rate": 2e-3}
    },
}

LAST_RESORT = {"steps": 1000}
_BUDGETS = ("steps", "epochs", "seconds", "minutes")


def recommended(task: str, model: str, suggested: Settings | None = None) -> Settings:
    """Return the settings to start from, the more special ones over the more general.

    Args:
        task: Name of the task.
        model: Name of the model.
        suggested: What the data itself suggests: over what holds for all tasks, under what is
            known to be good for this one.
    """
    settings: Settings = {"model": {}, "task": {}, "train": {}}
    known = [RECIPES.get(key, {}) for key in ((ANY, ANY), (ANY, model))]
    special = [RECIPES.get(key, {}) for key in ((task, ANY), (task, model))]
    for recipe in (*known, suggested or {}, *special):
        for part, values in recipe.items():
            if any(name in values for name in _BUDGETS):
                _forget_budget(settings[part])
            settings[part].update(values)
    return settings


def merged(task: str, model: str, given: Settings, suggested: Settings | None = None) -> Settings:
    """Put what was said over what is recommended; a budget that was said replaces the other."""
    settings = recommended(task, model, suggested)
    if model in models:
        known = options_of(models[model])
        settings["model"] = {k: v for k, v in settings["model"].items() if k in known}
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
