"""The progress of a training: counters, budget, sums since the last validation, and its bar."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from undamped._base.errors import OptionError
from undamped.lab.tasks.task import Task
from undamped.lab.training.evaluation import Scores
from undamped.lab.training.options import TrainOptions
from undamped.lab.training.update import Update
from undamped.models.task_model import EVALUATIONS

if TYPE_CHECKING:
    from undamped.lab.training.loop import Training
    from undamped.lab.training.update import Update

_SUMS = ("loss", "metric", "metric_count", "steps", "norm", *EVALUATIONS)

_STEPS_BETWEEN_VALIDATIONS = 50  # if neither the budget nor the data determine it
_VALIDATIONS = 25
BAR = 16
"""Columns of the bar; percentage and time left take 16 more, with the spaces between."""
_NOTABLE = 0.05  # smaller fractions of waiting time are not printed


@dataclass
class Progress:
    """The progress of a training; a checkpoint contains all of it."""

    step: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """CPU time of all threads of this process, which does not depend on the load of the machine."""
    learning: float = 0.0
    """Seconds spent on training steps, without validation."""
    waited: float = 0.0
    """Seconds of those spent waiting for a batch."""
    sequences: int = 0
    """Number of sequences that all processes read."""
    samples: int = 0
    """Number of time steps of those sequences, without padding."""
    best_metric: float | None = None
    best_loss: float | None = None
    best_step: int = 0
    stalled: int = 0
    stopped_early: bool = False
    rows: list[dict[str, float]] = field(default_factory=list)
    since: dict[str, float] = field(default_factory=dict)
    """Sums over the steps since the last row."""

    def __post_init__(self) -> None:
        self.since = {**dict.fromkeys(_SUMS, 0.0), **self.since}

    def add(self, update: Update) -> None:
        """Count a step."""
        self.step += 1
        since = self.since
        since["loss"] += update.loss
        since["norm"] += update.gradient_norm
        since["metric"] += update.metric_sum
        since["metric_count"] += update.metric_count
        for name, count in update.evaluations.items():
            since[name] += count
        since["steps"] += 1

    @property
    def throughput(self) -> dict[str, float]:
        """Data per second of training, and the fraction of time spent waiting for data.

        It is empty for a model that is fitted in closed form.
        """
        if not self.sequences or not self.learning:
            return {}
        return {
            "sequences_per_second": round(self.sequences / self.learning, 3),
            "samples_per_second": round(self.samples / self.learning, 1),
            "waiting_for_data": round(self.waited / self.learning, 4),
        }

    def training_metric(self, task: Task) -> float:
        """Return the metric of the batches since the last row, or that row's if there are none."""
        if self.rows and not self.since["steps"]:
            return self.rows[-1][f"train_{task.metric}"]
        return task.finish(self.since["metric"] / max(1, self.since["metric_count"]))

    def close_row(self, task: Task, scores: Scores, last: Update) -> bool:
        """Add a row of metrics.csv after a validation; return whether it was the best so far."""
        since, steps = self.since, max(1, self.since["steps"])
        row = {
            "step": self.step,
            "seconds": round(self.seconds, 3),
            "train_loss": since["loss"] / steps,
            f"train_{task.metric}": self.training_metric(task),
            "gradient_norm": since["norm"] / steps,
            "learning_rate": last.learning_rate,
            "valid_loss": scores.loss,
            f"valid_{task.metric}": scores.metric,
        }
        row |= {name: since[name] / steps for name in last.evaluations}
        self.rows.append(row)
        self.since = dict.fromkeys(_SUMS, 0.0)
        better = self._is_better(task, scores)
        if better:
            self.best_metric, self.best_loss = scores.metric, scores.loss
            self.best_step = self.step
        self.stalled = 0 if better else self.stalled + 1
        return better

    def reached(self, task: Task, goal: float | None) -> bool:
        """Return whether the best validation is as good as a goal.

        Args:
            task: The task.
            goal: A value of the task's metric; None is never reached.
        """
        if goal is None or self.best_metric is None:
            return False
        return self.best_metric >= goal if task.higher_is_better else self.best_metric <= goal

    def _is_better(self, task: Task, scores: Scores) -> bool:
        """Compare by the metric, and by the loss if the metric is equal.

        With few validation series many steps have the same accuracy, and the first of them is
        hardly trained.
        """
        best, best_loss = self.best_metric, self.best_loss
        if best is None or not math.isfinite(best):
            return True
        if scores.metric == best:
            return best_loss is not None and scores.loss < best_loss
        return scores.metric > best if task.higher_is_better else scores.metric < best


