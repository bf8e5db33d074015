"""Training of models that learn in closed form: one look at the data instead of many steps."""

from __future__ import annotations

import copy
import itertools
import math
import sys
import time
from collections.abc import Iterable, Iterator

import torch

from undamped._base.contract import Batch
from undamped._base.errors import OptionError, explain, printable
from undamped._base.registry import models
from undamped.lab.baselines.closed_form import ClosedFormModel
from undamped.lab.tasks import optional
from undamped.lab.tasks.task import ArrayTask, Split, Task
from undamped.lab.training.batches import to_double
from undamped.lab.training.calibration import store_alarm, store_bands
from undamped.lab.training.checkpoint import Checkpoint, save_checkpoint
from undamped.lab.training.evaluation import evaluate
from undamped.lab.training.loop import Training
from undamped.lab.training.options import TrainOptions
from undamped.lab.training.progress import Budget
from undamped.lab.training.update import Update
from undamped.models.task_model import TaskModel


class TaskPart:
    """A part of a task's data, batch by batch, the same ones every time.

    Args:
        task: The task.
        split: Which part.
        options: Sequences per batch, number format, and how many batches where there is no end.
    """

    def __init__(self, task: Task, split: Split, options: TrainOptions) -> None:
        self.task, self.size = task, options.batch_size
        self.split: Split = split
        self.double = options.precision == "64-true"
        whole = task.count(split, self.size)
        if isinstance(task, ArrayTask):
            # A pass of training leaves out what does not fill a batch; here nothing is left out.
            whole = math.ceil(task.sequences(split) / self.size)
        self.count = whole if whole is not None else _batches_of(task, options)

    def __iter__(self) -> Iterator[Batch]:
        """Give the batches."""
        for number in range(self.count):
            batch = self._batch(number)
            yield to_double(batch) if self.double else batch

    def _batch(self, number: int) -> Batch:
        if not isinstance(self.task, ArrayTask):
            return self.task.batch(self.split, number, self.size)
        end = min((number + 1) * self.size, self.task.sequences(self.split))
        index = torch.arange(number * self.size, end)
        return self.task.take(self.split, index, self.task.generator(self.split, number))


def _batches_of(task: Task, options: TrainOptions) -> int:
    """Return how much of data without end to learn from; a time limit does not say that."""
    steps = Budget(options, task).steps
    return ClosedFormModel.recipe["train"]["steps"] if steps is None else steps


def check_data(model: str | TaskModel, task: Task, options: TrainOptions) -> None:
    """Refuse data that a model cannot learn from, before anything is written or trained.

    Args:
        model: The model, or its registry name.
        task: The task.
        options: How the data is read.
    """
    kind = models[model] if isinstance(model, str) else type(model)
    if isinstance(kind, type) and issubclass(kind, ClosedFormModel):
        kind.check_data(TaskPart(task, "train", options))


def fit_closed_form(model: ClosedFormModel, training: Training) -> None:
    """Learn, validate, learn from validation data too, and leave what a training leaves.

    A run that is interrupted has nothing to go on from and starts again, to the same numbers.

    Args:
        model: The model.
        training: Everything else.
    """
    task, options, run, progress = (
        training.task,
        training.options,
        training.run,
        training.progress,
    )
    _refuse_options(options)
    clock, cpu_clock = time.perf_counter(), time.process_time()
    if options.precision == "64-true":
        model.double()
    run.save_model(model)
    learnt, held_out = TaskPart(task, "train", options), TaskPart(task, "valid", options)
    _say(training, f"learning from {learnt.count:,} batches at once")
    torch.manual_seed(training.seed)
    fresh = copy.deepcopy(model)
    model.fit_closed_form(learnt)
    # Where every answer is a fit, the training part as a whole would take longer than all else.
    fitted = _score(model, task, itertools.islice(learnt, 1 if model.reads_whole_past else None))
    scores = evaluate(model, task, "valid", options.batch_size)

    def learn_before(earlier: Task) -> ClosedFormModel:
        again = copy.deepcopy(fresh)
        again.fit_closed_form(TaskPart(earlier, "train", options))
        return again

    # Before it learns from what they come from.
    store_bands(run, model, task, options.batch_size, learn_before)
    store_alarm(run, model, task, options.batch_size)  # before it learns from those series
    model.refit(() if optional.validates_on_training(task) else held_out)
    progress.step = learnt.count
    progress.since.update(loss=fitted[0], metric=fitted[1], metric_count=fitted[2], steps=1.0)
    progress.seconds = time.perf_counter() - clock
    progress.cpu_seconds = time.process_time() - cpu_clock
    progress.close_row(task, scores, Update(fitted[0], 0.0, 0.0, 0.0))
    run.save_model(model)
    run.write_metrics(progress.rows)
    run.update(model={**run.settings["model"], "parameters": model.parameter_count()})
    _say(training, f"{task.metric.replace('_', ' ')} {scores.metric:.4g} on validation data")
    save_checkpoint(run.checkpoint, Checkpoint(model.state_dict(), {}, progress, {}))


@torch.no_grad()
def _score(model: ClosedFormModel, task: Task, part: Iterable[Batch]) -> tuple[float, float, float]:
    """Return the mean loss, and what the metric is made of."""
    loss, answers, metric, count = 0.0, 0, 0.0, 0.0
    for batch in part:
        prediction, _ = model.run(batch)
        found, of = task.score(prediction, batch)
        weight = task.answers(batch)
        loss += float(task.loss(prediction, batch)) * weight
        answers, metric, count = answers + weight, metric + float(found), count + of
    return loss / max(1, answers), metric, count


def _refuse_options(options: TrainOptions) -> None:
    processes = options.devices * options.nodes
    if processes > 1 or options.accelerator not in ("auto", "cpu"):
        raise OptionError(
            explain(
                "train.devices",
                expected="one process on the CPU for a model that learns in closed form",
                got=f"{processes} on {options.accelerator}",
                remedy="Leave train.devices, train.nodes and train.accelerator out.",
            )
        )
    if options.accumulate > 1:
        raise OptionError(
            explain(
                "train.accumulate",
                expected="1 for a model that learns in closed form, from all batches together",
                got=options.accumulate,
                remedy="Leave it out.",
            )
        )


def _say(training: Training, line: str) -> None:
    if training.tell is not None:
        training.tell(line)
    elif training.title is not None:
        sys.stderr.write(printable(f"{training.title}: {line}\n"))
