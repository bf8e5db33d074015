"""Curves that are observed at some points: predict the others, between them or after them."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, TypedDict, Unpack

import numpy as np
import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import Batch, Clock
from undamped._base.errors import OptionError
from undamped._base.options import Default, NonNegativeInt, PositiveInt
from undamped._base.registry import tasks
from undamped.lab.tasks.task import SPLITS, ArrayTask, Chance, Split

Query = Literal["all", "second-half"]
Data = tuple[Tensor, ...]


class IrregularTask(ArrayTask):
    """Simulated series that are observed at irregular times, and predicted at others.

    Args:
        series: Series of the training split.
        seed: Seed of the data.
    """

    answer = "trajectory"
    same_channels = True
    metric = "mse"
    higher_is_better = False
    held_out: ClassVar[dict[Split, int]]
    span: float
    """The duration of a series."""

    def __init__(self, series: int, seed: int) -> None:
        super().__init__(seed)
        self.series = series
        self._data: dict[Split, Data] = {}

    def sequences(self, split: Split) -> int:
        return self.series if split == "train" else self.held_out[split]

    def data(self, split: Split) -> Data:
        """Return the tensors of a split, which are simulated once."""
        if split not in self._data:
            random = np.random.default_rng([self.seed, SPLITS.index(split)])
            self._data[split] = self.simulate_split(split, random)
        return self._data[split]

    @abstractmethod
    def simulate_split(self, split: Split, random: np.random.Generator) -> Data:
        """Return the tensors of a split."""

    @abstractmethod
    def naive_error(self, batch: Batch) -> tuple[float, str]:
        """Return the mean squared error of the naive baseline on a batch, and its rule."""

    @cached_property
    def _chance(self) -> Chance:
        error, rule = self.naive_error(self.batch("test", 0, self.sequences("test")))
        return Chance(loss=error, metric=error, rule=rule)

    @property
    def chance(self) -> Chance:
        return self._chance


class CurveOptions(TypedDict, total=False):
    """Options of curves that are observed at some of their points."""

    series: Annotated[PositiveInt, Default(1000, "Curves of the training split.")]
    points: Annotated[
        PositiveInt, Default(100, "Points of a curve; half of them in the first half of its time.")
    ]
    observed: Annotated[
        PositiveInt,
        Default(
            20,
            'How many points a model receives; with query="second-half" all are in the first half.',
        ),
    ]
    query: Annotated[
        Query,
        Default(
            "all", "Whether all points are predicted, also the observed ones, or the second half."
        ),
    ]
    seed: Annotated[NonNegativeInt, Default(0, "Seed of the data.")]


class CurveTask(IrregularTask):
    """Predict all points of a curve from a few of them, or its second half from its first.

    Every curve has its own times. The observed points of a training curve are drawn anew in every
    epoch; those of validation and test curves are always the same.

    Args:
        options: Complete options; see `CurveOptions`.
    """

    needs = frozenset({"times"})
    held_out: ClassVar[dict[Split, int]] = {"valid": 200, "test": 500}

    def __init__(self, options: Any) -> None:
        super().__init__(options["series"], options["seed"])
        self.points: int = options["points"]
        self.observed: int = options["observed"]
        self.query: Query = options["query"]
        most = self.points if self.query == "all" else self.points // 2
        if self.observed > most:
            raise OptionError(
                f"task.observed must be at most {most}, the points that can be observed; got "
                f"{self.observed}. Use fewer, or more points."
            )
        duration = self.span if self.query == "all" else self.span / 2
        self.clock = Clock(gap=duration / self.observed, span=self.span)

    @abstractmethod
    def simulate_split(self, split: Split, random: np.random.Generator) -> Data:
        """Return increasing times (curves, points), and values (curves, points, features)."""

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Return random points of curves, and the points that are predicted."""
        times, values = (tensor[index] for tensor in self.data(split))
        half = self.points // 2
        window = self.points if self.query == "all" else half
        # The first indices of a random order are a draw without replacement.
        if split == "train":
            order = torch.rand(len(index), window, generator=generator)
        else:  # for the whole split, so that observed points do not depend on the batch size
            first = self.generator(split, 0)
            order = torch.rand(self.sequences(split), window, generator=first)[index]
        observed = order.argsort(1)[:, : self.observed].sort(1).values
        targets = slice(None) if self.query == "all" else slice(half, None)
        every_feature = observed.unsqueeze(-1).expand(-1, -1, values.shape[-1])
        return Batch(
            values.gather(1, every_feature).transpose(0, 1),
            values[:, targets].transpose(0, 1),
            times=times.gather(1, observed).T,
            target_times=times[:, targets].T,
        )

    def spread_times(self, count: int, random: np.random.Generator) -> np.ndarray:
        """Return random times (count, points), half of them in each half of the span."""
        half = self.points // 2
        first = random.uniform(0, self.span / 2, (count, half))
        second = random.uniform(self.span / 2, self.span, (count, self.points - half))
        return np.sort(np.concatenate([first, second], 1), axis=1)

    def naive_error(self, batch: Batch) -> tuple[float, str]:
        """Return the error of lines between observed points, or of their mean."""
        assert batch.times is not None and batch.target_times is not None
        prediction = np.empty(batch.targets.shape)
        for b in range(prediction.shape[1]):
            for c in range(prediction.shape[-1]):
                values = batch.inputs[:, b, c].numpy()
                if self.query == "all":
                    times = batch.target_times[:, b], batch.times[:, b]
                    prediction[:, b, c] = np.interp(*times, values)
                else:
                    prediction[:, b, c] = values.mean()
        error = float(np.square(prediction - batch.targets.numpy()).mean())
        interpolated = self.query == "all"
        return error, "lines between observations" if interpolated else "the mean of observations"


@tasks.register("periodic")
class Periodic(CurveTask):
    """Predict a sine wave of unknown frequency and offset from a few points at random times.

    x(t) = sin(2π f t) + z + noise, f uniform between 0.4 and 0.8, z from a normal distribution of
    mean 1 and deviation 0.1, noise uniform between 0 and 0.01, t from 0 to 5.

    Example:
        >>> build("periodic", observed=20).batch("test", 0, 8).inputs.shape
        torch.Size([20, 8, 1])

    Reference:
        Y. Rubanova, R. Chen, D. Duvenaud. Latent ordinary differential equations for
        irregularly-sampled time series. NeurIPS, 2019; waves as in the authors' program, times
        drawn for every wave.
    """

    input_size = 1
    output_size = 1
    span = 5.0
    recipes: ClassVar = {
        "*": {"model": {"hidden_size": 32}, "train": {"batch_size": 50, "minutes": 5}}
    }

    @checked
    def __init__(self, **options: Unpack[CurveOptions]) -> None:
        super().__init__(options)

    def simulate_split(self, split: Split, random: np.random.Generator) -> Data:
        count = self.sequences(split)
        times = self.spread_times(count, random)
        frequency = random.uniform(0.4, 0.8, (count, 1))
        level = random.normal(1.0, 0.1, (count, 1))
        noise = 0.01 * random.uniform(0, 1, times.shape)
        values = (np.sin(2 * np.pi * frequency * times) + level + noise)[..., None]
        return torch.from_numpy(times), torch.from_numpy(values.astype(np.float32))
