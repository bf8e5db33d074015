"""Curves that are observed at some points: predict the others, between them or after them."""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import cached_property
from importlib import import_module
from importlib.resources import files
from typing import Annotated, Any, ClassVar, Literal, TypedDict, Unpack

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from undamped._base.checked import checked
from undamped._base.contract import Batch, Clock
from undamped._base.errors import OptionError
from undamped._base.options import Default, NonNegativeInt, PositiveInt, Range
from undamped._base.packages import require
from undamped._base.registry import tasks
from undamped.lab.data.published.cache import folder
from undamped.lab.data.published.formats.images import read_idx_folder
from undamped.lab.tasks.task import SPLITS, ArrayTask, Chance, Split

Query = Literal["all", "second-half"]
Data = tuple[Tensor, ...]

STEP = 0.005
"""Seconds between two points."""
SUBSTEPS = 2
"""Steps of the simulation from point to point."""
SIDE = 14
"""Rows and columns of a frame, half of those of MNIST."""


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


class HopperOptions(CurveOptions, total=False):
    """Options of the hopper."""

    series: Annotated[PositiveInt, Default(2000, "Falls of the training split.")]
    points: Annotated[PositiveInt, Default(200, "Points of a fall, one every 0.005 s.")]
    observed: Annotated[
        PositiveInt,
        Default(
            10,
            'How many points a model receives; with query="second-half" all are in the first half.',
        ),
    ]


@tasks.register("hopper")
class Hopper(CurveTask):
    """Predict the fall of a one-legged robot from a few of its states.

    The hopper of Gymnasium, simulated by MuJoCo without control from random positions and
    velocities: six positions and angles and their velocities every 0.005 s, standardised with mean
    and deviation of the training split. It falls freely, hits the ground and rolls over.

    Example:
        >>> build("hopper", observed=10)

    Reference:
        Y. Rubanova, R. Chen, D. Duvenaud. Latent ordinary differential equations for
        irregularly-sampled time series. NeurIPS, 2019. They use the hopper of the DeepMind control
        suite, which has one joint more; starts are drawn as in their program (the trunk up to
        0.5 m from its position, angles up to 2, velocities up to 5), angles of joints within their
        limits.
    """

    input_size = 12
    output_size = 12
    span = 1.0
    recipes: ClassVar = {
        "*": {"model": {"hidden_size": 64}, "train": {"batch_size": 50, "minutes": 10}},
        "latent-ode": {"model": {"latent_size": 24, "field_size": 128}},
    }

    @checked
    def __init__(self, **options: Unpack[HopperOptions]) -> None:
        require("task hopper", "mujoco", "gymnasium")
        complete: Any = options  # `checked` fills in the defaults
        self.span = complete["points"] * STEP
        super().__init__(complete)
        self._units: Data = ()

    def simulate_split(self, split: Split, random: np.random.Generator) -> Data:
        """Return times (falls, points) and standardised states (falls, points, 12)."""
        count = self.sequences(split)
        values = torch.from_numpy(falls(count, self.points, random).astype(np.float32))
        times = np.tile(STEP * np.arange(self.points), (count, 1))
        if split == "train":
            self._units = values.mean((0, 1)), values.std((0, 1))
        else:
            self.data("train")
        mean, deviation = self._units
        return torch.from_numpy(times), (values - mean) / deviation


def falls(count: int, points: int, random: np.random.Generator) -> np.ndarray:
    """Return positions and velocities (count, points, 12) of falling hoppers.

    Args:
        count: How many falls.
        points: Points of each, one every 0.005 s; the first is the start.
        random: The random number generator of the starts.
    """
    simulator: Any = import_module("mujoco")
    rollout: Any = import_module("mujoco.rollout")
    file = files("gymnasium") / "envs" / "mujoco" / "assets" / "hopper.xml"
    model = simulator.MjModel.from_xml_path(str(file))
    model.opt.timestep = STEP / SUBSTEPS
    model.opt.integrator = simulator.mjtIntegrator.mjINT_EULER  # as in the control suite
    low, high = np.full(model.nq, -2.0), np.full(model.nq, 2.0)
    low[:2], high[:2] = 0.0, 0.5
    limited = model.jnt_limited.astype(bool)
    low[limited] = np.maximum(low, model.jnt_range[:, 0])[limited]
    high[limited] = np.minimum(high, model.jnt_range[:, 1])[limited]
    positions = model.qpos0 + random.uniform(low, high, (count, model.nq))
    velocities = random.uniform(-5, 5, (count, model.nv))
    start = np.concatenate([np.zeros((count, 1)), positions, velocities], 1)  # time is first
    steps = SUBSTEPS * (points - 1)
    if not steps:
        return start[:, None, 1:]
    workers = [simulator.MjData(model) for _ in range(torch.get_num_threads())]
    later, _ = rollout.rollout(model, workers, start, nstep=steps)
    return np.concatenate([start[:, None], later[:, SUBSTEPS - 1 :: SUBSTEPS]], 1)[..., 1:]


