"""`undamped compare --sweep`: every model is tuned with the same number of trials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from undamped.lab.cli.progress import sweep_progress
from undamped.lab.cli.sweep_settings import check_space
from undamped.lab.sweeps import Plan
from undamped.lab.sweeps.tune import tune, usual_space
from undamped.lab.tasks.task import Task
from undamped.models.for_task import model_options


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
        words = ", ".join(
            f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in options.items()
        )
        reports[model] = {
            "sweep": {
                "trials": trials,
                "folder": str(folder.path),
                "settings": options,
                "words": f"best of {trials} trials: {words or 'none, because all trials failed'}",
            }
        }
    return reports


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
    return {key: value for key, value in usual_space(model).items() if key not in settings}
