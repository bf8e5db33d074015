"""Bands of forecasts and thresholds of alarms, from predictions on validation data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeGuard

import numpy as np
import torch

from undamped._base.errors import DataError, UndampedError
from undamped.lab.data.recordings.alarm import Alarm
from undamped.lab.data.recordings.bands import Bands
from undamped.lab.tasks import optional
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.tasks.task import Split, Task
from undamped.lab.training.evaluation import with_full_history
from undamped.lab.training.run import Run
from undamped.models.task_model import TaskModel

FitEarlier = Callable[[Task], TaskModel]
"""Fits a model to a task whose validation split is an earlier one."""
EARLIER = 2
"""Number of earlier validation splits whose errors are used too."""
MOST_WINDOWS = 40
"""The largest number of windows of each validation split."""


def calibrate_run(
    run: Run, model: TaskModel, task: Task, batch_size: int, fit_earlier: FitEarlier | None = None
) -> None:
    """Store the bands of a forecast and the threshold of an alarm in a run, if there are any.

    Args:
        run: The run. The threshold is stored with its preparation, so that predictions use it.
        model: Its model, before it is fitted to the validation split.
        task: The task.
        batch_size: Windows per batch.
        fit_earlier: See `calibrate`.
    """
    if not isinstance(task, SeriesTask):
        return
    bands = calibrate(model, task, batch_size, fit_earlier)
    if bands is not None:
        run.update(bands=asdict(bands))
    if task.alarm is not None:
        alarm = _fit_alarm(model, task, batch_size)
        run.update(preparation={**run.settings["preparation"], "alarm": alarm.to_dict()})


def calibrated_scores(
    run: Run, model: TaskModel, task: Task, split: Split, batch_size: int
) -> dict[str, float]:
    """Return scores of the bands and of the threshold of a run on a split.

    Args:
        run: The run.
        model: Its model.
        task: Its task, or one of `Task.test_tasks`.
        split: The split.
        batch_size: Windows per batch.
    """
    bands, alarm = run.bands(), _alarm(run)
    scores = {}
    if bands is not None:
        scores |= band_scores(model, task, split, batch_size, bands)
    if alarm is not None and isinstance(task, SeriesTask):
        probabilities, truth = _probabilities(model, task, alarm.positive, split, batch_size)
        sensitivity, specificity = Alarm.rates(probabilities >= alarm.threshold, truth)
        scores |= {"sensitivity": sensitivity, "specificity": specificity}
    return scores


def calibrate(
    model: TaskModel, task: Task, batch_size: int, fit_earlier: FitEarlier | None = None
) -> Bands | None:
    """Return bands from the errors on validation splits; None for a task without bands.

    Args:
        model: A model that is fitted to the training split and not to the validation split.
        task: The task.
        batch_size: Windows per batch.
        fit_earlier: Adds the errors on earlier validation splits; only for models that are fitted
            quickly.
    """
    if not _has_bands(task) or optional.validates_on_training(task):
        return None
    parts = [answers_and_truth(model, task, "valid", batch_size, MOST_WINDOWS)]
    for index in range(1, EARLIER + 1) if fit_earlier is not None else ():
        earlier = task.redrawn(index)
        if earlier is None:
            break
        assert fit_earlier is not None
        try:
            earlier_model = fit_earlier(earlier)
        except UndampedError:  # too little training data remains
            break
        parts.append(answers_and_truth(earlier_model, earlier, "valid", batch_size, MOST_WINDOWS))
    answers, truth = (np.concatenate(part) for part in zip(*parts, strict=True))
    prepared = task.preparation
    units = prepared.target_mean, prepared.target_std
    return Bands.fit(answers, truth, task.quantiles or task.band_levels, *units)


def band_scores(
    model: TaskModel, task: Task, split: Split, batch_size: int, bands: Bands
) -> dict[str, float]:
    """Return pinball loss in original units and coverage of bands on a split.

    Args:
        model: The model.
        task: The task.
        split: The split.
        batch_size: Windows per batch.
        bands: Its bands.
    """
    if not _has_bands(task):
        return {}
    answers, truth = answers_and_truth(model, task, split, batch_size)
    bounds, levels = bands.around(answers), np.array(bands.levels)
    mask, unit = ~np.isnan(truth), np.array(task.preparation.target_std)
    errors = (truth[..., None] - bounds) * unit[:, None]
    loss = np.maximum(levels * errors, (levels - 1) * errors).mean(-1)
    inside = (truth >= bounds[..., 0]) & (truth <= bounds[..., -1])
    return {
        "pinball": float(loss[mask].mean()),
        "coverage": float(inside[mask].mean()),
        "wanted_coverage": float(levels[-1] - levels[0]),
    }


@torch.no_grad()
def answers_and_truth(
    model: TaskModel, task: SeriesTask, split: Split, batch_size: int, most: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the forecasts of the windows of a split and the true values, standardised.

    Args:
        model: The model.
        task: The task.
        split: The split.
        batch_size: Windows per batch.
        most: The largest number of windows.

    Returns:
        (windows, horizon, channels), or (windows, horizon, channels, quantiles) for a model of
        quantiles; and (windows, horizon, channels), NaN where a value is missing.
    """
    full_task: Any = with_full_history(model, task)
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    rows, truths = [], []
    for index in spread(full_task.sequences(split), most).split(batch_size):
        batch = full_task.take(split, index, full_task.generator(split, 0))
        rows.append(model.run(batch.to(device))[0].double().cpu().numpy())
        truths.append(batch.targets.double().numpy())
    model.train(was_training)
    prepared, truth = task.preparation, np.concatenate(truths)
    shape = len(truth), prepared.horizon, len(prepared.forecast)
    return prepared.to_forecasts(np.concatenate(rows)), truth.reshape(shape)


