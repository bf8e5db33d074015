"""Bands of a forecast, from what a model says about data that it has not learnt from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np
import torch

from undamped._base.errors import UndampedError
from undamped.lab.data.recordings.bands import Bands
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.tasks.task import Split, Task
from undamped.lab.training.past import as_seen_by
from undamped.lab.training.run import Run
from undamped.models.task_model import TaskModel

EARLIER = 2
"""How many earlier validation parts bands are read from, too."""
MOST_WINDOWS = 40
"""Of each validation part."""


def calibrate(
    model: TaskModel, task: Task, batch_size: int, learn: Callable[[Task], TaskModel] | None = None
) -> Bands | None:
    """Return the bands that errors on validation parts suggest; None where there are none.

    Args:
        model: A model that has learnt from the training part and not from the validation part.
        task: The task.
        batch_size: Windows at once.
        learn: Returns such a model for a task whose validation part is an earlier one, so that
            there are more errors; not for models that take long.
    """
    if not _has_bands(task) or task.validates_on_training:
        return None
    found = [answers_and_truth(model, task, "valid", batch_size, MOST_WINDOWS)]
    for number in range(1, EARLIER + 1) if learn is not None else ():
        earlier = task.redrawn(number)
        if earlier is None:
            break
        assert learn is not None
        try:
            again = learn(earlier)
        except UndampedError:  # too little is left to learn from
            break
        found.append(answers_and_truth(again, earlier, "valid", batch_size, MOST_WINDOWS))
    answers, truth = (np.concatenate(part) for part in zip(*found, strict=True))
    prepared = task.preparation
    units = prepared.target_mean, prepared.target_std
    return Bands.fit(answers, truth, task.quantiles or task.band_levels, *units)


def keep_bands(
    run: Run,
    model: TaskModel,
    task: Task,
    batch_size: int,
    learn: Callable[[Task], TaskModel] | None = None,
) -> None:
    """Write the bands of a forecast into its run; nothing where there are none.

    Args:
        run: The run.
        model: Its model, before it has learnt from the validation part.
        task: The task.
        batch_size: Windows at once.
        learn: See `calibrate`.
    """
    bands = calibrate(model, task, batch_size, learn)
    if bands is not None:
        run.update(bands=bands.to_dict())


def band_scores(
    model: TaskModel, task: Task, split: Split, batch_size: int, bands: Bands
) -> dict[str, float]:
    """Return what bands come to on a part: pinball loss in original units, share of values inside.

    Args:
        model: The model.
        task: The task.
        split: Which part.
        batch_size: Windows at once.
        bands: Its bands.
    """
    if not _has_bands(task):
        return {}
    answers, truth = answers_and_truth(model, task, split, batch_size)
    bounds, levels = bands.around(answers), np.array(bands.levels)
    known, unit = ~np.isnan(truth), np.array(task.preparation.target_std)
    errors = (truth[..., None] - bounds) * unit[:, None]
    loss = np.maximum(levels * errors, (levels - 1) * errors).mean(-1)
    inside = (truth >= bounds[..., 0]) & (truth <= bounds[..., -1])
    return {
        "pinball": float(loss[known].mean()),
        "coverage": float(inside[known].mean()),
        "wanted_coverage": float(levels[-1] - levels[0]),
    }


@torch.no_grad()
def answers_and_truth(
    model: TaskModel, task: SeriesTask, split: Split, batch_size: int, most: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return what a model says about the windows of a part, and what came; standardised.

    Returns:
        (windows, horizon, channels), with quantiles behind them where the model answers with
        those; and (windows, horizon, channels), NaN where nobody knows.
    """
    seen: Any = as_seen_by(model, task)
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    rows, truths = [], []
    for index in spread(seen.sequences(split), most).split(batch_size):
        batch = seen.take(split, index, seen.generator(split, 0))
        rows.append(model.run(batch.to(device))[0].double().cpu().numpy())
        truths.append(batch.targets.double().numpy())
    model.train(was_training)
    prepared, truth = task.preparation, np.concatenate(truths)
    ahead = truth.reshape(len(truth), prepared.horizon, len(prepared.forecast))
    return prepared.ahead(np.concatenate(rows)), ahead


def spread(count: int, most: int | None = None) -> torch.Tensor:
    """Return numbers of windows: all, or some from everywhere, since neighbours tell the same.

    Args:
        count: How many there are.
        most: How many are enough.
    """
    return torch.arange(0, count, -(-count // most) if most and count else 1)


def _has_bands(task: Task) -> TypeGuard[SeriesTask]:
    return (
        isinstance(task, SeriesTask) and task.kind == "forecast" and not task.preparation.at_times
    )
