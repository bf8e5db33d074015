"""The options of training, `train.…` on the command line."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from undamped._base.errors import OptionError, explain
from undamped._base.options import (
    Fraction,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Range,
)

# Single precision ends at 3.4e38, and optimisers multiply these with each other and with 10.
Rate = Annotated[float, Range(low=0, open_low=True, high=1e30)]
Decay = Annotated[float, Range(low=0, high=1e6)]


@dataclass(frozen=True)
class TrainOptions:
    """How to train.

    Args:
        steps: Stop after so many changes of the weights, one a batch unless `accumulate` says
            otherwise.
        epochs: Stop after so many passes over the training data.
        seconds: Stop after so much time; the last batch is finished.
        minutes: The same in minutes.
        batch_size: Sequences per batch, over all processes together.
        accumulate: Batches per step: their gradients are added up, each with the weight of its
            answers, before the weights change. It is a batch so many times as large, in the memory
            of one.
        workers: Threads that prepare batches ahead of time; two for recordings that stay on disk
            and none for others, if no number is given.
        optimizer: The rule that changes the weights.
        learning_rate: Its step size.
        constrained_learning_rate: Step size of matrices kept in a set; a tenth of
            `learning_rate` if none is given.
        weight_decay: How strongly weights are pulled to zero.
        momentum: Momentum of sgd and rmsprop.
        beta1: First-moment decay of the adam family.
        beta2: Second-moment decay of the adam family, squared-gradient decay of rmsprop.
        schedule: How the step size changes: not at all, along a cosine or a line to zero, by
            `schedule_factor` every `schedule_every` steps, or by it whenever validation stalls.
        schedule_factor: Factor of the step and plateau schedules.
        schedule_every: Steps between changes of the step schedule; stalled validations before a
            change of the plateau schedule.
        warmup_steps: Steps over which the step size grows from zero.
        clip: Largest norm of the whole gradient.
        patience: Stop when so many validations in a row brought nothing better.
        goal: Stop when a validation is as good as this, in the task's own metric.
        validate_every: Steps between validations, each of which also saves a checkpoint;
            chosen from the budget if none is given.
        truncate: Let gradients reach back only so many steps; the state is carried on.
        precision: Number format: 32-true, 64-true, bf16-mixed, 16-mixed.
        accelerator: Passed to Lightning: auto, cpu, gpu, …
        devices: How many processes or devices share each batch.
        nodes: How many machines.
        strategy: Passed to Lightning; with several devices, data parallel.
        tensorboard: Whether to write a TensorBoard log beside the CSV file.
    """

    steps: PositiveInt | None = None
    epochs: PositiveFloat | None = None
    seconds: PositiveFloat | None = None
    minutes: PositiveFloat | None = None
    batch_size: PositiveInt = 64
    accumulate: PositiveInt = 1
    workers: NonNegativeInt | None = None
    optimizer: Literal["adam", "adamw", "nadam", "rmsprop", "sgd", "adagrad"] = "adam"
    learning_rate: Rate = 1e-3
    constrained_learning_rate: Rate | None = None
    weight_decay: Decay = 0.0
    momentum: Fraction = 0.0
    beta1: Fraction = 0.9
    beta2: Fraction = 0.999
    schedule: Literal["constant", "cosine", "linear", "step", "plateau"] = "constant"
    schedule_factor: Fraction = 0.5
    schedule_every: PositiveInt | None = None
    warmup_steps: NonNegativeInt = 0
    clip: PositiveFloat | None = None
    patience: PositiveInt | None = None
    goal: float | None = None
    validate_every: PositiveInt | None = None
    truncate: PositiveInt | None = None
    precision: Literal["32-true", "64-true", "bf16-mixed", "16-mixed"] = "32-true"
    accelerator: str = "auto"
    devices: PositiveInt = 1
    nodes: PositiveInt = 1
    strategy: str = "auto"
    tensorboard: bool = False

    def __post_init__(self) -> None:
        budgets = {"steps": self.steps, "epochs": self.epochs, "time": self.time_limit}
        given = [name for name, value in budgets.items() if value is not None]
        if len(given) > 1 or (self.seconds is not None and self.minutes is not None):
            raise OptionError(
                explain(
                    "train budget",
                    expected="one of steps, epochs, seconds or minutes",
                    got=" and ".join(given) if len(given) > 1 else "seconds and minutes",
                    remedy="Keep one of them.",
                )
            )
        if self.batch_size % (self.devices * self.nodes):
            raise OptionError(
                explain(
                    "train.batch_size",
                    expected=f"a multiple of {self.devices * self.nodes} processes",
                    got=self.batch_size,
                    remedy="Every process gets an equal share of a batch.",
                )
            )
        if self.accumulate > 1 and self.truncate is not None:
            raise OptionError(
                explain(
                    "train.accumulate",
                    expected="1 with train.truncate, which changes the weights after every window",
                    got=self.accumulate,
                    remedy="Keep one of them.",
                )
            )
        if self.momentum and self.optimizer not in ("sgd", "rmsprop"):
            raise OptionError(
                explain(
                    "train.momentum",
                    expected="0, since only sgd and rmsprop have it",
                    got=f"{self.momentum} with {self.optimizer}",
                    remedy="For the adam family set train.beta1.",
                )
            )
        if self.schedule == "step" and self.schedule_every is None:
            raise OptionError(
                explain(
                    "train.schedule_every",
                    expected="a number of steps with schedule=step",
                    got="none",
                    remedy="For example train.schedule_every=1000.",
                )
            )

    @property
    def time_limit(self) -> float | None:
        """The budget in seconds, if it is one of time."""
        return self.seconds if self.minutes is None else 60 * self.minutes

    def to_dict(self) -> dict[str, Any]:
        """Return the options for run.json."""
        return asdict(self)
