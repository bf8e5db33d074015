"""Training a model on a simulated system, for experiments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from undamped.lab.papers.kept_runs import kept_fit
from undamped.lab.tasks.physics.motion_task import MotionTask
from undamped.models.physics.state_model import StateModel


@dataclass(frozen=True)
class Trained:
    """A trained model, its task, and what the run wrote down."""

    model: StateModel
    task: MotionTask
    result: dict[str, Any]

    @property
    def seconds(self) -> float:
        """Of training."""
        return self.result["seconds"]


def trained(
    model: str,
    task: str,
    *,
    model_options: dict[str, Any],
    task_options: dict[str, Any],
    train: dict[str, Any],
    seed: int,
    out: str,
) -> Trained:
    """Train a model, unless that has been done, and return it in evaluation mode.

    Args:
        model: Its registry name.
        task: The task's registry name.
        model_options: Options of the model.
        task_options: Options of the task.
        train: Options of training.
        seed: Where random numbers come from.
        out: The folder for the run.
    """
    run = kept_fit(
        model,
        task,
        model_options=model_options,
        task_options=task_options,
        train=train,
        seed=seed,
        out=out,
    )
    built, of = run.model(), run.task()
    assert isinstance(built, StateModel) and isinstance(of, MotionTask) and run.result is not None
    return Trained(built, of, run.result)