class RotationOptions(CurveOptions, total=False):
    """Options of rotating digits."""

    series: Annotated[PositiveInt, Default(1000, "Digits of the training split, at most.")]
    points: Annotated[PositiveInt, Default(16, "Frames of a rotation.")]
    observed: Annotated[PositiveInt, Default(8, "How many frames a model receives.")]


@tasks.register("rotating-digits")
class RotatingDigits(CurveTask):
    """Predict all frames of a digit that rotates once, from a few of them.

    Images of one digit of MNIST, averaged from 28 × 28 to 14 × 14 pixels, start at a random angle
    and rotate once in a unit of time; a frame is a vector of 196 numbers in [0, 1]. Test digits are
    those of the published test split.

    Args:
        digit: The digit, from 0 to 9.

    Example:
        >>> build("rotating-digits", observed=8).batch("test", 0, 4).inputs.shape
        torch.Size([8, 4, 196])

    Reference:
        Ç. Yıldız, M. Heinonen, H. Lähdesmäki. ODE²VAE: deep generative second order ODEs with
        Bayesian neural networks. NeurIPS, 2019; their digits are the threes, and have 28 × 28
        pixels.
    """

    input_size = SIDE * SIDE
    output_size = SIDE * SIDE
    span = 1.0
    held_out: ClassVar[dict[Split, int]] = {"valid": 100, "test": 200}
    recipes: ClassVar = {
        "*": {"model": {"hidden_size": 64}, "train": {"batch_size": 40, "minutes": 10}}
    }

    @checked
    def __init__(
        self, *, digit: Annotated[int, Range(low=0, high=9)] = 3, **options: Unpack[RotationOptions]
    ) -> None:
        super().__init__(options)
        self.digit = digit

    @cached_property
    def images(self) -> dict[Split, Tensor]:
        """The images of the digit (count, 28, 28) of each split."""
        mnist = read_idx_folder(folder("mnist"))
        train, test = (
            torch.from_numpy(images[labels == self.digit].astype(np.float32) / 255)
            for images, labels in (
                (mnist.train, mnist.train_labels),
                (mnist.test, mnist.test_labels),
            )
        )
        valid = min(self.held_out["valid"], max(1, len(train) // 4))
        return {
            "train": train[valid:][: self.series],
            "valid": train[:valid],
            "test": test[: self.held_out["test"]],
        }

    def sequences(self, split: Split) -> int:
        return len(self.images[split])

    def simulate_split(self, split: Split, random: np.random.Generator) -> Data:
        """Return times (images, points) and frames (images, points, 196) of a split."""
        images = self.images[split]
        start = torch.from_numpy(random.uniform(0, 2 * math.pi, len(images)))
        times = torch.arange(self.points, dtype=torch.float64) / self.points
        angles = start.unsqueeze(1) + 2 * math.pi * times
        frames = [rotate(images, angle.float()) for angle in angles.T]
        return times.expand(len(images), -1).contiguous(), torch.stack(frames, 1).flatten(2)


def rotate(images: Tensor, angle: Tensor) -> Tensor:
    """Return images (count, 28, 28), each rotated by its angle (count,), as (count, 14, 14)."""
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    matrix = torch.stack([torch.stack([cos, -sin, zero], 1), torch.stack([sin, cos, zero], 1)], 1)
    shape = (len(images), 1, *images.shape[1:])
    grid = F.affine_grid(matrix, list(shape), align_corners=False)
    rotated = F.grid_sample(images.view(shape), grid, align_corners=False)
    return F.avg_pool2d(rotated, 2).squeeze(1)
