"""Processes of which now one channel is measured and now another: say what is measured next."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from undamped._base.contract import Batch, Clock
from undamped._base.options import NonNegativeInt, PositiveInt
from undamped.lab.tasks.task import ArrayTask, Chance, Split


class SporadicTask(ArrayTask):
    """Say the next measurement of a process that is measured now and then.

    A process is measured at random times, at most of them one of its channels alone. In training a
    random moment divides what is seen from what is asked for, the next few measurements; in
    validation and test it is always the same one, and the next measurement is asked for.

    Args:
        series: How many processes there are to learn from.
        ahead: How many measurements are asked for in training.
        seed: Where all random numbers come from.
    """

    input_size = 2
    output_size = 2
    answer = "trajectory"
    same_channels = True
    metric = "mse"
    higher_is_better = False
    needs = frozenset({"times", "observed"})
    held_out: ClassVar[dict[Split, int]] = {"valid": 500, "test": 2000}

    span: ClassVar[float]
    """How long a process is watched."""
    step: ClassVar[float]
    """Between two moments of its simulation."""
    rate: ClassVar[float]
    """Measurements per unit of time, give or take a fifth."""
    joint: ClassVar[float]
    """Share of the measurements that see both channels."""
    cut: ClassVar[float]
    """What validation and test see lies before this time."""

    def __init__(
        self,
        *,
        series: PositiveInt = 5000,
        ahead: PositiveInt = 4,
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(seed)
        self.series, self.ahead = series, ahead
        self.clock = Clock(gap=1 / self.rate, span=self.span)
        self._measured: dict[Split, tuple[Tensor, Tensor, Tensor]] = {}
        self._chance: Chance | None = None

    @abstractmethod
    def simulate(self, count: int, random: np.random.Generator) -> np.ndarray:
        """Return processes (count, moments, 2)."""

    def sequences(self, split: Split) -> int:
        """How many processes a part has."""
        return self.series if split == "train" else self.held_out[split]

    def of(self, split: Split) -> tuple[Tensor, Tensor, Tensor]:
        """Return times (n, most), infinite beyond the last; values and what was measured."""
        if split not in self._measured:
            number = {"train": 0, "valid": 1, "test": 2}[split]
            random = np.random.default_rng([self.seed, number])
            values = self.simulate(self.sequences(split), random).astype(np.float32)
            self._measured[split] = self._measure(values, random)
        return self._measured[split]

    def _measure(
        self, values: np.ndarray, random: np.random.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        usual = self.rate * self.span
        counts = random.integers(round(0.8 * usual), round(1.2 * usual), len(values))
        most = int(counts.max())
        drawn = random.random(values.shape[:2]).argsort(1)[:, :most]
        unused = np.arange(most) >= counts[:, None]
        place = np.sort(np.where(unused, values.shape[1], drawn), axis=1)
        inside = place < values.shape[1]
        times = np.where(inside, place * self.step, np.inf)
        taken = np.take_along_axis(values, np.minimum(place, values.shape[1] - 1)[..., None], 1)
        kind = random.random(place.shape)
        alone = (1 - self.joint) / 2
        seen = np.stack([kind >= alone, (kind < alone) | (kind >= 2 * alone)], -1)
        seen &= inside[..., None]
        return torch.from_numpy(times), torch.from_numpy(taken), torch.from_numpy(seen)

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Divide the chosen processes into what is seen and what is asked for."""
        times, values, seen = (part[index] for part in self.of(split))
        count = torch.isfinite(times).sum(1)
        if split == "train":
            share = torch.rand(len(index), generator=generator)
            known = 1 + (share * (count - 1)).long()  # at least one, and at least one is left
        else:
            known = (times < self.cut).sum(1).clamp(min=1).minimum(count - 1)
        ahead = self.ahead if split == "train" else 1
        longest = int(known.max())
        place = known.unsqueeze(1) + torch.arange(ahead)
        there = place < count.unsqueeze(1)
        place = place.minimum(count.unsqueeze(1) - 1)
        wide = place.unsqueeze(-1).expand(-1, -1, 2)
        mask = seen.gather(1, wide) & there.unsqueeze(-1)
        last = times.gather(1, known.unsqueeze(1) - 1)
        timestamps = torch.where(
            torch.arange(longest) < known.unsqueeze(1), times[:, :longest], last
        )
        # What was not measured must not be seen, so it is not even a number.
        inputs = values[:, :longest].masked_fill(~seen[:, :longest], torch.nan)
        return Batch(
            inputs.transpose(0, 1),
            values.gather(1, wide).transpose(0, 1),
            known,
            times=timestamps.T,
            observed=seen[:, :longest].transpose(0, 1),
            target_times=times.gather(1, place).T,
            target_mask=mask.transpose(0, 1),
        )

    @property
    def chance(self) -> Chance:
        """The last value of each channel, on the test part; before there was one, the mean."""
        if self._chance is None:
            self._chance = self._guess()
        return self._chance

    def _guess(self) -> Chance:
        batch = self.batch("test", 0, self.sequences("test"))
        assert batch.observed is not None and batch.target_mask is not None
        assert batch.lengths is not None
        _, values, seen = self.of("train")
        mean = torch.stack([values[..., c][seen[..., c]].mean() for c in range(2)])
        steps = torch.arange(len(batch.inputs)).view(-1, 1, 1)
        known = batch.observed & (steps < batch.lengths.view(1, -1, 1))
        last = torch.where(known, steps, -1).amax(0)
        held = batch.inputs.gather(0, last.clamp(min=0).unsqueeze(0)).squeeze(0)
        guess = torch.where(last >= 0, held, mean)
        mask = batch.target_mask[0]
        error = float((guess - batch.targets[0])[mask].double().square().mean())
        return Chance(loss=error, metric=error, rule="the last value")
