"""Training of models that are fitted in closed form."""

from __future__ import annotations

import copy
import itertools
import math
import sys
import time
from collections.abc import Iterable, Iterator

import torch

from undamped._base.contract import Batch
from undamped._base.errors import OptionError, printable
from undamped._base.registry import models
from undamped.lab.baselines.closed_form import ClosedFormModel
from undamped.lab.tasks import optional
from undamped.lab.tasks.task import ArrayTask, Split, Task
from undamped.lab.training.batches import to_double
from undamped.lab.training.calibration import calibrate_run
from undamped.lab.training.checkpoint import Checkpoint, save_checkpoint
from undamped.lab.training.devices import ProcessGroup
from undamped.lab.training.evaluation import evaluate
from undamped.lab.training.loop import Training
from undamped.lab.training.options import TrainOptions
from undamped.lab.training.progress import Budget
from undamped.lab.training.update import Update
from undamped.models.task_model import TaskModel


class SplitBatches:
    """All batches of a split; every iteration returns the same batches.

    Args:
        task: The task.
        split: The split.
        options: Batch size, precision, and for infinite data the number of batches.
    """

    def __init__(self, task: Task, split: Split, options: TrainOptions) -> None:
        self.task, self.size = task, options.batch_size
        self.split: Split = split
        self.double = options.precision == "64-true"
        count = task.count(split, self.size)
        if isinstance(task, ArrayTask):
            # An epoch of training skips an incomplete last batch, which is included here.
            count = math.ceil(task.sequences(split) / self.size)
        if count is None:  # a time limit does not determine it
            count = Budget(options, task).steps or ClosedFormModel.recipe["train"]["steps"]
        self.count = count

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches."""
        for index in range(self.count):
            batch = self._batch(index)
            yield to_double(batch) if self.double else batch

    def _batch(self, index: int) -> Batch:
        if not isinstance(self.task, ArrayTask):
            return self.task.batch(self.split, index, self.size)
        end = min((index + 1) * self.size, self.task.sequences(self.split))
        rows = torch.arange(index * self.size, end)
        return self.task.take(self.split, rows, self.task.generator(self.split, index))


def check_data(model: str | TaskModel, task: Task, options: TrainOptions) -> None:
    """Refuse data that a model cannot be fitted to, before anything is written or trained.

    Args:
        model: The model, or its registry name.
        task: The task.
        options: The training options, which determine the batches.
    """
    parts = [models[model]] if isinstance(model, str) else map(type, model.modules())
    for model_class in dict.fromkeys(parts):
        if isinstance(model_class, type) and issubclass(model_class, ClosedFormModel):
            model_class.check_data(SplitBatches(task, "train", options))


def train_closed_form(training: Training, group: ProcessGroup) -> None:
    """Fit a model, validate it, fit it to the validation data too, and fill the run folder.

    A run that was interrupted has no checkpoint and starts again, with the same result.

    Args:
        training: The training.
        group: The process group, of which only rank zero fits.
    """
    model, task, options, run = training.model, training.task, training.options, training.run
    if training.checkpoint is not None or not group.is_rank_zero:
        return
    assert isinstance(model, ClosedFormModel)
    _refuse_options(options)
    progress = training.progress
    clock, cpu_clock = time.perf_counter(), time.process_time()
    if options.precision == "64-true":
        model.double()
    run.save_model(model)
    batches = SplitBatches(task, "train", options)
    _report(training, f"fitting {batches.count:,} batches")
    torch.manual_seed(training.seed)
    initial = copy.deepcopy(model)
    model.fit_closed_form(batches)
    # If every prediction is a fit, all of the training split would take longer than the rest.
    scored = itertools.islice(batches, 1 if model.reads_whole_past else None)
    loss, metric, metric_count = _score(model, task, scored)
    scores = evaluate(model, task, "valid", options.batch_size)

    def fit_earlier(earlier: Task) -> ClosedFormModel:
        model = copy.deepcopy(initial)
        model.fit_closed_form(SplitBatches(earlier, "train", options))
        return model

    # Bands and threshold need data that the model is not fitted to.
    calibrate_run(run, model, task, options.batch_size, fit_earlier)
    validation = SplitBatches(task, "valid", options)
    model.refit(() if optional.validates_on_training(task) else validation)
    progress.step = batches.count
    progress.since.update(loss=loss, metric=metric, metric_count=metric_count, steps=1.0)
    progress.seconds = time.perf_counter() - clock
    progress.cpu_seconds = time.process_time() - cpu_clock
    progress.close_row(task, scores, Update(loss, 0.0, 0.0, 0.0))
    run.save_model(model)
    run.write_metrics(progress.rows)
    run.update(model={**run.settings["model"], "parameters": model.parameter_count()})
    _report(training, f"{task.metric.replace('_', ' ')} {scores.metric:.4g} on validation data")
    save_checkpoint(run.checkpoint, Checkpoint(model.state_dict(), {}, progress, {}))


@torch.no_grad()
def _score(
    model: ClosedFormModel, task: Task, batches: Iterable[Batch]
) -> tuple[float, float, float]:
    """Return the mean loss, and sum and count of the metric."""
    loss, targets, metric, metric_count = 0.0, 0, 0.0, 0.0
    for batch in batches:
        prediction, _ = model.run(batch)
        batch_metric, batch_count = task.score(prediction, batch)
        weight = task.answers(batch)
        loss += float(task.loss(prediction, batch)) * weight
        targets += weight
        metric, metric_count = metric + float(batch_metric), metric_count + batch_count
    return loss / max(1, targets), metric, metric_count


def _refuse_options(options: TrainOptions) -> None:
    if options.processes > 1 or options.accelerator not in ("auto", "cpu"):
        raise OptionError(
            "A model that is fitted in closed form needs one process on the CPU, got "
            f"{options.processes} on {options.accelerator}. Omit train.devices, train.nodes and "
            "train.accelerator."
        )
    if options.accumulate > 1:
        raise OptionError(
            "train.accumulate must be 1 for a model that is fitted in closed form, got "
            f"{options.accumulate}. Omit it."
        )


def _report(training: Training, line: str) -> None:
    if training.report is not None:
        training.report(line)
    elif training.title is not None:
        sys.stderr.write(printable(f"{training.title}: {line}\n"))
