"""Hyperparameters of papers, by name: `undamped train ucr linoss recipe=linoss-paper`.

They override all recommended settings; the options of the user override them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from undamped._base.errors import OptionError
from undamped._base.options import unknown_name
from undamped.lab.training.options import BUDGETS


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
