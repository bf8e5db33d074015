"""Answers of a model for series that are not over, and the stopping rule of a run."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch

from undamped._base.errors import DataError, OptionError, RunError
from undamped.lab.baselines.closed_form import ClosedFormModel
from undamped.lab.data.recordings.preparation import Preparation
from undamped.lab.tasks import optional
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.tasks.task import Split, Task
from undamped.lab.training.closed_form import SplitBatches
from undamped.lab.training.run import Run
from undamped.lab.training.stopping import (
    ChosenRule,
    EarlyAnswers,
    checkpoints_of,
    choose_rule,
)
from undamped.lab.training.streaming import SampleStream, fingerprint
from undamped.models.task_model import TaskModel

FILE = "stopping.safetensors"
"""The file of the rule in a run folder."""
_FOLDS = 5  # for models that are fitted to the validation split too
_MOST_SERIES = 500  # of a validation split
_FEWEST = 10  # series to choose a rule on

Report = Callable[[str], None]


class LabelledSeries(NamedTuple):
    """A series of raw samples and its class.

    Args:
        samples: (time, channels), or (time,) symbols.
        times: (time,) timestamps, for a model that uses them.
        target: The index of the class.
    """

    samples: np.ndarray
    times: np.ndarray | None
    target: int


def stopping_rule(run: Run, report: Report | None = None) -> ChosenRule:
    """Return the stopping rule of a run; the first time it is result, and stored beside the run.

    A network is examined on the validation split. A model in closed form is fitted to both splits,
    and is therefore cross-validated: it is fitted again without the series that are examined.

    Args:
        run: The run of a classifier that can follow a stream.
        report: Called with sentences about the progress.

    Example:
        >>> result = stopping_rule(Run.open("runs/ucr-bank-1"))
        >>> live = LiveModel(subject_of(run), result.rule)
    """
    model, preparation = run.model(), run.preparation()
    _check(run, model, preparation)
    path, identity = run.output_folder / FILE, fingerprint(model, preparation)
    stored = ChosenRule.load(path, identity)
    if stored is not None:
        return stored
    answers = held_out_answers(run, model, preparation, report or (lambda _: None))
    result = ChosenRule.of(choose_rule(answers), answers)
    result.save(path, identity)
    return result


def _check(run: Run, model: TaskModel, preparation: Preparation | None) -> None:
    """Refuse a model that does not classify series, or cannot follow a stream."""
    shape = run.shape
    if shape.answer != "class" or shape.readout != "last":
        raise OptionError(
            "An early decision needs a model that predicts one class per series. Omit --decide."
        )
    if preparation is not None and preparation.stored_alarm is not None:
        raise OptionError(
            "The run has an alarm with a threshold of its own, and no early decisions. Omit "
            "--decide."
        )
    SampleStream(model, preparation)  # refuses a model of whole series


def held_out_answers(
    run: Run, model: TaskModel, preparation: Preparation | None, report: Report
) -> EarlyAnswers:
    """Return early answers for series that a model was not fitted to.

    Args:
        run: The run.
        model: Its model.
        preparation: The preparation of its data.
        report: Called with sentences about the progress.
    """
    try:
        task = run.task()
    except DataError as error:
        raise RunError(
            f"A stopping rule is chosen on the training recordings, but: {error} Restore them."
        ) from None
    if optional.validates_on_training(task):
        raise DataError(
            "A stopping rule needs validation series, and the run has none. Train with more series."
        )
    checkpoints = checkpoints_of(_typical_length(task))
    parts: list[EarlyAnswers] = []
    fits = isinstance(model, ClosedFormModel)
    folds = _folds(task) if fits else [task]
    for number, fold in enumerate(folds, start=1):
        series = labelled_series(fold, "valid")
        if not series:
            continue
        report(f"stopping rule: {len(series):,} validation series, part {number} of {len(folds)}")
        if fits:
            model = _fitted_without(run, fold)
        parts.append(early_answers(model, preparation, series, checkpoints))
    if sum(len(part.targets) for part in parts) < _FEWEST:
        raise DataError(
            f"A stopping rule needs at least {_FEWEST} validation series with a class. Train with "
            "more series."
        )
    columns = zip(*(part[1:] for part in parts), strict=True)
    return EarlyAnswers(checkpoints, *map(np.concatenate, columns))


def _folds(task: Task) -> list[Task]:
    """Return the task with the folds of a cross-validation, or itself if it cannot be split again.

    Classes are equally frequent in all folds, and the series of a group are in the same one.
    """
    if not isinstance(task, SeriesTask) or task.redrawn(0) is None:
        return [task]
    pool = np.sort(np.concatenate([task.splits["train"], task.splits["valid"]]))
    series_set = task.series_set
    groups = pool if series_set.groups is None else np.asarray(series_set.groups)[pool]
    names, owner = np.unique(groups, return_inverse=True)
    labels = np.zeros(len(names), dtype=int)
    labels[owner] = task.preparation.encode(np.asarray(series_set.targets)[pool])
    folds = np.empty(len(names), dtype=int)
    shuffled = np.random.default_rng(0).permutation(len(names))
    folds[np.lexsort((shuffled, labels))] = np.arange(len(names)) % _FOLDS
    tasks: list[Task] = []
    for fold in range(min(_FOLDS, len(names))):
        part = copy.copy(task)
        inside = folds[owner] == fold
        part.splits = {**task.splits, "train": pool[~inside], "valid": pool[inside]}
        tasks.append(part)
    return tasks


def _fitted_without(run: Run, task: Task) -> TaskModel:
    """Return a model like that of a run, fitted to the training split of a task only."""
    model, options = run.empty_model(), run.train_options()
    assert isinstance(model, ClosedFormModel)
    if options.precision == "64-true":
        model.double()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.settings["seed"])
        model.fit_closed_form(SplitBatches(task, "train", options))
        model.refit(())
    return model.eval()


def _typical_length(task: Task) -> int:
    if isinstance(task, SeriesTask):
        rows = np.concatenate([task.splits["train"], task.splits["valid"]])
        return int(np.median(task.series_set.lengths[rows]))
    return int(np.median([len(row.samples) for row in labelled_series(task, "valid")]))


def labelled_series(
    task: Task, split: Split, most: int | None = _MOST_SERIES
) -> list[LabelledSeries]:
    """Return series of a split that have a class, as raw samples.

    Args:
        task: The task.
        split: The split.
        most: How many series are read at most; None for all.
    """
    rows = _recordings(task, split) if isinstance(task, SeriesTask) else _sequences(task, split)
    return [row for row in itertools.islice(rows, most) if row.target >= 0]


def _recordings(task: SeriesTask, split: Split) -> Iterator[LabelledSeries]:
    series_set = task.series_set
    targets = task.preparation.encode(np.asarray(series_set.targets))
    for key in task.splits[split].tolist():
        times = None
        if task.preparation.timestamps and series_set.times is not None:
            times = series_set.times[key]
        yield LabelledSeries(series_set.series[key], times, int(targets[key]))


def _sequences(task: Task, split: Split) -> Iterator[LabelledSeries]:
    size = 64
    for index in range(task.count(split, size) or 0):
        batch = task.batch(split, index, size)
        for row, target in enumerate(batch.targets.tolist()):
            length = len(batch.inputs) if batch.lengths is None else int(batch.lengths[row])
            yield LabelledSeries(batch.inputs[:length, row].numpy(), None, int(target))


def early_answers(
    model: TaskModel,
    preparation: Preparation | None,
    series: list[LabelledSeries],
    checkpoints: np.ndarray,
) -> EarlyAnswers:
    """Return what a stream answers for series at checkpoints.

    Args:
        model: The model.
        preparation: The preparation of raw samples.
        series: The series.
        checkpoints: Numbers of samples.
    """
    rows, final = [], []
    stream = SampleStream(model, preparation)
    for samples, times in ((row.samples, row.times) for row in series):
        stream.reset()
        outputs: list[np.ndarray] = []
        for stop in [*checkpoints.tolist(), len(samples)]:
            span = slice(stream.steps, stop)
            if stream.steps < min(stop, len(samples)):
                stream.push(samples[span], None if times is None else times[span])
            outputs.append(probabilities_of(stream))
        rows.append(np.stack(outputs[:-1]))
        final.append(outputs[-1].argmax())
    targets = np.array([row.target for row in series])
    lengths = np.array([len(row.samples) for row in series])
    return EarlyAnswers(checkpoints, np.stack(rows), np.array(final), targets, lengths)


def probabilities_of(stream: SampleStream) -> np.ndarray:
    """Return the probabilities of the classes (classes,) after the samples so far."""
    return torch.softmax(stream.outputs()[0].double(), -1).numpy()
