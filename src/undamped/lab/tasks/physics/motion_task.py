"""Learning the motion of a system: from rates of states, or from windows of trajectories."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, TypedDict

import torch
from torch import Tensor

from undamped._base.contract import Answer, Batch
from undamped._base.errors import OptionError
from undamped._base.options import (
    Default,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)
from undamped.lab.tasks.physics.scores import RolloutScores
from undamped.lab.tasks.physics.system import Partners, System, with_partners
from undamped.lab.tasks.task import ArrayTask, Chance, Split, Task, generator_of

Form = Literal["derivative", "trajectory"]
_STARTS, _NOISE = 0, 1  # streams of random numbers


class LearningOptions(TypedDict, total=False):
    """What is learnt of a motion."""

    form: Annotated[
        Form,
        Default("derivative", "Whether targets are the rates of states, or the readings to come."),
    ]
    window: Annotated[PositiveInt, Default(4, "Readings to come, where form is trajectory.")]
    error: Annotated[
        Literal["squared", "absolute"],
        Default("squared", "Whether training minimises squared or absolute errors."),
    ]
    seed: Annotated[NonNegativeInt, Default(0, "Seed of the order of the batches.")]


class MotionOptions(LearningOptions, total=False):
    """What is learnt of a simulated system, the size of the data, and the noise."""

    partners: Annotated[
        Partners, Default("own", "Momenta or velocities in states; by default as in the system.")
    ]
    noise: Annotated[
        NonNegativeFloat,
        Default(0.0, "Standard deviation of the noise of readings; rates have none."),
    ]
    trajectories: Annotated[
        PositiveInt | None,
        Default(None, "Training trajectories; by default as many as in the system's paper."),
    ]
    readings: Annotated[
        PositiveInt | None, Default(None, "Readings of each; by default as in the paper.")
    ]
    span: Annotated[
        PositiveFloat | None, Default(None, "The time they cover; by default as in the paper.")
    ]
    horizon: Annotated[
        PositiveFloat | None,
        Default(None, "The time of the longest test, in units of span; likewise."),
    ]
    data_seed: Annotated[NonNegativeInt, Default(0, "Seed of starts and noise.")]


class StateTask(ArrayTask):
    """A task whose inputs are states, and whose answers are their rates or later states.

    Args:
        options: Complete options; see `LearningOptions`.
    """

    recipes: ClassVar = {"*": {"train": {"steps": 2000, "batch_size": 256, "schedule": "cosine"}}}
    sequential: ClassVar[bool] = False
    input_kind = "states"
    higher_is_better = False
    metric = "mse"

    def __init__(self, options: Any) -> None:
        super().__init__(options["seed"])
        self.form: Form = options["form"]
        self.answer: Answer = "number" if self.form == "derivative" else "trajectory"
        self.window: int = options["window"]
        self.absolute = options["error"] == "absolute"

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        if not self.absolute:
            return super().loss(prediction, batch)
        return (prediction - batch.targets.to(prediction.dtype)).abs().mean()

    @cached_property
    def _chance(self) -> Chance:
        unused = torch.Generator()
        test = self.take("test", torch.arange(self.sequences("test")), unused)
        if self.form == "derivative":
            train = self.take("train", torch.arange(self.sequences("train")), unused)
            answer, rule = train.targets.mean(0).expand_as(test.targets), "always the mean rate"
        else:
            answer = test.inputs[:, : self.output_size].expand_as(test.targets)
            rule = "it stays where it is"
        error = (answer - test.targets).double()
        squared = error.square().mean().item()
        loss = error.abs().mean().item() if self.absolute else squared
        return Chance(loss=loss, metric=squared, rule=rule)

    @property
    def chance(self) -> Chance:
        """The mean rate of training, or no motion, on the test split."""
        return self._chance

    @property
    def _question(self) -> str:
        """What models predict, for `describe`."""
        rates = self.form == "derivative"
        return "predict the rates of states" if rates else "predict the states to come"


class MotionTask(StateTask):
    """A task about a simulated system; subclasses name the system.

    Args:
        system: The system.
        options: Complete options; see `MotionOptions`.
    """

    def __init__(self, system: System[Any], options: Any) -> None:
        super().__init__(options)
        self.system = with_partners(system, options["partners"])
        self.state_space = self.system.space
        self.noise: float = options["noise"]
        default = system.data_size
        self.trajectories: int = options["trajectories"] or default.trajectories
        self.readings: int = options["readings"] or default.readings
        self.span: float = options["span"] or default.span
        self.horizon: float = options["horizon"] or default.horizon
        self.data_seed: int = options["data_seed"]
        self.output_size = system.space.size
        self.input_size = system.space.size + len(system.space.inputs)
        self._data: dict[Split, tuple[Tensor, Tensor]] = {}
        self._noisy: dict[Split, tuple[Tensor, Tensor]] = {}
        if self.readings < 2:
            raise OptionError(f"task.readings must be at least 2, got {self.readings}.")
        if self.form == "trajectory" and self.window >= self.readings:
            raise OptionError(
                f"task.window must be less than the {self.readings} readings of a trajectory, got "
                f"{self.window}. Use more readings, or a shorter window."
            )

    @property
    def times(self) -> Tensor:
        """The times of the readings, (readings,)."""
        return torch.linspace(0, self.span, self.readings, dtype=torch.float64)

    def count_of(self, split: Split) -> int:
        """Return the number of trajectories of a split."""
        return self.trajectories if split == "train" else max(8, self.trajectories // 4)

    def data(self, split: Split) -> tuple[Tensor, Tensor]:
        """Return true starts with inputs (count, input) and states (readings, count, size)."""
        if split not in self._data:
            generator = generator_of(self.data_seed, split, _STARTS)
            starts = self.system.starts(self.count_of(split), generator)
            self._data[split] = starts, self.system.simulate(starts, self.times)
        return self._data[split]

    def _readings_of(self, split: Split) -> tuple[Tensor, Tensor]:
        """Return states with noise, followed by their inputs, and the true rates."""
        if split not in self._noisy:
            starts, states = self.data(split)
            u = starts[:, self.system.space.size :].expand(self.readings, -1, -1)
            rates = self.system.derivative(torch.cat((states, u), dim=-1))
            generator = generator_of(self.data_seed, split, _NOISE)
            noise = torch.randn(states.shape, generator=generator, dtype=states.dtype)
            readings = torch.cat((states + self.noise * noise, u), dim=-1)
            self._noisy[split] = readings.float(), rates.float()
        return self._noisy[split]

    # Batches

    @property
    def _samples_each(self) -> int:
        """Samples of one trajectory."""
        return self.readings if self.form == "derivative" else self.readings - self.window

    def sequences(self, split: Split) -> int:
        return self.count_of(split) * self._samples_each

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Return states with their rates, or with the readings to come."""
        readings, rates = self._readings_of(split)
        trajectory, step = index // self._samples_each, index % self._samples_each
        if self.form == "derivative":
            return Batch(readings[step, trajectory], rates[step, trajectory])
        future = step + 1 + torch.arange(self.window).unsqueeze(1)  # (window, batch)
        size = self.system.space.size
        times = self.times[1 : self.window + 1].unsqueeze(1).expand(-1, len(index))
        targets = readings[future, trajectory.expand_as(future)][..., :size]
        return Batch(readings[step, trajectory], targets, target_times=times)

    def test_tasks(self) -> dict[str, Task]:
        """Return the test states, trajectories from new starts, and longer ones."""
        ends = dict.fromkeys((self.span, self.horizon * self.span))
        return {"test": self, **{f"to t = {end:g}": Rollout(self, end) for end in ends}}

    def harder(self) -> dict[str, Any]:
        """Return noise."""
        return {} if self.noise else {"noise": 0.1}

    def record(self) -> dict[str, Any]:
        return {"system": {"name": self.system.title, **self.system.constants()}}

    def describe(self) -> str:
        return f"{super().describe().rstrip('.')}: {self._question}."


class Rollout(RolloutScores):
    """Trajectories from the noiseless starts of the test split, up to some time.

    Args:
        task: The task.
        end: The time at which the trajectories end.
    """

    def __init__(self, task: MotionTask, end: float) -> None:
        super().__init__(task)
        self.task, self.end, self.system = task, end, task.system

    @cached_property
    def times(self) -> Tensor:
        """Times with the step of training, up to the end, (readings,)."""
        step = self.task.span / (self.task.readings - 1)
        return step * torch.arange(round(self.end / step) + 1, dtype=torch.float64)

    @cached_property
    def data(self) -> tuple[Tensor, Tensor]:
        """Starts with inputs (count, input) and true states (readings, count, size)."""
        starts, states = self.task.data("test")
        if len(self.times) == len(states):
            return starts, states
        return starts, self.system.simulate(starts, self.times)

    def sequences(self, split: Split) -> int:
        """Return the number of trajectories, which is the same for every split."""
        return self.task.count_of("test")

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        starts, states = self.data
        times = self.times[1:].unsqueeze(1).expand(-1, len(index))
        return Batch(starts[index].float(), states[1:, index].float(), target_times=times)

    def energy(self, states: Tensor) -> Tensor:
        return self.system.energy(states)
