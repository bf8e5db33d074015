"""How far a training has come, and what it has measured on the way."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from undamped._base.errors import OptionError
from undamped.lab.tasks.task import Task
from undamped.lab.training.evaluation import Scores
from undamped.lab.training.options import TrainOptions
from undamped.lab.training.update import Update
from undamped.models.task_model import EVALUATIONS

_SUMS = ("loss", "metric", "metric_count", "steps", "norm", *EVALUATIONS)


@dataclass
class Progress:
    """How far a training has come; all of it is in a checkpoint."""

    step: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """Of all threads of this process: what a busy machine takes longer for is not in it."""
    learning: float = 0.0
    """Seconds of steps, without validation."""
    waited: float = 0.0
    """Seconds of those in which there was no batch yet."""
    sequences: int = 0
    """How many were read, of all processes together."""
    samples: int = 0
    """How many steps of those sequences; padding does not count."""
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
        """How much was read in a second of learning, and for which share of it data was waited for.

        Empty where nothing was read batch by batch.
        """
        if not self.sequences or not self.learning:
            return {}
        return {
            "sequences_per_second": round(self.sequences / self.learning, 3),
            "samples_per_second": round(self.samples / self.learning, 1),
            "waiting_for_data": round(self.waited / self.learning, 4),
        }

    def training_metric(self, task: Task) -> float:
        """Return the metric on the batches since the last row, or of that row if there are none."""
        if self.rows and not self.since["steps"]:
            return self.rows[-1][f"train_{task.metric}"]
        return task.finish(self.since["metric"] / max(1, self.since["metric_count"]))

    def close_row(self, task: Task, scores: Scores, last: Update) -> bool:
        """End a row of metrics.csv with a validation; return whether it was the best so far.

        Args:
            task: The task.
            scores: What validation gave.
            last: The last step of training.
        """
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
        """Say whether the best validation is as good as a goal.

        Args:
            task: The task, which knows what good is.
            goal: The metric that is wanted; None is never reached.
        """
        if goal is None or self.best_metric is None:
            return False
        return self.best_metric >= goal if task.higher_is_better else self.best_metric <= goal

    def _is_better(self, task: Task, scores: Scores) -> bool:
        """Compare by the metric, and by the loss where that is equal.

        On few validation series many steps have the same accuracy, and the first of them is
        hardly trained.
        """
        best, best_loss = self.best_metric, self.best_loss
        if best is None or not math.isfinite(best):
            return True
        if scores.metric == best:
            return best_loss is not None and scores.loss < best_loss
        return scores.metric > best if task.higher_is_better else scores.metric < best


_STEPS_BETWEEN_VALIDATIONS = 50  # where neither the budget nor the data say more
_VALIDATIONS = 25


class Budget:
    """Steps, epochs or seconds.

    Args:
        options: The training options, one of which is the budget.
        task: The task, which knows how many batches a pass over the data has.
    """

    def __init__(self, options: TrainOptions, task: Task) -> None:
        per_epoch = task.count("train", options.batch_size)  # in batches
        self.steps = options.steps
        self.seconds = options.time_limit
        if options.epochs is not None:
            if per_epoch is None:
                raise OptionError(
                    "train.epochs: expected a task with an end, got one whose data never ends. "
                    "Give train.steps instead."
                )
            self.steps = max(1, round(options.epochs * per_epoch / options.accumulate))
        if options.validate_every is not None:
            self.validate_every = options.validate_every
        elif self.steps is not None:
            self.validate_every = max(1, self.steps // _VALIDATIONS)
        else:
            pass_over = max(1, (per_epoch or 0) // options.accumulate)
            self.validate_every = pass_over if per_epoch else _STEPS_BETWEEN_VALIDATIONS

    def spent(self, step: int, seconds: float) -> float:
        """Return the share of the budget that is spent; 1 and more is all of it."""
        if self.steps is not None:
            return step / self.steps
        return seconds / (self.seconds or math.inf)
