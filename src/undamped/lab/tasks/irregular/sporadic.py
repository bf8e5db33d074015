"""Processes whose channels are measured at different times: predict the next measurement."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, ClassVar, TypedDict, Unpack

import numpy as np
import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import Batch, Clock
from undamped._base.options import Default, NonNegativeInt, PositiveInt
from undamped._base.registry import tasks
from undamped.lab.tasks.irregular.curves import Data, IrregularTask
from undamped.lab.tasks.task import COSINE, Split


class SporadicOptions(TypedDict, total=False):
    """Options of processes that are measured sporadically."""

    series: Annotated[PositiveInt, Default(5000, "Processes of the training split.")]
    horizon: Annotated[PositiveInt, Default(4, "Measurements that are predicted in training.")]
    seed: Annotated[NonNegativeInt, Default(0, "Seed of the data.")]


class SporadicTask(IrregularTask):
    """Predict the next measurement of a process that is measured sporadically.

    A process is measured at random times, mostly in one of its channels only. In training, a random
    time divides the inputs from the targets, the next few measurements; in validation and test it
    is always the same, and the next measurement is predicted.
    """

    recipes: ClassVar = {
        "*": {
            "model": {"hidden_size": 32},
            "train": {"batch_size": 100, "minutes": 5, "learning_rate": 3e-3},
        }
    }
    input_size = 2
    output_size = 2
    needs = frozenset({"times", "observed"})
    held_out: ClassVar[dict[Split, int]] = {"valid": 500, "test": 2000}

    step: ClassVar[float]
    """Step of the simulation."""
    rate: ClassVar[float]
    """Measurements per unit of time, with a variation of a fifth."""
    joint: ClassVar[float]
    """Fraction of the measurements of both channels."""
    cut: ClassVar[float]
    """In validation and test, inputs are before this time."""
    noise: ClassVar[float]
    """Standard deviation of the noise per unit of time."""
    correlation: ClassVar[float]
    """Correlation of the noise of the two channels."""

    @checked
    def __init__(self, **options: Unpack[SporadicOptions]) -> None:
        complete: Any = options  # `checked` fills in the defaults
        super().__init__(complete["series"], complete["seed"])
        self.horizon: int = complete["horizon"]
        self.clock = Clock(gap=1 / self.rate, span=self.span)

    @abstractmethod
    def simulate(self, count: int, random: np.random.Generator) -> np.ndarray:
        """Return processes (count, steps, 2)."""

    def draw_noise(self, count: int, random: np.random.Generator) -> np.ndarray:
        """Return correlated noise of every step, (count, steps, 2)."""
        steps = round(self.span / self.step)
        first = random.normal(size=(count, steps))
        independent = random.normal(size=(count, steps))
        second = self.correlation * first + np.sqrt(1 - self.correlation**2) * independent
        return self.noise * np.sqrt(self.step) * np.stack([first, second], -1)

    def simulate_split(self, split: Split, random: np.random.Generator) -> Data:
        """Return times (n, most), infinite beyond the last, values, and what was measured."""
        values = self.simulate(self.sequences(split), random).astype(np.float32)
        typical = self.rate * self.span
        counts = random.integers(round(0.8 * typical), round(1.2 * typical), len(values))
        most = int(counts.max())
        steps = random.random(values.shape[:2]).argsort(1)[:, :most]
        unused = np.arange(most) >= counts[:, None]
        steps = np.sort(np.where(unused, values.shape[1], steps), axis=1)
        exists = steps < values.shape[1]
        times = np.where(exists, steps * self.step, np.inf)
        last = values.shape[1] - 1
        measured = np.take_along_axis(values, np.minimum(steps, last)[..., None], 1)
        kind = random.random(steps.shape)
        single = (1 - self.joint) / 2
        observed = np.stack([kind >= single, (kind < single) | (kind >= 2 * single)], -1)
        observed &= exists[..., None]
        return tuple(torch.from_numpy(array) for array in (times, measured, observed))

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Divide processes into inputs and targets."""
        times, values, observed = (tensor[index] for tensor in self.data(split))
        count = torch.isfinite(times).sum(1)
        if split == "train":
            fraction = torch.rand(len(index), generator=generator)
            lengths = 1 + (fraction * (count - 1)).long()  # at least one input and one target
        else:
            lengths = (times < self.cut).sum(1).clamp(min=1).minimum(count - 1)
        longest = int(lengths.max())
        future = lengths.unsqueeze(1) + torch.arange(self.horizon if split == "train" else 1)
        exists = future < count.unsqueeze(1)
        future = future.minimum(count.unsqueeze(1) - 1)
        both = future.unsqueeze(-1).expand(-1, -1, 2)
        mask = observed.gather(1, both) & exists.unsqueeze(-1)
        last = times.gather(1, lengths.unsqueeze(1) - 1)
        timestamps = torch.where(
            torch.arange(longest) < lengths.unsqueeze(1), times[:, :longest], last
        )
        # Models must not use unmeasured values, so they are not even numbers.
        inputs = values[:, :longest].masked_fill(~observed[:, :longest], torch.nan)
        return Batch(
            inputs.transpose(0, 1),
            values.gather(1, both).transpose(0, 1),
            lengths,
            times=timestamps.T,
            observed=observed[:, :longest].transpose(0, 1),
            target_times=times.gather(1, future).T,
            target_mask=mask.transpose(0, 1),
        )

    def naive_error(self, batch: Batch) -> tuple[float, str]:
        """Return the error of the last value of each channel; before the first, of the mean."""
        assert batch.observed is not None and batch.lengths is not None
        assert batch.target_mask is not None
        _, values, observed = self.data("train")
        mean = torch.stack([values[..., c][observed[..., c]].mean() for c in range(2)])
        steps = torch.arange(len(batch.inputs)).view(-1, 1, 1)
        measured = batch.observed & (steps < batch.lengths.view(1, -1, 1))
        last = torch.where(measured, steps, -1).amax(0)
        value = batch.inputs.gather(0, last.clamp(min=0).unsqueeze(0)).squeeze(0)
        errors = (torch.where(last >= 0, value, mean) - batch.targets[0])[batch.target_mask[0]]
        return float(errors.double().square().mean()), "the last value"


