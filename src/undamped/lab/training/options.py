"""The options of training, `train.…` on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from undamped._base.errors import OptionError
from undamped._base.options import Fraction, NonNegativeInt, PositiveFloat, PositiveInt, Range

# Single precision ends at 3.4e38, and optimisers multiply these with each other and with 10.
Rate = Annotated[float, Range(low=0, open_low=True, high=1e30)]
Decay = Annotated[float, Range(low=0, high=1e6)]

BUDGETS = ("steps", "epochs", "seconds", "minutes", "cpu_seconds")
"""The options that limit a training, of which only one may be set."""


@dataclass(frozen=True)
class TrainOptions:
    """The options of training.

    Args:
        steps: Number of optimizer steps. A step uses one batch, or `accumulate` batches.
        epochs: Number of passes over the training data.
        seconds: Time limit; the last step is finished.
        minutes: Time limit in minutes.
        cpu_seconds: Limit of CPU time, which a busy machine does not shorten.
        batch_size: Sequences per batch, over all processes together.
        accumulate: Batches per step. Their gradients are added up, each weighted by its number of
            targets, before the optimizer step, so that a large batch fits into memory.
        workers: Threads that prepare batches in advance. The default is two for recordings that
            stay on disk, and none for others.
        optimizer: The optimizer.
        learning_rate: Learning rate.
        constrained_learning_rate: Learning rate of constrained matrices; a tenth of
            `learning_rate` by default.
        weight_decay: Weight decay.
        momentum: Momentum of sgd and rmsprop.
        beta1: First-moment decay of the adam family.
        beta2: Second-moment decay of the adam family, squared-gradient decay of rmsprop.
        schedule: Schedule of the learning rate: constant, along a cosine or a line to zero, by
            `schedule_factor` every `schedule_every` steps, or by it when validation stalls.
        schedule_factor: Factor of the step and plateau schedules.
        schedule_every: Steps between changes of the step schedule; validations without improvement
            before a change of the plateau schedule.
        warmup_steps: Steps over which the learning rate grows from zero.
        clip: Largest norm of the gradient.
        patience: Early stopping after so many validations without improvement.
        goal: Early stopping when a validation reaches this value of the task's metric.
        validate_every: Steps between validations, each of which also saves a checkpoint; by
            default it depends on the budget.
        truncate: Truncated back-propagation: gradients reach back so many steps, and the state is
            carried on.
        precision: Number format: 32-true, 64-true, bf16-mixed, 16-mixed.
        accelerator: Passed to Lightning: auto, cpu, gpu, …
        devices: Number of processes or devices per machine.
        nodes: Number of machines.
        strategy: Passed to Lightning; the default with several devices is data parallel.
        tensorboard: Whether to write a TensorBoard log beside the CSV file.
    """

    steps: PositiveInt | None = None
    epochs: PositiveFloat | None = None
    seconds: PositiveFloat | None = None
    minutes: PositiveFloat | None = None
    cpu_seconds: PositiveFloat | None = None
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
        budgets = [name for name in BUDGETS if getattr(self, name) is not None]
        if len(budgets) > 1:
            raise OptionError(
                "Only one of train.steps, train.epochs, train.seconds, train.minutes and "
                f"train.cpu_seconds can limit a training, got {' and '.join(budgets)}."
            )
        if self.batch_size % self.processes:
            raise OptionError(
                f"train.batch_size must be a multiple of the {self.processes} processes, which "
                f"process equal parts of a batch, got {self.batch_size}."
            )
        if self.accumulate > 1 and self.truncate is not None:
            raise OptionError(
                "train.accumulate must be 1 with train.truncate, which makes an optimizer step "
                f"after every window, got {self.accumulate}."
            )
        if self.momentum and self.optimizer not in ("sgd", "rmsprop"):
            raise OptionError(
                f"train.momentum is an option of sgd and rmsprop only, got {self.momentum} with "
                f"{self.optimizer}. For the adam family set train.beta1."
            )
        if self.schedule == "step" and self.schedule_every is None:
            raise OptionError(
                "train.schedule=step needs train.schedule_every, for example "
                "train.schedule_every=1000."
            )

    @property
    def processes(self) -> int:
        """The number of processes, over all machines."""
        return self.devices * self.nodes

    @property
    def time_limit(self) -> float | None:
        """The time limit in seconds, if there is one."""
        return self.seconds if self.minutes is None else 60 * self.minutes
