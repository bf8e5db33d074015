"""Scoring a model on a part of a task's data."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from undamped._base.contract import Batch
from undamped._base.registry import models
from undamped.lab.tasks import optional
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.tasks.task import Split, Task
from undamped.lab.training.batches import disk_workers, made
from undamped.models.task_model import TaskModel


@dataclass(frozen=True)
class Scores:
    """Mean loss and metric over a part of the data, and whatever else its task scores."""

    loss: float
    metric: float
    more: dict[str, float] = field(default_factory=dict)


def _batch(task: Task, split: Split, size: int, number: int) -> Batch:
    return task.batch(split, number, size)


def detach_state(state: Any) -> Any:
    """Cut the graph behind a state."""
    if state is None:
        return None
    return state.detach() if isinstance(state, Tensor) else tuple(p.detach() for p in state)


@torch.no_grad()
def evaluate(
    model: TaskModel,
    task: Task,
    split: Split,
    batch_size: int,
    *,
    share: tuple[int, int] = (0, 1),
    context: AbstractContextManager[Any] | None = None,
) -> Scores:
    """Score a model on a whole split.

    Args:
        model: The model; it is put into evaluation mode and back.
        task: The task.
        split: Which part.
        batch_size: Sequences per batch.
        share: This process's number and how many there are; sums are added over all of them.
        context: A context in which the model runs, for example of mixed precision.
    """
    device = next(model.parameters()).device
    count = task.count(split, batch_size)
    assert count is not None, "validation and test have an end"
    rank, world = share
    sums = torch.zeros(4, dtype=torch.float64)
    was_training = model.training
    model.eval()
    state = None
    further: dict[str, tuple[float, float]] = {}
    with context or nullcontext():
        # A state goes on from batch to batch, so there every process reads a part of each.
        parted = task.carries_state and world > 1
        numbers = range(count) if parted else range(rank, count, world)
        read = partial(_batch, task, split, batch_size)
        for batch in made(read, numbers, disk_workers(task)):
            batch = batch.to(device)
            if parted:
                if optional.count_sequences(task, batch) <= rank:
                    continue
                batch = optional.shard(task, batch, rank, world)
            prediction, state = model.run(batch, state if task.carries_state else None)
            metric, metric_count = task.score(prediction, batch)
            weight = task.answers(batch)
            loss = task.loss(prediction, batch)
            sums += torch.tensor(
                [loss.item() * weight, weight, metric.item(), metric_count], dtype=torch.float64
            )
            for name, (total, number_of) in optional.more_scores(task, prediction, batch).items():
                before = further.get(name, (0.0, 0.0))
                further[name] = before[0] + total, before[1] + number_of
    model.train(was_training)
    if world > 1:
        torch.distributed.all_reduce(sums)
    return Scores(
        loss=float(sums[0] / sums[1]),
        metric=task.finish(float(sums[2] / sums[3])),
        more={name: total / number_of for name, (total, number_of) in further.items()},
    )


def with_full_history(model: str | TaskModel, task: Task) -> Task:
    """Return a task as a model reads it: a forecast with all earlier values, if it needs them.

    Args:
        model: The model, or its registry name.
        task: The task.
    """
    target = models[model] if isinstance(model, str) else model
    if getattr(target, "reads_whole_past", False) and isinstance(task, SeriesTask):
        return task.with_whole_past()
    return task
