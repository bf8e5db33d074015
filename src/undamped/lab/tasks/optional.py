"""Optional attributes of tasks, which training, reports and the command line use.

A task class has them where they make sense:

- `recipes`: settings to start from by the name of the model; those of "*" are for all models.
- `suggest(model)`: settings that depend on the data; recipes override them.
- `harder()`: options that make the task harder.
- `starting_embedding()`: vectors (symbols, size) with which an embedding starts.
- `text`, `encode`, `decode`: a text that models can continue, and its conversion to symbols.
- `answer_names`: the names of the classes.
- `more_scores(prediction, batch)`: further scores of predictions, each as a sum and a count.
- `same_channels`: whether the features of an answer are those of an input, at other times.
- `rows`: how many images of a sequence a figure shows in each row.
- `attributes(split, index, size)`: attributes of the inputs of a batch, integers (time, batch),
  below zero where an input has no such attribute.
- `in_distribution`: the entry of `test_tasks` that is like training, if the others are not.
- `redrawn(index)`: the task with another validation split, or None.
- `validates_on_training`, `too_short`, `stays_on_disk`, `class_weights`, `intermittent`: see
  `SeriesTask`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from undamped._base.contract import Batch
from undamped.lab.tasks.task import Settings, Split, Task, batch_axes


def _call(task: Task, name: str, default: Any, *arguments: Any) -> Any:
    """Return the result of an optional method, or a default."""
    method = getattr(task, name, None)
    return default if method is None else method(*arguments)


def recipes(task: Task | type[Task]) -> Mapping[str, Settings]:
    """Return the recipes of a task by the name of the model."""
    return getattr(task, "recipes", {})


def suggest(task: Task, model: str) -> Settings:
    """Return the settings that the data of a task suggests for a model."""
    return _call(task, "suggest", {}, model)


def harder(task: Task) -> dict[str, Any]:
    """Return options that make a task harder."""
    return _call(task, "harder", {})


def starting_embedding(task: Task) -> Tensor | None:
    """Return the vectors (symbols, size) with which an embedding starts, or None."""
    return _call(task, "starting_embedding", None)


def continues_text(task: Task) -> bool:
    """Whether models of a task can continue a text."""
    return all(hasattr(task, name) for name in ("text", "encode", "decode"))


def answer_names(task: Task) -> tuple[str, ...]:
    """Return the names of the classes; empty if they have none."""
    return getattr(task, "answer_names", ())


def more_scores(task: Task, prediction: Tensor, batch: Batch) -> dict[str, tuple[float, float]]:
    """Return further scores of predictions, each as a sum and a count."""
    return _call(task, "more_scores", {}, prediction, batch)


def rows(task: Task) -> tuple[int, ...]:
    """Return how many images of a sequence a figure shows in each row; empty for one row."""
    return getattr(task, "rows", ())


def attributes(task: Task, split: Split, index: int, size: int) -> dict[str, Tensor]:
    """Return the attributes of the inputs of a batch, if they are known."""
    return _call(task, "attributes", {}, split, index, size)


def in_distribution(task: Task | type[Task]) -> str:
    """Return the entry of `test_tasks` that is like training; empty if there is none."""
    return getattr(task, "in_distribution", "")


def redrawn(task: Task, index: int) -> Task | None:
    """Return the task with another validation split; None if there is no other."""
    return _call(task, "redrawn", None, index)


def validates_on_training(task: Task) -> bool:
    """Whether there is no validation split, so that training data is used instead."""
    return getattr(task, "validates_on_training", False)


def too_short(task: Task) -> bool:
    """Whether there is too little data for a validation split."""
    return getattr(task, "too_short", False)


def intermittent(task: Task) -> bool:
    """Whether many of the values that a forecast predicts are zero, and none is negative."""
    return getattr(task, "intermittent", False)


def stays_on_disk(task: Task) -> bool:
    """Whether a batch is read from disk, so that prefetching pays."""
    return getattr(task, "stays_on_disk", False)


def shard(task: Task, batch: Batch, rank: int, world: int) -> Batch:
    """Return the sequences of a batch that process `rank` of `world` uses."""
    inputs, targets = batch_axes(task)
    return batch.part(slice(rank, None, world), inputs_axis=inputs, targets_axis=targets)


def count_sequences(task: Task, batch: Batch) -> int:
    """Return the number of sequences, or points, of a batch."""
    return batch.inputs.shape[batch_axes(task)[0]]


def count_samples(task: Task, batch: Batch) -> int:
    """Return the number of steps of all sequences of a batch, without padding."""
    if batch.lengths is not None:
        return int(batch.lengths.sum())
    steps = batch.inputs.shape[0] if task.sequential else 1
    return count_sequences(task, batch) * steps
