"""`undamped compare --sweep`: every model gets as many trials to be tuned before it is compared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from undamped.lab.tasks.task import Task


def tune_all(
    name: str,
    task: Task,
    fits: dict[str, dict[str, Any]],
    varies: dict[str, str],
    trials: int,
    seed: int,
    out: Path,
) -> dict[str, dict[str, Any]]:
    """Tune every model; change what it is trained with, and return what is to be told.

    Args:
        name: The task's name.
        task: The task, built.
        fits: What every model is trained with.
        varies: What varies, by name; `model.…` for all models that have it, `unicornn.…` for one.
        trials: How many trials each model gets.
        seed: Where random numbers come from.
        out: The folder for the sweeps.
    """
    from undamped.lab.cli.sweep_progress import sweep_progress
    from undamped.lab.cli.sweep_settings import check_space
    from undamped.lab.sweeps import Plan
    from undamped.lab.sweeps.tune import default_space, tune

    plans = {}
    for model, fit in fits.items():
        fixed = {"task": fit["task_options"], "model": fit["model_options"], "train": fit["train"]}
        space = _own(model, list(fits), varies) if varies else _free(default_space(model), fixed)
        for key, value in space.items():
            check_space(key, value, name, model)
        plans[model] = Plan(name, model, {k: dict(v) for k, v in fixed.items()}, space, seed)
    told = {}
    for model, plan in plans.items():
        if not plan.space:
            told[model] = {"sweep": {"words": "nothing to tune; it was trained as it is"}}
            continue
        file = plan.fixed["task"].get("file")
        data = name if file is None else Path(str(file)).stem
        place = out / "sweeps" / f"{data}-{model}"
        with sweep_progress(f"tuning {model}") as tick:
            folder, best = tune(plan, task, trials, place, tick)
        chosen = {} if best is None else best.settings
        settings = plan.settings(chosen)
        fits[model]["model_options"] = settings.get("model", {})
        fits[model]["train"] = settings.get("train", {})
        words = ", ".join(
            f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in chosen.items()
        )
        told[model] = {
            "sweep": {
                "trials": trials,
                "folder": str(folder.path),
                "settings": chosen,
                "words": f"best of {trials} trials: {words or 'none; all trials failed'}",
            }
        }
    return told


def _own(model: str, all_models: list[str], varies: dict[str, str]) -> dict[str, Any]:
    """Return what varies in a model: what was said of it, and what was said of all and it has."""
    from undamped.models.for_task import model_options

    found = {}
    for key, value in varies.items():
        part, _, option = key.partition(".")
        if part in all_models:
            if part == model:
                found[f"model.{option}"] = value
        elif part != "model" or option in model_options(model):
            found[key] = value
    return found


def _free(space: dict[str, Any], fixed: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return what varies and was not set by hand."""
    taken = {f"{part}.{name}" for part, values in fixed.items() for name in values}
    return {key: value for key, value in space.items() if key not in taken}
