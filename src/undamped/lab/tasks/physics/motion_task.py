"""Learning how a system moves: from rates of states, or from short pieces of trajectories."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any

import torch
from torch import Tensor

from undamped._base.contract import Batch
from undamped._base.errors import OptionError, explain
from undamped._base.options import (
    Default,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)
from undamped.lab.tasks.physics.learns_motion import LearningOptions, LearnsMotion
from undamped.lab.tasks.physics.partners import Partners, with_partners
from undamped.lab.tasks.physics.scores import RolloutScores
from undamped.lab.tasks.physics.system import System
from undamped.lab.tasks.task import Split, Task, generator_of

_STARTS, _NOISE = 0, 1  # what random numbers are drawn for


class MotionOptions(LearningOptions, total=False):
    """What to learn from a simulated system, how much of it, and how noisy."""

    partners: Annotated[
        Partners,
        Default(
            "own",
            "What goes with positions: what the system has, or momenta, or velocities.",
        ),
    ]
    noise: Annotated[
        NonNegativeFloat,
        Default(0.0, "Standard deviation of the noise on readings; rates have none."),
    ]
    trajectories: Annotated[
        PositiveInt | None,
        Default(None, "Training trajectories; as many as the system's paper has if none is given."),
    ]
    readings: Annotated[PositiveInt | None, Default(None, "Readings of each, likewise.")]
    span: Annotated[PositiveFloat | None, Default(None, "The time they cover, likewise.")]
    horizon: Annotated[
        PositiveFloat | None,
        Default(None, "How many times that the longest test goes on for, likewise."),
    ]
    data_seed: Annotated[NonNegativeInt, Default(0, "Where starts and noise come from.")]


class MotionTask(LearnsMotion):
    """A task about a simulated system; subclasses name the system.

    Args:
        system: The system.
        seed: Where the order of training comes from.
        options: See `MotionOptions`; complete, as `checked` hands them on.
    """

    def __init__(self, system: System[Any], seed: int, options: Any) -> None:
        super().__init__(seed, options)
        self.system = with_partners(system, options["partners"])
        self.state_space = self.system.space
        self.noise: float = options["noise"]
        self.trajectories: int = options["trajectories"] or system.trajectories
        self.readings: int = options["readings"] or system.readings
        self.span: float = options["span"] or system.span
        self.horizon: float = options["horizon"] or system.horizon
        self.data_seed: int = options["data_seed"]
        self.output_size = system.space.size
        self.input_size = system.space.size + len(system.space.inputs)
        if self.readings < 2 or (self.form == "trajectory" and self.window >= self.readings):
            raise OptionError(
                explain(
                    "task.window" if self.readings > 1 else "task.readings",
                    expected=f"fewer than the {self.readings} readings of a trajectory"
                    if self.readings > 1
                    else "at least 2",
                    got=self.window if self.readings > 1 else self.readings,
                    remedy="Take more readings, or shorter windows.",
                )
            )

    @property
    def times(self) -> Tensor:
        """The times of the readings, (readings,)."""
        return torch.linspace(0, self.span, self.readings, dtype=torch.float64)

    def count_of(self, split: Split) -> int:
        """Return how many trajectories a split has."""
        return self.trajectories if split == "train" else max(8, self.trajectories // 4)

    @cached_property
    def _data(self) -> dict[str, tuple[Tensor, Tensor]]:
        return {}

    def data(self, split: Split) -> tuple[Tensor, Tensor]:
        """Return starts with inputs (count, input) and states (readings, count, size), true."""
        if split not in self._data:
            given = self.system.starts(
                self.count_of(split), generator_of(self.data_seed, split, _STARTS)
            )
            self._data[split] = given, self.system.simulate(given, self.times)
        return self._data[split]

    @cached_property
    def _noisy(self) -> dict[str, tuple[Tensor, Tensor]]:
        return {}

    def _readings_of(self, split: Split) -> tuple[Tensor, Tensor]:
        """Return what is read: states with noise and inputs behind them, and the rates."""
        if split not in self._noisy:
            given, states = self.data(split)
            u = given[:, self.system.space.size :].expand(self.readings, -1, -1)
            rates = self.system.derivative(torch.cat((states, u), dim=-1))
            generator = generator_of(self.data_seed, split, _NOISE)
            noise = torch.randn(states.shape, generator=generator, dtype=states.dtype)
            read = torch.cat((states + self.noise * noise, u), dim=-1)
            self._noisy[split] = read.float(), rates.float()
        return self._noisy[split]

    # Batches

    @property
    def _starts_each(self) -> int:
        """How many places of a trajectory something is learnt from."""
        return self.readings if self.form == "derivative" else self.readings - self.window

    def sequences(self, split: Split) -> int:
        """How many states, or windows, a split has."""
        return self.count_of(split) * self._starts_each

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Return states with their rates, or with the readings that follow them."""
        read, rates = self._readings_of(split)
        who, when = index // self._starts_each, index % self._starts_each
        if self.form == "derivative":
            return Batch(read[when, who], rates[when, who])
        following = when + 1 + torch.arange(self.window).unsqueeze(1)  # (window, batch)
        size = self.system.space.size
        times = self.times[1 : self.window + 1].unsqueeze(1).expand(-1, len(index))
        return Batch(
            read[when, who],
            read[following, who.expand_as(following)][..., :size],
            target_times=times,
        )

    def test_parts(self) -> dict[str, Task]:
        """Test states, then whole trajectories of unseen starts, and longer ones than learnt."""
        ends = dict.fromkeys((self.span, self.horizon * self.span))
        return {"test": self, **{f"to t = {end:g}": Rollout(self, end) for end in ends}}

    def harder(self) -> dict[str, Any]:
        """Noise, for a person who wants to go on."""
        return {} if self.noise else {"noise": 0.1}

    def record(self) -> dict[str, Any]:
        """What a run has to remember about the system."""
        return {"system": {"name": self.system.title, **self.system.constants()}}

    def describe(self) -> str:
        """Say in one line what a model is asked to do."""
        asked = "how fast its state changes" if self.form == "derivative" else "where it will be"
        return f"{(type(self).__doc__ or '').splitlines()[0].rstrip('.')}: say {asked}."


class Rollout(RolloutScores):
    """Whole trajectories of a task's test part, from clean starts, to a time of its own.

    Args:
        task: The task.
        end: Where the trajectories end.
    """

    def __init__(self, task: MotionTask, end: float) -> None:
        super().__init__(task.seed)
        self.task, self.end = task, end
        self.system, self.state_space = task.system, task.state_space
        self.input_size, self.output_size = task.input_size, task.output_size

    @cached_property
    def times(self) -> Tensor:
        """Times as far apart as those of training, to the end, (readings,)."""
        step = self.task.span / (self.task.readings - 1)
        return step * torch.arange(round(self.end / step) + 1, dtype=torch.float64)

    @cached_property
    def data(self) -> tuple[Tensor, Tensor]:
        """Starts with inputs (count, input) and true states (readings, count, size)."""
        given, states = self.task.data("test")
        if len(self.times) == len(states):
            return given, states
        return given, self.system.simulate(given, self.times)

    def sequences(self, split: Split) -> int:
        """How many trajectories there are; the same for every split."""
        return self.task.count_of("test")

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Return starts, and where they lead."""
        given, states = self.data
        times = self.times[1:].unsqueeze(1).expand(-1, len(index))
        return Batch(given[index].float(), states[1:, index].float(), target_times=times)

    def energy(self, states: Tensor) -> Tensor:
        """Return the true energy."""
        return self.system.energy(states)
