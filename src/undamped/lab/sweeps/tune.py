"""Hyperparameter search for one model, for comparisons of tuned models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from undamped._base.registry import models
from undamped.lab.baselines.closed_form import ClosedFormModel
from undamped.lab.sweeps.folder import SweepFolder
from undamped.lab.sweeps.plan import Plan
from undamped.lab.sweeps.sweep import Progress, sweep
from undamped.lab.sweeps.trials import Trial, best_of
from undamped.lab.tasks.task import Task
from undamped.lab.training.recipes import recipe_of

RATES = {"train.learning_rate": "3e-4..3e-2:log"}
"""The search space of every model that is trained by gradient descent."""


def default_space(model: str) -> dict[str, Any]:
    """Return the default search space of a model: the learning rate, and that of its recipe.

    It is empty for closed-form models, which select their hyperparameters themselves.

    Args:
        model: The name of the model.
    """
    cls = models[model]
    if isinstance(cls, type) and issubclass(cls, ClosedFormModel):
        return {}
    return {**RATES, **recipe_of(model).sweep_space}


def tune(
    plan: Plan,
    task: Task,
    trials: int,
    out: Path,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[SweepFolder, Trial | None]:
    """Run a sweep; return its folder and the best trial.

    Args:
        plan: The plan.
        task: The task.
        trials: The number of trials.
        out: The folder of the sweep.
        progress: Called with the progress.
    """
    folder = SweepFolder.join(out, plan, task.metric, task.higher_is_better)
    results = sweep(folder, trials, task=task, progress=progress)
    return folder, best_of(results, task.higher_is_better)