def spread(count: int, most: int | None = None) -> torch.Tensor:
    """Return indices of windows: all, or evenly spread ones, since adjacent windows are similar.

    Args:
        count: Number of windows.
        most: The largest number of indices.
    """
    return torch.arange(0, count, -(-count // most) if most and count else 1)


def _has_bands(task: Task) -> TypeGuard[SeriesTask]:
    return (
        isinstance(task, SeriesTask) and task.kind == "forecast" and not task.preparation.at_times
    )


def _fit_alarm(model: TaskModel, task: SeriesTask, batch_size: int) -> Alarm:
    """Return the threshold for the sensitivity that the task requests."""
    assert task.alarm is not None
    if optional.validates_on_training(task):
        raise DataError(
            "sensitivity needs a validation split to choose a threshold on, but there are too few "
            "series for one. Add series."
        )
    positive, sensitivity = task.alarm
    probabilities, truth = _probabilities(model, task, positive, "valid", batch_size)
    return Alarm.choose(positive, probabilities, truth, sensitivity)


def alarm_notes(run: Run, result: Mapping[str, Any]) -> list[str]:
    """Return sentences about the threshold of a run and its result; none without a threshold."""
    alarm = _alarm(run)
    if alarm is None:
        return []
    test = result.get("test", {})
    if "sensitivity" not in test:
        return [alarm.sentence]
    return [
        alarm.sentence,
        f"On the test split its sensitivity is {test['sensitivity']:.3g} and its specificity "
        f"{test['specificity']:.3g}; accuracy and confusion matrix are those of the most likely "
        "class.",
    ]


def _alarm(run: Run) -> Alarm | None:
    preparation = run.preparation()
    return None if preparation is None else preparation.stored_alarm


@torch.no_grad()
def _probabilities(
    model: TaskModel, task: SeriesTask, positive: str, split: Split, batch_size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the probability of a class for every series, and which series belong to it."""
    assert task.preparation.classes is not None
    column = task.preparation.classes.index(positive)
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    probabilities, truth = [], []
    for index in range(task.count(split, batch_size) or 0):
        batch = task.batch(split, index, batch_size).to(device)
        mask = batch.targets >= 0
        probabilities.append(torch.softmax(model(batch).double(), -1)[mask, column].cpu())
        truth.append((batch.targets[mask] == column).cpu())
    model.train(was_training)
    return torch.cat(probabilities).numpy(), torch.cat(truth).numpy()
