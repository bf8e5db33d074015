"""Settings that a paper prints, by name: `undamped train ucr linoss recipe=linoss-paper`.

They lie over everything that is recommended and under what a person says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from undamped._base.errors import OptionError, explain
from undamped._base.options import unknown_name


@dataclass(frozen=True)
class _Printed:
    """One row of LinOSS's table."""

    blocks: int
    features: int
    oscillators: int
    rate: float
    method: str = "im"
    batch: int = 32


_LINOSS = {
    "EigenWorms": _Printed(2, 128, 64, 1e-3, batch=4),
    "SelfRegulationSCP1": _Printed(6, 128, 256, 1e-4),
    "SelfRegulationSCP2": _Printed(6, 64, 256, 1e-5, method="imex"),
    "EthanolConcentration": _Printed(4, 16, 16, 1e-5),
    "Heartbeat": _Printed(6, 16, 16, 1e-3),
    "MotorImagery": _Printed(2, 128, 16, 1e-5),
}


def _linoss(options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return T. K. Rusch and D. Rus's settings for a set of the UEA archive.

    Batch normalisation, mean over time, Adam at a constant rate, validation every 1,000 updates and
    the end after ten of them without gain. The channel with the time of a sample, which most of
    their sets have, is not added, and a dropout mask holds for a whole sequence.
    """
    dataset = str(options.get("dataset", "none"))
    if dataset not in _LINOSS:
        raise OptionError(
            explain(
                "recipe=linoss-paper",
                expected=f"task.dataset to be one of {', '.join(_LINOSS)}",
                got=dataset,
                remedy="The paper prints no settings for others; leave the recipe out.",
            )
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
"""By name: the task, the model, and what makes settings of the options of the task."""
_BUDGETS = ("steps", "epochs", "seconds", "minutes")


def with_printed(
    recipe: str, names: list[str], parts: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Put printed settings under what was said.

    Args:
        recipe: Its name.
        names: The task and the models that were named.
        parts: What was said, by part.
    """
    if recipe not in PRINTED:
        raise unknown_name("recipe", recipe, list(PRINTED))
    task, model, settings = PRINTED[recipe]
    if names[:1] != [task] or model not in names[1:]:
        raise OptionError(
            explain(
                f"recipe={recipe}",
                expected=f"the task {task} and the model {model}",
                got=" ".join(names) or "neither",
                remedy=f"For example: undamped train {task} {model} recipe={recipe}.",
            )
        )
    printed = settings(parts.get("task", {}))
    said = {**parts, model: {**parts.get("model", {}), **parts.get(model, {})}}
    if any(budget in said.get("train", {}) for budget in _BUDGETS):
        del printed["train"]["steps"]
    under = {
        part: {name: value for name, value in values.items() if name not in said.get(part, {})}
        for part, values in printed.items()
    }
    return parts | {part: {**values, **parts.get(part, {})} for part, values in under.items()}
