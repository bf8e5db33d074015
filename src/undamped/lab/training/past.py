"""What of the past a model is shown."""

from __future__ import annotations

from undamped._base.registry import models
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.tasks.task import Task
from undamped.models.task_model import TaskModel


def as_seen_by(model: str | TaskModel, task: Task) -> Task:
    """Return a task as a model reads it: a forecast with all that was before it, if it wants that.

    Args:
        model: The model, or its registry name.
        task: The task.
    """
    member = models[model] if isinstance(model, str) else model
    if getattr(member, "reads_whole_past", False) and isinstance(task, SeriesTask):
        return task.with_whole_past()
    return task
