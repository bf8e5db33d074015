"""A pendulum in videos: models receive the first frames and predict all of them."""

from __future__ import annotations

import copy
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import Batch
from undamped._base.errors import OptionError
from undamped._base.options import NonNegativeInt, PositiveFloat, PositiveInt
from undamped._base.registry import tasks
from undamped.lab.tasks.physics.pendulum import PendulumSystem
from undamped.lab.tasks.task import ArrayTask, Chance, Split, Task, generator_of

_STARTS = 0  # stream of random numbers
_REACH = 1.35
"""Half the side of a frame, in lengths of the pendulum."""
_BOB = 0.3
"""Radius of the bob."""
_VALID = 0.3
"""The largest error of the angle, in radians, of a valid prediction."""


@tasks.register("pendulum-pictures")
class PendulumPictures(ArrayTask):
    """A pendulum in videos: predict all frames from the first few.

    A model receives a few frames of a bob on a dark background, without the angle, and predicts
    these and the following frames. H = p² + 3 (1 − cos q), radii between 1.3 and 2.3. A second test
    has longer videos than training.

    Args:
        size: Rows and columns of a frame, a multiple of four.
        frames: Frames that a model receives.
        length: Frames that a model predicts, those that it receives included.
        step: Time between two frames.
        films: Training videos; a quarter as many for validation and test.
        horizon: Length of the longest test, in units of `length`.
        data_seed: Seed of the starts.
        seed: Seed of the order of the batches.

    Example:
        >>> task = build("pendulum-pictures", films=10)
        >>> task.batch("train", 0, 4).inputs.shape
        torch.Size([5, 4, 1, 16, 16])

    Reference:
        In the manner of P. Toth and others. Hamiltonian generative networks. ICLR, 2020.
    """

    recipes: ClassVar = {
        "*": {
            "train": {"steps": 4000, "batch_size": 32, "learning_rate": 1e-3, "schedule": "cosine"}
        },
        "hgn": {"model": {"hidden_size": 64, "step_size": 0.125}},
    }
    input_kind = "pictures"
    answer = "trajectory"
    metric = "mse"
    higher_is_better = False

    @checked
    def __init__(
        self,
        *,
        size: PositiveInt = 16,
        frames: PositiveInt = 5,
        length: PositiveInt = 20,
        step: PositiveFloat = 0.125,
        films: PositiveInt = 1000,
        horizon: PositiveFloat = 4.0,
        data_seed: NonNegativeInt = 0,
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(seed)
        if size % 4:
            raise OptionError(f"task.size must be a multiple of 4, got {size}.")
        if length < frames:
            raise OptionError(f"task.length must be at least frames ({frames}), got {length}.")
        self.size, self.frames, self.length, self.step = size, frames, length, step
        self.films, self.horizon, self.data_seed = films, horizon, data_seed
        self.picture_shape = (1, size, size)
        self.segments = (frames,)
        self.input_size = self.output_size = size * size
        self.system = PendulumSystem()
        self._states: dict[Split, Tensor] = {}
        self._shorter: PendulumPictures | None = None

    @property
    def times(self) -> Tensor:
        """Times of all frames, (frames,)."""
        return self.step * torch.arange(self.length, dtype=torch.float64)

    def states(self, split: Split) -> Tensor:
        """Return true angles and momenta, (frames, count, 2)."""
        if self._shorter is not None:
            split = "test"
        if split not in self._states:
            count = self.films if split == "train" else max(8, self.films // 4)
            starts = self.system.starts(count, generator_of(self.data_seed, split, _STARTS))
            self._states[split] = self.system.simulate(starts, self.times)
        return self._states[split]

    def sequences(self, split: Split) -> int:
        return self.states(split).shape[1]

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Return the first frames of videos, and all frames."""
        videos = draw(self.states(split)[:, index, 0], self.size)
        times = self.times.unsqueeze(1).expand(-1, len(index))
        return Batch(videos[: self.frames], videos, target_times=times)

    def more_scores(self, prediction: Tensor, batch: Batch) -> dict[str, tuple[float, float]]:
        """Return the error of predicted angles, and the time up to which they are valid."""
        assert batch.target_times is not None
        difference = angle_of(prediction.double()) - angle_of(batch.targets.double())
        error = torch.atan2(difference.sin(), difference.cos()).abs().nan_to_num(nan=torch.pi)
        invalid = error > _VALID
        first = torch.where(invalid.any(0), invalid.to(torch.uint8).argmax(0), len(error) - 1)
        times = batch.target_times.gather(0, first.unsqueeze(0))
        return {
            "angle_error": (error.sum().item(), float(error.numel())),
            "valid_time": (times.sum().item(), float(times.numel())),
        }

    @property
    def chance(self) -> Chance:
        """The score of the mean frame of training, in videos as long as those of training."""
        return self._chance if self._shorter is None else self._shorter.chance

    @cached_property
    def _chance(self) -> Chance:
        mean = draw(self.states("train")[:, :200, 0], self.size).mean((0, 1))
        videos = draw(self.states("test")[..., 0], self.size)
        error = (videos - mean).double().square().mean().item()
        return Chance(loss=error, metric=error, rule="always the mean frame")

    def test_tasks(self) -> dict[str, Task]:
        """Return videos as long as those of training, and longer ones."""
        end = round(self.horizon * self.length)
        if end <= self.length:
            return {"test": self}
        longer = copy.copy(self)
        longer.length, longer._states, longer._shorter = end, {}, self
        return {"test": self, f"to t = {self.step * (end - 1):g}": longer}

    def record(self) -> dict[str, Any]:
        return {"system": {"name": self.system.title, **self.system.constants()}}


def draw(angles: Tensor, size: int) -> Tensor:
    """Draw bobs of pendulums, (…, 1, size, size), from 0 for the background to 1 for the bob.

    Args:
        angles: Angles from straight down, (…,).
        size: Rows and columns of a frame; the first row is the highest.
    """
    pixels = _pixels(size, angles.dtype)
    x, y = angles.sin()[..., None, None], -angles.cos()[..., None, None]
    squares = (pixels - x).square() + (-pixels.unsqueeze(-1) - y).square()
    return torch.exp(-squares / (2 * _BOB**2)).unsqueeze(-3).float()


def angle_of(frames: Tensor) -> Tensor:
    """Return the angle of the centre of brightness of frames, (…,)."""
    size = frames.shape[-1]
    pixels = _pixels(size, frames.dtype).to(frames.device)
    brightness = frames.squeeze(-3).clamp_min(0).square()
    x = (brightness * pixels).sum((-2, -1))
    y = (brightness * -pixels.unsqueeze(-1)).sum((-2, -1))
    return torch.atan2(x, -y)


def _pixels(size: int, dtype: torch.dtype) -> Tensor:
    """Return the coordinates of the centres of pixels, in increasing order."""
    return _REACH * (2 * torch.arange(size, dtype=dtype) + 1 - size) / size
