"""Choosing the threshold for a wanted sensitivity on validation data, and keeping it in the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from undamped._base.errors import DataError, explain
from undamped.lab.data.recordings.alarm import Alarm
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.tasks.task import Split, Task
from undamped.lab.training.run import Run
from undamped.models.task_model import TaskModel


def keep_alarm(run: Run, model: TaskModel, task: Task, batch_size: int) -> None:
    """Choose the threshold that the task asks for, if it does.

    Args:
        run: Where it is kept, with the preparation: whatever answers with that heeds it.
        model: A model that has not learnt from the validation part.
        task: The task.
        batch_size: Series at a time.
    """
    if not isinstance(task, SeriesTask) or task.alarm is None:
        return
    if task.validates_on_training:
        raise DataError(
            explain(
                "sensitivity",
                expected="a validation part of its own to choose a threshold on",
                got="so few series that training data validates",
                remedy="Give more series.",
            )
        )
    positive, wanted = task.alarm
    likely, truth = _probabilities(model, task, positive, "valid", batch_size)
    chosen = Alarm.choose(positive, likely, truth, wanted)
    run.update(preparation={**run.settings["preparation"], "alarm": chosen.to_dict()})


def alarm_scores(run: Run, model: TaskModel, task: Task, batch_size: int) -> dict[str, float]:
    """Return sensitivity and specificity on the test part, with the threshold of the run.

    Args:
        run: The run.
        model: Its model.
        task: Its task, or a part of it.
        batch_size: Series at a time.
    """
    alarm = _alarm(run)
    if alarm is None or not isinstance(task, SeriesTask):
        return {}
    likely, truth = _probabilities(model, task, alarm.positive, "test", batch_size)
    found, spared = Alarm.shares(likely >= alarm.threshold, truth)
    return {"sensitivity": found, "specificity": spared}


def alarm_sentences(run: Run, result: Mapping[str, Any]) -> list[str]:
    """Return what there is to say about the threshold of a run; nothing where it has none.

    Args:
        run: The run.
        result: What it came to.
    """
    alarm = _alarm(run)
    if alarm is None:
        return []
    test = result.get("test", {})
    if "sensitivity" not in test:
        return [alarm.sentence]
    return [
        alarm.sentence,
        f"On the test part its sensitivity is {test['sensitivity']:.3g} and its specificity "
        f"{test['specificity']:.3g}; accuracy and confusion are those of the likeliest class.",
    ]


def _alarm(run: Run) -> Alarm | None:
    preparation = run.preparation()
    return None if preparation is None else preparation.kept_alarm


@torch.no_grad()
def _probabilities(
    model: TaskModel, task: SeriesTask, positive: str, part: Split, batch_size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return how likely every series is of the class, and which are."""
    assert task.preparation.classes is not None
    place = task.preparation.classes.index(positive)
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    likely, truth = [], []
    for number in range(task.count(part, batch_size) or 0):
        batch = task.batch(part, number, batch_size).to(device)
        known = batch.targets >= 0
        likely.append(torch.softmax(model(batch).double(), -1)[known, place].cpu())
        truth.append((batch.targets[known] == place).cpu())
    model.train(training)
    return torch.cat(likely).numpy(), torch.cat(truth).numpy()