class Budget:
    """The limit of a training: steps, epochs, seconds or CPU seconds.

    Args:
        options: The training options, one of which is the budget.
        task: The task, which determines the batches of an epoch.
    """

    def __init__(self, options: TrainOptions, task: Task) -> None:
        per_epoch = task.count("train", options.batch_size)  # in batches
        self.steps = options.steps
        self.seconds = options.time_limit
        self.cpu_seconds = options.cpu_seconds
        if options.epochs is not None:
            if per_epoch is None:
                raise OptionError(
                    "train.epochs needs a finite data set, but this task generates data without "
                    "end. Set train.steps instead."
                )
            self.steps = max(1, round(options.epochs * per_epoch / options.accumulate))
        if options.validate_every is not None:
            self.validate_every = options.validate_every
        elif self.steps is not None:
            self.validate_every = max(1, self.steps // _VALIDATIONS)
        else:
            epoch_steps = max(1, (per_epoch or 0) // options.accumulate)
            self.validate_every = epoch_steps if per_epoch else _STEPS_BETWEEN_VALIDATIONS

    def spent(self, progress: Progress) -> float:
        """Return the fraction of the budget that is spent; 1 and more is all of it."""
        if self.steps is not None:
            return progress.step / self.steps
        if self.cpu_seconds is not None:
            return progress.cpu_seconds / self.cpu_seconds
        return progress.seconds / (self.seconds or math.inf)


class ProgressBar:
    """Shows the progress of a training on standard error.

    On a terminal it is a bar; in a file or a pipe it is a line per validation. A training with
    `report` gets lines of text instead.

    Args:
        training: The training.
        enabled: Whether this process shows anything; a training without a title shows nothing.
    """

    def __init__(self, training: Training, enabled: bool) -> None:
        self.training = training
        self.enabled = enabled and training.title is not None
        self._bar: Any = None
        self._last_update = 0.0
        self._rows = len(training.progress.rows)

    def __enter__(self) -> ProgressBar:
        """Draw the empty bar."""
        if not self.enabled:
            return self
        from rich import progress
        from rich.console import Console

        self._console = Console(file=sys.stderr)
        if self._console.is_terminal:
            self._bar = progress.Progress(
                progress.TextColumn("[bold]{task.description}"),
                progress.BarColumn(bar_width=BAR),
                progress.TextColumn("{task.percentage:>3.0f}%"),
                progress.TimeRemainingColumn(compact=True),
                progress.TextColumn("{task.fields[numbers]}"),
                console=self._console,
                transient=True,
            )
            self._bar.start()
            self._line = self._bar.add_task(self.training.title, total=1.0, numbers="")
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the bar, so that messages are not mixed with it."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def draw(self, update: Update) -> None:
        """Update the bar, at most ten times a second; or print a line for a new validation."""
        if not (self.enabled or self.training.report):
            return
        now, spent = time.perf_counter(), min(1.0, self.training.spent)
        if self.enabled and self._bar is None:
            self._print_new_row(update)
        elif now - self._last_update > 0.1:
            self._last_update = now
            if self.training.report is not None:
                self.training.report(f"{100 * spent:.0f} %  {'  '.join(self._numbers(update))}")
            else:
                width = self._console.width - len(self.training.title or "") - BAR - 16
                numbers = fitting(self._numbers(update), width)
                self._bar.update(self._line, completed=spent, numbers=numbers)

    def _print_new_row(self, update: Update) -> None:
        progress, steps = self.training.progress, self.training.budget.steps
        if len(progress.rows) > self._rows:
            self._rows = len(progress.rows)
            spent = min(1.0, self.training.spent)
            total = f"/{steps:,}" if steps is not None else ""
            left = round(progress.seconds * (1 / spent - 1)) if spent else 0
            line = (
                f"{self.training.title}: step {progress.rows[-1]['step']:,}{total}, "
                f"{100 * spent:.0f} %, {left // 60}:{left % 60:02} left, "
                f"{', '.join(' '.join(text.split()) for text in self._numbers(update))}"
            )
            self._console.print(line, style=None, soft_wrap=True, markup=False)

    def _numbers(self, update: Update) -> list[str]:
        """Return fields of fixed width, the most important ones first."""
        progress, task = self.training.progress, self.training.task
        metric = progress.training_metric(task)
        fields = [f"loss {update.loss:<9.4g}", f"{task.metric.replace('_', ' ')} {metric:<9.4g}"]
        if progress.rows:
            fields.insert(0, f"valid {progress.rows[-1]['valid_' + task.metric]:<9.4g}")
        fields.append(f"|grad| {update.gradient_norm:<7.2g}")
        if throughput := progress.throughput:
            speed = throughput["sequences_per_second"]
            fields.append(f"{speed:>7,.{0 if speed > 10 else 2}f} sequences/s")
            if throughput["waiting_for_data"] >= _NOTABLE:
                fields.append(f"{throughput['waiting_for_data']:.0%} waiting for data")
        return fields


def fitting(fields: Sequence[str], width: int) -> str:
    """Return the first fields that fit on a line, separated by two spaces.

    Args:
        fields: The fields, the most important ones first.
        width: Columns of the line.
    """
    line = ""
    for text in fields:
        longer = f"{line}  {text}" if line else text
        if len(longer) > width:
            break
        line = longer
    return line