@tasks.register("brusselator")
class Brusselator(SporadicTask):
    """Predict the next measurement of an oscillating chemical reaction.

    dx = (1 + (b + 1)(−x) + a x² y) dt + noise,  dy = (b x − a x² y) dt + noise, with a = 0.3 and
    b = 1.4, from near its fixed point; 50 units of time, about 25 measurements, four fifths of them
    of both substances. In the test, inputs are before time 20.

    Example:
        >>> build("brusselator", series=50).batch("test", 0, 8).inputs.shape[1:]
        torch.Size([8, 2])

    Reference:
        E. De Brouwer, J. Simm, A. Arany, Y. Moreau. GRU-ODE-Bayes: continuous modeling of
        sporadically-observed time series. NeurIPS, 2019; constants as in the authors' program,
        whose noise of 0.1 is multiplied by 0.1 once more.
    """

    span, step, rate, joint, cut = 50.0, 0.1, 0.5, 0.8, 20.0
    a, b, noise, correlation = 0.3, 1.4, 0.01, -0.99

    def simulate(self, count: int, random: np.random.Generator) -> np.ndarray:
        noise = self.draw_noise(count, random)
        values = np.zeros_like(noise)
        values[:, 0] = [1.0, self.b / self.a] + 0.3 * random.normal(size=(count, 2))
        for i in range(1, values.shape[1]):
            x, y = values[:, i - 1].T
            product = self.a * x**2 * y
            slope = np.stack([1 - (self.b + 1) * x + product, self.b * x - product], -1)
            values[:, i] = values[:, i - 1] + slope * self.step + noise[:, i]
        return values


@tasks.register("double-ou")
class DoubleOU(SporadicTask):
    """Predict the next measurement of two correlated Ornstein–Uhlenbeck processes.

    dx = (m − x) dt + 0.1 dW from x = 0, the two noises correlated by 0.99, the levels m uniform
    within half a unit of 1 and of −1; 10 units of time, about 20 measurements, a fifth of them of
    both processes. In the test, inputs are before time 4.

    Example:
        >>> build("double-ou", series=50).batch("test", 0, 8).inputs.shape[1:]
        torch.Size([8, 2])

    Reference:
        E. De Brouwer, J. Simm, A. Arany, Y. Moreau. GRU-ODE-Bayes: continuous modeling of
        sporadically-observed time series. NeurIPS, 2019; constants as in the authors' program.
    """

    span, step, rate, joint, cut = 10.0, 0.05, 2.0, 0.2, 4.0
    reversion, noise, correlation = 1.0, 0.1, 0.99
    recipes: ClassVar = {
        **SporadicTask.recipes,
        # Two evaluations per gap learn as much as four, in two thirds of the time.
        # With a constant rate of 1e-2 the result depends on where the last updates end.
        "ode-rnn": {"model": {"method": "midpoint"}, "train": {**COSINE, "learning_rate": 1e-2}},
        "decay-rnn": {"train": {**COSINE, "learning_rate": 1e-2}},
    }

    def simulate(self, count: int, random: np.random.Generator) -> np.ndarray:
        level = random.uniform(-0.5, 0.5, (count, 2)) + np.array([1.0, -1.0])
        noise = self.draw_noise(count, random)
        values = np.zeros_like(noise)
        for i in range(1, values.shape[1]):
            before = values[:, i - 1]
            values[:, i] = before + self.reversion * (level - before) * self.step + noise[:, i]
        return values
