"""A pendulum that is seen, and not measured: pictures in, later pictures asked for."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import Batch
from undamped._base.errors import OptionError, explain
from undamped._base.options import NonNegativeInt, PositiveFloat, PositiveInt
from undamped._base.registry import tasks
from undamped.lab.tasks.physics.pendulum import PendulumSystem
from undamped.lab.tasks.task import ArrayTask, Chance, Split, Task, generator_of

_STARTS = 0  # what random numbers are drawn for
_REACH = 1.35
"""Half the side of a picture, where the pendulum has length one."""
_BOB = 0.3
"""Radius of the bob."""
_LOST = 0.3
"""An angle that is off by more, in radians, is no longer the pendulum's."""


class _Seen(ArrayTask):
    """What the task and its longer tests share: frames are drawn when they are asked for."""

    input_kind = "pictures"
    answer = "trajectory"
    metric = "mse"
    higher_is_better = False
    frames: int
    """Frames that a model sees."""
    size: int

    def states(self, split: Split) -> Tensor:
        """Return true angles and momenta, (frames, count, 2)."""
        raise NotImplementedError

    @property
    def times(self) -> Tensor:
        """Times of all frames, (frames,)."""
        raise NotImplementedError

    def sequences(self, split: Split) -> int:
        """How many films a split has."""
        return self.states(split).shape[1]

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Return the first frames of films, and all frames that are asked for."""
        films = draw(self.states(split)[:, index, 0], self.size)
        times = self.times.unsqueeze(1).expand(-1, len(index))
        return Batch(films[: self.frames], films, target_times=times)

    def more_scores(self, prediction: Tensor, batch: Batch) -> dict[str, tuple[float, float]]:
        """How far off the angle in predicted pictures is, and until when it is right."""
        assert batch.target_times is not None
        apart = angle_of(prediction.double()) - angle_of(batch.targets.double())
        off = torch.atan2(apart.sin(), apart.cos()).abs().nan_to_num(nan=torch.pi)
        lost = off > _LOST
        first = torch.where(lost.any(0), lost.to(torch.uint8).argmax(0), len(off) - 1)
        lasted = batch.target_times.gather(0, first.unsqueeze(0))
        return {
            "angle_error": (off.sum().item(), float(off.numel())),
            "valid_time": (lasted.sum().item(), float(lasted.numel())),
        }


@tasks.register("pendulum-pictures")
class PendulumPictures(_Seen):
    """A pendulum in pictures: from the first few, see all that follow.

    Nobody says what an angle is: a model sees a few frames of a bob on a dark ground, and is asked
    for these and the following ones. H = p² + 3 (1 − cos q), radii between 1.3 and 2.3. The test
    goes on for longer than training does.

    Args:
        size: Rows and columns of a picture, a multiple of four.
        frames: Frames that are seen.
        asked: Frames that are asked for, those that are seen among them.
        step: Time between two frames.
        films: Training films; a quarter as many for validation and test.
        horizon: How many times as long the longest test is.
        data_seed: Where starts come from.
        seed: Where the order of training comes from.

    Example:
        >>> task = build("pendulum-pictures", films=10)
        >>> task.batch("train", 0, 4).inputs.shape
        torch.Size([5, 4, 1, 16, 16])

    Reference:
        In the manner of P. Toth and others. Hamiltonian generative networks. ICLR, 2020.
    """

    recipes: ClassVar = {
        "*": {
            "train": {
                "steps": 4000,
                "batch_size": 32,
                "learning_rate": 1e-3,
                "schedule": "cosine",
            }
        },
        "hgn": {"model": {"hidden_size": 64, "step_size": 0.125}},
    }

    @checked
    def __init__(
        self,
        *,
        size: PositiveInt = 16,
        frames: PositiveInt = 5,
        asked: PositiveInt = 20,
        step: PositiveFloat = 0.125,
        films: PositiveInt = 1000,
        horizon: PositiveFloat = 4.0,
        data_seed: NonNegativeInt = 0,
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(seed)
        for name, wrong, expected in (
            ("size", size % 4, "a multiple of 4"),
            ("asked", asked < frames, f"at least {frames}, the frames that are seen"),
        ):
            if wrong:
                got = {"size": size, "asked": asked}[name]
                raise OptionError(
                    explain(f"task.{name}", expected=expected, got=got, remedy="Choose another.")
                )
        self.size, self.frames, self.asked, self.step = size, frames, asked, step
        self.films, self.horizon, self.data_seed = films, horizon, data_seed
        self.picture_shape = (1, size, size)
        self.segments = (frames,)
        self.input_size = self.output_size = size * size
        self.system = PendulumSystem()

    @property
    def times(self) -> Tensor:
        """Times of all frames, (frames,)."""
        return self.step * torch.arange(self.asked, dtype=torch.float64)

    @cached_property
    def _states(self) -> dict[str, Tensor]:
        return {}

    def starts(self, split: Split) -> Tensor:
        """Return the states that films begin with, (count, 2)."""
        count = self.films if split == "train" else max(8, self.films // 4)
        return self.system.starts(count, generator_of(self.data_seed, split, _STARTS))

    def states(self, split: Split) -> Tensor:
        """Return true angles and momenta, (frames, count, 2)."""
        if split not in self._states:
            self._states[split] = self.system.simulate(self.starts(split), self.times)
        return self._states[split]

    @property
    def chance(self) -> Chance:
        """Always the mean picture of training."""
        return self._chance

    @cached_property
    def _chance(self) -> Chance:
        mean = draw(self.states("train")[:, :200, 0], self.size).mean((0, 1))
        films = draw(self.states("test")[..., 0], self.size)
        error = (films - mean).double().square().mean().item()
        return Chance(loss=error, metric=error, rule="always the mean picture")

    def test_parts(self) -> dict[str, Task]:
        """Films as long as those of training, and longer ones."""
        end = round(self.horizon * self.asked)
        if end <= self.asked:
            return {"test": self}
        return {"test": self, f"to t = {self.step * (end - 1):g}": LongerFilms(self, end)}

    def record(self) -> dict[str, Any]:
        """What a run has to remember about the system."""
        return {"system": {"name": self.system.title, **self.system.constants()}}


class LongerFilms(_Seen):
    """The test films of a task, for longer.

    Args:
        task: The task.
        asked: Frames that are asked for.
    """

    def __init__(self, task: PendulumPictures, asked: int) -> None:
        super().__init__(task.seed)
        self.task, self.asked = task, asked
        self.size, self.frames = task.size, task.frames
        self.picture_shape, self.segments = task.picture_shape, task.segments
        self.input_size, self.output_size = task.input_size, task.output_size

    @property
    def times(self) -> Tensor:
        """Times of all frames, (frames,)."""
        return self.task.step * torch.arange(self.asked, dtype=torch.float64)

    @cached_property
    def _all(self) -> Tensor:
        return self.task.system.simulate(self.task.starts("test"), self.times)

    def states(self, split: Split) -> Tensor:
        """Return true angles and momenta, (frames, count, 2); the same for every split."""
        return self._all

    @property
    def chance(self) -> Chance:
        """As for the shorter films."""
        return self.task.chance


def draw(angles: Tensor, size: int) -> Tensor:
    """Draw bobs of pendulums, (…, 1, size, size), from 0 for the ground to 1 for the bob.

    Args:
        angles: From hanging, (…,).
        size: Rows and columns of a picture; the first row is the highest.
    """
    place = _pixels(size, angles.dtype)
    x, y = angles.sin()[..., None, None], -angles.cos()[..., None, None]
    away = (place - x).square() + (-place.unsqueeze(-1) - y).square()
    return torch.exp(-away / (2 * _BOB**2)).unsqueeze(-3).float()


def angle_of(pictures: Tensor) -> Tensor:
    """Return the angle from the middle to the brightest part of pictures, (…,)."""
    size = pictures.shape[-1]
    place = _pixels(size, pictures.dtype).to(pictures.device)
    bright = pictures.squeeze(-3).clamp_min(0).square()
    x = (bright * place).sum((-2, -1))
    y = (bright * -place.unsqueeze(-1)).sum((-2, -1))
    return torch.atan2(x, -y)


def _pixels(size: int, dtype: torch.dtype) -> Tensor:
    """Return where the middles of pixels lie, from left to right, or from top to bottom."""
    return _REACH * (2 * torch.arange(size, dtype=dtype) + 1 - size) / size
