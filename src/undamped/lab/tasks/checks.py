"""Checks of tasks: reproducible batches of the declared shapes, finite losses and scores."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from undamped._base.contract import Batch
from undamped.testing.comparison import run_checks

Split = Literal["train", "valid", "test"]
SIZE = 5


def check_task(task_class: type, **options: Any) -> None:
    """Check a task: all of `TASK_CHECKS`, one after the other.

    Args:
        task_class: The class of the task.
        options: Options of its constructor, for example ones that make it small.
    """
    run_checks(task_class.__name__, TASK_CHECKS, task_class(**options))


def check_batches(task: Any) -> None:
    """Check that a batch depends on split and index alone, and that splits have batches."""
    for split in get_args(Split):
        pairs = zip(task.batch(split, 0, SIZE), task.batch(split, 0, SIZE), strict=True)
        for name, (first, second) in zip(Batch._fields, pairs, strict=True):
            same = first is second or torch.equal(first.nan_to_num(), second.nan_to_num())
            assert same, f"`{name}` of the same {split} batch differs between two calls"
        count = task.count(split, SIZE)
        assert count is None or count >= 1, f"the {split} split has {count} batches"


def check_shapes(task: Any) -> None:
    """Check that inputs and targets have the shapes that the task declares."""
    shape = task.task_shape
    for split in get_args(Split):
        batch = task.batch(split, 0, SIZE).expanded()
        inputs, targets = batch.inputs, batch.targets
        if shape.input_kind == "pictures":
            size = math.prod(shape.picture_shape)
            assert inputs.shape[2:] == shape.picture_shape, f"images are {tuple(inputs.shape[2:])}"
            assert size == shape.input_size, f"input_size is {shape.input_size}, images have {size}"
            assert len(inputs) == shape.length, f"{len(inputs)} images, segments {shape.segments}"
        elif shape.input_kind != "symbols":
            assert inputs.shape[-1] == shape.input_size, f"inputs are {tuple(inputs.shape)}"
        if shape.readout == "every":
            expected = inputs.shape[:2]
            assert targets.shape[:2] == expected, f"targets are {tuple(targets.shape)}"
        if targets.dtype == torch.long:
            assert targets.max() < shape.output_size, f"the largest class is {int(targets.max())}"


def check_scores(task: Any) -> None:
    """Check that loss and score of a random prediction are finite."""
    generator = torch.Generator().manual_seed(0)
    for split in get_args(Split):
        batch = task.batch(split, 0, SIZE).expanded()
        classes = (task.output_size,) if batch.targets.dtype == torch.long else ()
        prediction = torch.randn(*batch.targets.shape, *classes, generator=generator)
        total, count = task.score(prediction, batch)
        assert math.isfinite(total.item()) and count > 0, f"the {split} score is {total}/{count}"
        loss: Tensor = task.loss(prediction, batch)
        assert math.isfinite(loss.item()), f"the {split} loss is {loss}"


def check_baselines(task: Any) -> None:
    """Check that the task has a chance level with its rule, and describes itself."""
    assert math.isfinite(task.chance.loss), f"the loss at chance level is {task.chance.loss}"
    assert task.chance.rule, "`chance` does not state its rule"
    assert task.describe().endswith("."), f"`describe` is no sentence: {task.describe()!r}"


TASK_CHECKS: dict[str, Callable[[Any], None]] = {
    "batches": check_batches,
    "shapes": check_shapes,
    "scores": check_scores,
    "baselines": check_baselines,
}
"""Every check of a task; each takes the task."""
