"""Scores of a model on a split of a task's data."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from undamped._base.contract import Batch
from undamped._base.registry import models
from undamped.lab.tasks import optional
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.tasks.task import Split, Task
from undamped.lab.training.batches import disk_workers, prefetch
from undamped.models.task_model import TaskModel


@dataclass(frozen=True)
class Scores:
    """Mean loss and metric over a split, and further scores of the task."""

    loss: float
    metric: float
    more: dict[str, float] = field(default_factory=dict)


@torch.no_grad()
def evaluate(
    model: TaskModel,
    task: Task,
    split: Split,
    batch_size: int,
    *,
    rank: int = 0,
    world_size: int = 1,
    context: AbstractContextManager[Any] | None = None,
    batches: int | None = None,
    record: list[Tensor] | None = None,
) -> Scores:
    """Score a model on a split.

    Args:
        model: The model; its training mode is restored afterwards.
        task: The task.
        split: The split.
        batch_size: Sequences per batch.
        rank: The rank of this process.
        world_size: The number of processes, over which sums are added.
        context: A context in which the model runs, for example of mixed precision.
        batches: The number of batches, from the first on; by default all of the split.
        record: A list to which the predictions of every batch are added.
    """
    device = next(model.parameters()).device
    count = task.count(split, batch_size)
    assert count is not None, "validation and test splits are finite"
    count = count if batches is None else min(count, batches)
    sums = torch.zeros(4, dtype=torch.float64)
    further: dict[str, tuple[float, float]] = {}
    was_training = model.training
    model.eval()
    state = None

    def load(index: int) -> Batch:
        return task.batch(split, index, batch_size)

    with context or nullcontext():
        # A state is carried from batch to batch, so every process reads a part of each batch.
        sharded = task.carries_state and world_size > 1
        indices = range(count) if sharded else range(rank, count, world_size)
        for batch in prefetch(load, indices, disk_workers(task)):
            batch = batch.to(device)
            if sharded:
                if optional.count_sequences(task, batch) <= rank:
                    continue
                batch = optional.shard(task, batch, rank, world_size)
            prediction, state = model.run(batch, state if task.carries_state else None)
            if record is not None:
                record.append(prediction)
            metric, metric_count = task.score(prediction, batch)
            weight = task.answers(batch)
            loss = task.loss(prediction, batch)
            sums += torch.tensor(
                [loss.item() * weight, weight, metric.item(), metric_count], dtype=torch.float64
            )
            for name, (total, number) in optional.more_scores(task, prediction, batch).items():
                before = further.get(name, (0.0, 0.0))
                further[name] = before[0] + total, before[1] + number
    model.train(was_training)
    if world_size > 1:
        torch.distributed.all_reduce(sums)
    return Scores(
        loss=float(sums[0] / sums[1]),
        metric=task.finish(float(sums[2] / sums[3])),
        more={name: total / number for name, (total, number) in further.items()},
    )


def with_full_history(model: str | TaskModel, task: Task) -> Task:
    """Return the task as a model reads it: a forecast with all earlier values, if it needs them.

    Args:
        model: The model, or its registry name.
        task: The task.
    """
    target = models[model] if isinstance(model, str) else model
    if getattr(target, "reads_whole_past", False) and isinstance(task, SeriesTask):
        return task.with_whole_past()
    return task
