"""The best settings of a model on a task, for those who compare models."""

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
"""What is looked for in every model that learns step by step."""


def usual_space(model: str) -> dict[str, Any]:
    """Return what is worth varying in a model: the learning rate, and what its recipe names.

    Empty for models that learn in closed form, which choose for themselves.

    Args:
        model: Its name.
    """
    member = models[model]
    if isinstance(member, type) and issubclass(member, ClosedFormModel):
        return {}
    return {**RATES, **recipe_of(model).sweep_space}


def tune(
    plan: Plan,
    task: Task,
    trials: int,
    out: Path,
    tick: Callable[[Progress], None] | None = None,
) -> tuple[SweepFolder, Trial | None]:
    """Sweep; return its folder and the best trial.

    Args:
        plan: What varies.
        task: The task, built.
        trials: How many trials.
        out: The folder of the sweep.
        tick: Told how it goes.
    """
    folder = SweepFolder.join(out, plan, task.metric, task.higher_is_better)
    found = sweep(folder, trials, task=task, tick=tick)
    return folder, best_of(found, task.higher_is_better)
