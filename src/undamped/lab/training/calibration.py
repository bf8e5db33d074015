"""Bands of a forecast, from what a model says about data that it has not learnt from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

import numpy as np
import torch

from undamped._base.errors import DataError, UndampedError, explain
from undamped.lab.data.recordings.alarm import Alarm
from undamped.lab.data.recordings.bands import Bands
from undamped.lab.tasks import optional
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.tasks.task import Split, Task
from undamped.lab.training.evaluation import with_full_history
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
    if not _has_bands(task) or optional.validates_on_training(task):
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


def store_bands(
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
    seen: Any = with_full_history(model, task)
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
    return prepared.to_forecasts(np.concatenate(rows)), ahead


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


def store_alarm(run: Run, model: TaskModel, task: Task, batch_size: int) -> None:
    """Choose the threshold that the task asks for, if it does.

    Args:
        run: Where it is kept, with the preparation: whatever answers with that heeds it.
        model: A model that has not learnt from the validation part.
        task: The task.
        batch_size: Series at a time.
    """
    if not isinstance(task, SeriesTask) or task.alarm is None:
        return
    if optional.validates_on_training(task):
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
    found, spared = Alarm.rates(likely >= alarm.threshold, truth)
    return {"sensitivity": found, "specificity": spared}


def alarm_notes(run: Run, result: Mapping[str, Any]) -> list[str]:
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
    return None if preparation is None else preparation.stored_alarm


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
