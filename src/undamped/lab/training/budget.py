"""How long to train, and how often to look at validation data."""

from __future__ import annotations

import math

from undamped._base.errors import OptionError
from undamped.lab.tasks.task import Task
from undamped.lab.training.options import TrainOptions

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
