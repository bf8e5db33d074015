"""Toy tasks and models that use everything a batch may carry, each the smallest of its kind."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from undamped._base.contract import Batch, StateSpace, TaskShape
from undamped._base.options import Units
from undamped.lab.tasks import Chance
from undamped.lab.tasks.task import GeneratedTask
from undamped.models import TaskModel
from undamped.ode import odeint

PICTURES = TaskShape(
    3 * 9 * 8,
    3,
    "pictures",
    needs=frozenset({"pictures"}),
    picture_shape=(3, 9, 8),
    segments=(2, 3),
)
"""The shape of a task of five small pictures: a pair and a triplet."""


class Small(GeneratedTask):
    held_out: ClassVar = {"valid": 8, "test": 12}


class BrightQuarter(Small):
    """Which quarter of the pictures flashed, some steps ago."""

    input_kind = "pictures"
    picture_shape = (2, 4, 4)
    input_size = 32
    output_size = 4
    chance = Chance(loss=1.386, metric=0.25, rule="a quarter")

    def draw(self, size, generator):
        quarter = torch.randint(4, (size,), generator=generator)
        pictures = 0.1 * torch.rand(5, size, 2, 4, 4, generator=generator)
        for i, q in enumerate(quarter.tolist()):
            y, x = 2 * (q // 2), 2 * (q % 2)
            pictures[1, i, :, y : y + 2, x : x + 2] = 1
        return Batch(pictures, quarter)


class NumberedQuarter(BrightQuarter):
    """The same with few pictures, which are numbered: each is handed over once."""

    segments = (5,)

    def draw(self, size, generator):
        pictures = torch.zeros(6, 2, 4, 4)
        pictures[5] = 0.1
        for q in range(4):
            y, x = 2 * (q // 2), 2 * (q % 2)
            pictures[q, :, y : y + 2, x : x + 2] = 1
        quarter = torch.randint(4, (size,), generator=generator)
        numbers = torch.randint(4, 6, (5, size), generator=generator)
        numbers[1] = quarter
        return Batch(numbers, quarter, distinct=pictures)


class PictureModel(TaskModel):
    """A convolution for every picture, an LSTM over what it sees."""

    uses = frozenset({"pictures"})
    input_kinds = frozenset({"pictures"})
    sequential = True

    def __init__(self, shape: TaskShape, *, hidden_size: Units = 16) -> None:
        super().__init__()
        assert shape.picture_shape is not None
        channels = shape.picture_shape[0]
        self.see = nn.Conv2d(channels, 4, 2, stride=2)
        self.remember = nn.LSTM(16, hidden_size)
        self.head = nn.Linear(hidden_size, shape.output_size)

    def run(self, batch, state=None):
        dtype = self.head.weight.dtype
        seen = batch.each_input(lambda pictures: self.see(pictures.to(dtype)).flatten(1))
        outputs, state = self.remember(seen, state)
        return self.head(outputs[-1]), state


class LateRamp(Small):
    """The value of a ramp at its last sample; samples come at odd times, and some are missing."""

    input_size = 2
    output_size = 1
    answer = "number"
    metric = "mse"
    higher_is_better = False
    needs = frozenset({"times", "observed"})
    chance = Chance(loss=1.0, metric=1.0, rule="the mean")

    def draw(self, size, generator):
        gaps = 0.2 + torch.rand(7, size, generator=generator)
        times, slope = gaps.cumsum(0), torch.randn(size, generator=generator)
        values = times * slope
        inputs = torch.stack([values, slope.expand(7, size)], -1)
        observed = torch.rand(7, size, 2, generator=generator) > 0.3
        observed[0] = True
        lengths = torch.randint(3, 8, (size,), generator=generator)
        target = values.gather(0, (lengths - 1).unsqueeze(0)).squeeze(0).unsqueeze(-1)
        # What was not measured must not be seen, so it is not even a number.
        inputs = inputs.masked_fill(~observed, torch.nan)
        return Batch(inputs, target, lengths, times=times, observed=observed)


class DecayingModel(TaskModel):
    """A state that decays with the time between samples, and reads what was measured."""

    uses = frozenset({"times", "observed"})
    sequential = True

    def __init__(self, shape: TaskShape, *, hidden_size: Units = 8) -> None:
        super().__init__()
        self.read = nn.Linear(2 * shape.input_size, hidden_size)
        self.rate = nn.Parameter(torch.zeros(hidden_size))
        self.head = nn.Linear(hidden_size, shape.output_size)

    def run(self, batch, state=None):
        assert batch.times is not None and batch.observed is not None
        hidden = self.rate.new_zeros(batch.inputs.shape[1], len(self.rate))
        before = batch.times[0]
        for t, (x, seen, now) in enumerate(
            zip(batch.inputs, batch.observed, batch.times, strict=True)
        ):
            x = torch.cat([x.masked_fill(~seen, 0), seen], -1).to(self.rate.dtype)
            gap = (now - before).unsqueeze(-1).to(self.rate.dtype)
            new = hidden * torch.exp(-gap * self.rate.exp()) + torch.tanh(self.read(x))
            running = (t < batch.lengths).unsqueeze(-1) if batch.lengths is not None else True
            hidden, before = torch.where(torch.as_tensor(running), new, hidden), now
        return self.head(hidden), hidden


class Spring(Small):
    """Where a spring will be at times of its own, from where it is; some answers are unknown."""

    sequential = False
    input_kind = "states"
    input_size = 2
    output_size = 2
    answer = "trajectory"
    metric = "mse"
    higher_is_better = False
    state_space = StateSpace(("q", "p"), ("position", "momentum"))
    chance = Chance(loss=0.5, metric=0.5, rule="rest")

    def draw(self, size, generator):
        start = torch.randn(size, 2, generator=generator)
        times = torch.rand(5, size, generator=generator).cumsum(0)
        q, p = start.unbind(-1)
        cos, sin = times.cos(), times.sin()
        targets = torch.stack([q * cos + p * sin, p * cos - q * sin], -1)
        mask = torch.rand(5, size, generator=generator) > 0.2
        return Batch(
            start,
            targets.masked_fill(~mask.unsqueeze(-1), torch.nan),
            target_times=times,
            target_mask=mask,
        )


class SpringSlopes(Spring):
    """dq/dt and dp/dt of a spring: states with derivatives for answers."""

    answer = "number"

    def draw(self, size, generator):
        state = torch.randn(size, 2, generator=generator)
        return Batch(state, torch.stack([state[:, 1], -state[:, 0]], -1))


class FieldModel(TaskModel):
    """A linear field, solved to the times that are asked for."""

    uses = frozenset({"target_times"})
    answers = frozenset({"trajectory"})
    input_kinds = frozenset({"states"})
    sequential = False

    def __init__(self, shape: TaskShape) -> None:
        super().__init__()
        assert shape.state_space is not None and shape.state_space.indices("momentum") == (1,)
        self.field = nn.Linear(shape.input_size, shape.input_size, bias=False)
        nn.init.zeros_(self.field.weight)

    def run(self, batch, state=None):
        assert batch.target_times is not None
        # Samples have times of their own, so each is solved on its own clock: dy/ds = T dy/dt.
        scale = batch.target_times[-1]
        s = torch.linspace(0, 1, 101, dtype=self.field.weight.dtype)
        start = batch.inputs.to(self.field.weight.dtype)
        path = odeint(lambda _, y: scale.to(y.dtype).unsqueeze(-1) * self.field(y), start, s)
        return _between(path, batch.target_times / scale), None


def _between(path: Tensor, at: Tensor) -> Tensor:
    """Read a path (101, batch, features) at fractions (outputs, batch) of its time."""
    place = (at.to(path.dtype) * 100).clamp(0, 99.999)
    low, sample = place.long(), torch.arange(path.shape[1])
    share = (place - low).unsqueeze(-1)
    return path[low, sample] * (1 - share) + path[low + 1, sample] * share
