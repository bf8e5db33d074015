"""Settings to start from, where a task or a model has some that are known to be good.

They are what `undamped train` uses for whatever is not said. The digits settings were chosen on
the validation part alone; `docs/results.md` names the commands. The settings of MNIST and CIFAR-10
are those of the papers' tables and programs; their budgets are not, since the papers train for
days. Where table and program of UnICORNN disagree (the learning rate on CIFAR-10), the
program's value stands here. Those of Lorenz-96 were chosen on its validation part, from five
pairs of Δt and α for UnICORNN. Those of `ucr` follow the estimators', those of `vitals` are plain
choices, not tuned.
"""

from __future__ import annotations

from typing import Any

from undamped.networks.for_task import model_options
from undamped.registry import models

Settings = dict[str, dict[str, Any]]

ANY = "*"
_PIXELS: Settings = {"train": {"batch_size": 64, "clip": 1.0, "epochs": 10, "schedule": "cosine"}}
_PICTURES: Settings = {"model": {"hidden_size": 32}, "train": {"batch_size": 64, "epochs": 3}}
_DENSITY: Settings = {
    "model": {"hidden_size": 64, "end": 1.0, "detail": 6.0, "trace": "exact", "tolerance": 1e-3},
    "train": {"steps": 600, "batch_size": 256, "learning_rate": 1e-2, "schedule": "cosine"},
}
_PIXELS_CORNN = {"hidden_size": 256}

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
    ("density", "ffjord"): _DENSITY,
    ("point-cloud", "ffjord"): _DENSITY,
    ("mnist-images", ANY): _PICTURES,
    ("cifar10-images", ANY): _PICTURES,
    ("smnist", ANY): _PIXELS,
    ("smnist", "unicornn"): {
        "model": {"num_layers": 3, "dt": 0.482, "alpha": 12.53, "dropout": 0.1},
        "train": {"learning_rate": 1.14e-3},
    },
    ("smnist", "cornn"): {
        "model": {**_PIXELS_CORNN, "dt": 0.042, "gamma": 2.7, "epsilon": 4.7},
        "train": {"learning_rate": 3.5e-3, "batch_size": 120},
    },
    ("psmnist", ANY): _PIXELS,
    ("psmnist", "unicornn"): {
        "model": {"num_layers": 3, "dt": 0.482, "alpha": 12.53, "dropout": 0.1},
        "train": {"learning_rate": 1.14e-3},
    },
    ("psmnist", "cornn"): {
        "model": {**_PIXELS_CORNN, "dt": 0.076, "gamma": 0.4, "epsilon": 8.0},
        "train": {"learning_rate": 5.4e-3, "batch_size": 120},
    },
    ("noise-cifar", ANY): {
        "train": {"batch_size": 100, "clip": 1.0, "epochs": 10, "schedule": "cosine"}
    },
    ("noise-cifar", "unicornn"): {
        "model": {"num_layers": 3, "dt": 0.126, "alpha": 13.0, "dropout": 0.1},
        "train": {"learning_rate": 3.14e-3, "batch_size": 30},
    },
    ("noise-cifar", "cornn"): {
        "model": {"dt": 0.034, "gamma": 1.3, "epsilon": 12.7},
        "train": {"learning_rate": 7.5e-3},
    },
    ("ptb", ANY): {
        "model": {"hidden_size": 256, "embedding_size": 200},
        "train": {
            "batch_size": 128,
            "learning_rate": 2e-3,
            "clip": 1.0,
            "epochs": 10,
            "schedule": "cosine",
        },
    },
    ("lorenz96", ANY): {
        "train": {
            "batch_size": 16,
            "learning_rate": 1e-2,
            "clip": 1.0,
            "epochs": 100,
            "schedule": "cosine",
        },
    },
    ("lorenz96", "lstm"): {"model": {"hidden_size": 44}},
    ("lorenz96", "cornn"): {"model": {"hidden_size": 64, "dt": 0.4, "gamma": 1.0, "epsilon": 2.0}},
    ("lorenz96", "unicornn"): {"model": {"hidden_size": 90, "dt": 0.2, "alpha": 1.0}},
    ("imdb", ANY): {
        "train": {"batch_size": 32, "learning_rate": 1e-3, "clip": 1.0, "epochs": 5},
    },
    ("imdb", "unicornn"): {
        "model": {"num_layers": 2, "dt": 0.205, "alpha": 0.0, "dropout": 0.1},
    },
    ("imdb", "cornn"): {"model": {"dt": 0.054, "gamma": 4.9, "epsilon": 4.8}},
    ("ucr", ANY): {
        "model": {"hidden_size": 64},
        "train": {"batch_size": 16, "epochs": 60},
    },
    ("vitals", ANY): {
        "model": {"hidden_size": 64, "readout": "last"},
        "train": {
            "batch_size": 16,
            "learning_rate": 3e-3,
            "clip": 1.0,
            "epochs": 30,
            "schedule": "cosine",
        },
    },
    ("vitals", "unicornn"): {"model": {"num_layers": 3, "dt": 0.046, "alpha": 10.0}},
    ("characters", ANY): {
        "train": {"steps": 1000, "batch_size": 32, "clip": 1.0, "learning_rate": 2e-3}
    },
}

EXCLUDES = {
    "bottleneck_size": ("detail", "hidden_layers"),
    "noise": ("trace",),
    "step_size": ("tolerance",),
}
"""Options of models, and those that have no meaning beside them."""

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
