"""Curves of which some points are seen: say the others, between them or after them."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from undamped._base.contract import Batch, Clock
from undamped._base.errors import OptionError, explain
from undamped._base.options import NonNegativeInt, PositiveInt
from undamped.lab.tasks.task import ArrayTask, Chance, Split

Ask = Literal["all", "second-half"]


class CurveTask(ArrayTask):
    """Say all points of a curve from a few of them, or its second half from its first.

    Every curve has times of its own. Which of its points are seen is drawn anew whenever a
    training curve comes round again; those of validation and test curves are always the same.

    Args:
        series: How many curves there are to learn from.
        points: Points of a curve; half of them in the first half of its time.
        seen: How many of them a model sees; with `ask="second-half"` all of them lie in the
            first half.
        ask: Whether all points are asked for, those that were seen too, or the second half.
        seed: Where all random numbers come from.
    """

    answer = "trajectory"
    same_channels = True
    metric = "mse"
    higher_is_better = False
    needs = frozenset({"times"})
    span: float
    """How long a curve lasts."""
    held_out: ClassVar[dict[Split, int]] = {"valid": 200, "test": 500}

    def __init__(
        self,
        *,
        series: PositiveInt = 1000,
        points: PositiveInt = 100,
        seen: PositiveInt = 20,
        ask: Ask = "all",
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(seed)
        most = points if ask == "all" else points // 2
        if seen > most:
            raise OptionError(
                explain(
                    "task.seen",
                    expected=f"at most {most}, the points there are to see",
                    got=seen,
                    remedy="Choose fewer, or more points.",
                )
            )
        self.series, self.points, self.seen, self.ask = series, points, seen, ask
        length = self.span if ask == "all" else self.span / 2
        self.clock = Clock(gap=length / seen, span=self.span)
        self._curves: dict[Split, tuple[Tensor, Tensor]] = {}
        self._chance: Chance | None = None

    @abstractmethod
    def curves(self, count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return times (count, points), rising, and values (count, points, features)."""

    def sequences(self, split: Split) -> int:
        """How many curves a part has."""
        return self.series if split == "train" else self.held_out[split]

    def of(self, split: Split) -> tuple[Tensor, Tensor]:
        """Return times (curves, points) and values (curves, points, features) of a part."""
        if split not in self._curves:
            number = {"train": 0, "valid": 1, "test": 2}[split]
            random = np.random.default_rng([self.seed, number])
            times, values = self.curves(self.sequences(split), random)
            self._curves[split] = (
                torch.from_numpy(times),
                torch.from_numpy(values.astype(np.float32)),
            )
        return self._curves[split]

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Draw what is seen of the chosen curves, and ask for the rest."""
        times, values = (part[index] for part in self.of(split))
        half = self.points // 2
        window = self.points if self.ask == "all" else half
        # The order of random numbers: its first places are a draw without replacement.
        if split == "train":
            order = torch.rand(len(index), window, generator=generator)
        else:  # of the whole part, so that batches of any size see the same points of a curve
            first = self.generator(split, 0)
            order = torch.rand(self.sequences(split), window, generator=first)[index]
        drawn = order.argsort(1)[:, : self.seen]
        chosen = drawn.sort(1).values
        asked = slice(None) if self.ask == "all" else slice(half, None)
        picked = chosen.unsqueeze(-1).expand(-1, -1, values.shape[-1])
        return Batch(
            values.gather(1, picked).transpose(0, 1),
            values[:, asked].transpose(0, 1),
            times=times.gather(1, chosen).T,
            target_times=times[:, asked].T,
        )

    def spread_times(self, count: int, random: np.random.Generator) -> np.ndarray:
        """Return random times (count, points), half of them in each half of the span."""
        half = self.points // 2
        first = random.uniform(0, self.span / 2, (count, half))
        second = random.uniform(self.span / 2, self.span, (count, self.points - half))
        return np.sort(np.concatenate([first, second], 1), axis=1)

    @property
    def chance(self) -> Chance:
        """Lines between what was seen, or its mean, on the test part."""
        if self._chance is None:
            self._chance = self._guess()
        return self._chance

    def _guess(self) -> Chance:
        size = self.sequences("test")
        batch = self.batch("test", 0, size)
        assert batch.times is not None and batch.target_times is not None
        guess = np.empty(batch.targets.shape)
        for b in range(size):
            for c in range(guess.shape[-1]):
                seen = batch.inputs[:, b, c].numpy()
                if self.ask == "all":
                    asked, timestamps = batch.target_times[:, b], batch.times[:, b]
                    guess[:, b, c] = np.interp(asked, timestamps, seen)
                else:
                    guess[:, b, c] = seen.mean()
        error = float(np.square(guess - batch.targets.numpy()).mean())
        said = "lines between what was seen" if self.ask == "all" else "the mean of what was seen"
        return Chance(loss=error, metric=error, rule=said)
