"""The Task contract: batches by index, a loss, a metric, and the score of a naive baseline.

A batch is a function of (seed, split, index) only, so every model gets the same data, an
interrupted training can be resumed, and several processes can divide batches among them.

A task may have further attributes, which `undamped.lab.tasks.optional` lists and reads: recipes,
suggested settings, further scores, names for reports.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from undamped._base.contract import (
    Answer,
    Batch,
    Clock,
    InputKind,
    StateSpace,
    TaskReadout,
    TaskShape,
    Use,
)
from undamped._base.errors import DataError
from undamped._base.options import NonNegativeInt
from undamped._base.registry import tasks

Split = Literal["train", "valid", "test"]
Settings = dict[str, dict[str, Any]]
"""Options of "model", "task" and "train", by section and name."""
COSINE: dict[str, Any] = {"clip": 1.0, "schedule": "cosine"}
"""Training options that many recipes share."""
SPLITS: tuple[Split, ...] = ("train", "valid", "test")
_BLOCK = 96
"""Held-out sequences that are drawn at once; divisible by numbers of classes, for balance."""


@dataclass(frozen=True)
class Chance:
    """The score of a naive baseline, which does not use the input."""

    loss: float
    metric: float
    rule: str


@dataclass(frozen=True)
class Baseline:
    """The score of a trivial rule, which uses the input but not the relation that is learnt.

    Args:
        metric: Its score on the test split.
        rule: What it predicts, in words.
    """

    metric: float
    rule: str


class Task(ABC):
    """Data, loss, metric and baseline scores of a learning problem.

    Args:
        seed: Seed of the random numbers.
    """

    input_size: int
    output_size: int
    input_kind: InputKind = "vectors"
    readout: TaskReadout = "last"
    answer: Answer = "class"
    """The kind of answer, which determines loss and metric unless a task overrides them."""
    needs: frozenset[Use] = frozenset()
    """The fields of a batch that a model must be able to use; "pictures" and "target_times" are
    added where inputs are images and answers trajectories."""
    picture_shape: tuple[int, int, int] | None = None
    """Channels, height and width, where inputs are images."""
    state_space: StateSpace | None = None
    """The coordinates, where inputs are states."""
    segments: tuple[int, ...] = ()
    """Steps of each segment of a sequence, where all sequences are alike; see `TaskShape`."""
    clock: Clock | None = None
    """Typical gap and span of time, where batches have times."""
    metric: str = "accuracy"
    higher_is_better: bool = True
    sequential: ClassVar[bool] = True
    """Whether inputs are sequences; otherwise they are single vectors."""
    carries_state: bool = False
    """Whether a batch continues the previous one, so that the state is passed on."""

    @property
    def baseline(self) -> Baseline | None:
        """The best trivial rule, which a model has to beat; usually None."""
        return None

    def __init__(self, seed: NonNegativeInt = 0) -> None:
        self.seed = seed

    def generator(self, split: Split, index: int, stream: int = 0) -> torch.Generator:
        """Return the random number generator of a batch; each stream is independent."""
        return generator_of(self.seed, split, index, stream)

    @abstractmethod
    def batch(self, split: Split, index: int, size: int) -> Batch:
        """Return batch `index` of a split, with `size` sequences or as many as there are."""

    @abstractmethod
    def count(self, split: Split, size: int) -> int | None:
        """Return the number of batches of one pass over a split; None if it is infinite."""

    @property
    @abstractmethod
    def chance(self) -> Chance:
        """The score of the naive baseline."""

    @property
    def task_shape(self) -> TaskShape:
        """The sizes, kinds and fields that a model is built for."""
        needs = set(self.needs)
        if self.input_kind == "pictures":
            needs.add("pictures")
        if self.answer == "trajectory":
            needs.add("target_times")
        return TaskShape(
            self.input_size,
            self.output_size,
            self.input_kind,
            self.readout,
            self.sequential,
            self.answer,
            frozenset(needs),
            self.picture_shape,
            self.state_space,
            self.segments,
            self.clock,
            same_channels=getattr(self, "same_channels", False),
        )

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Return the mean loss that training minimises.

        Cross entropy for classes, the mean squared error for numbers and trajectories, the
        negative log-likelihood for densities, each over the known targets.
        """
        if self.answer == "density":
            return -prediction.mean()
        prediction, targets = known_answers(prediction, batch)
        if self.answer == "class":
            return F.cross_entropy(prediction.flatten(0, -2), targets.flatten())
        return F.mse_loss(prediction, targets.to(prediction.dtype))

    def score(self, prediction: Tensor, batch: Batch) -> tuple[Tensor, float]:
        """Return a sum and a count, whose quotient `finish` converts to the metric.

        Correct answers for classes, squared errors for numbers and trajectories, negative
        log-likelihoods for densities.
        """
        if self.answer == "density":
            return -prediction.double().sum(), prediction.numel()
        prediction, targets = known_answers(prediction, batch)
        if self.answer == "class":
            return (prediction.argmax(-1) == targets).sum().double(), targets.numel()
        return (prediction - targets).double().square().sum(), targets.numel()

    def answers(self, batch: Batch) -> int:
        """Return the number of known targets, over which `loss` is a mean."""
        mask = batch.target_mask
        return batch.targets.numel() if mask is None else batch.targets[mask].numel()

    def finish(self, mean: float) -> float:
        """Return the metric from the mean score; a root for root mean squares."""
        return mean

    def record(self) -> dict[str, Any]:
        """Return facts about the data that a run stores, as plain values for run.json."""
        return {}

    def notes(self) -> list[str]:
        """Return sentences about how the data was prepared, for the user."""
        return []

    def test_tasks(self) -> dict[str, Task]:
        """Return the tasks on which a trained model is tested, by name; usually itself."""
        return {"test": self}

    def describe(self) -> str:
        """Return a description of the task in one line."""
        return (type(self).__doc__ or "").splitlines()[0]


def generator_of(seed: int, split: Split, index: int, stream: int = 0) -> torch.Generator:
    """Return a random number generator that depends on these four values only."""
    words = np.random.SeedSequence([seed, SPLITS.index(split), index, stream]).generate_state(2)
    return torch.Generator().manual_seed(int(words[0]) << 32 | int(words[1]))


def known_answers(prediction: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return predictions and targets where the targets are known, flattened if some are not.

    Args:
        prediction: The prediction; targets have its shape, for classes without the last
            dimension.
        batch: The batch.
    """
    mask = batch.target_mask
    if mask is None:
        return prediction, batch.targets
    return prediction[mask], batch.targets[mask]


def batch_axes(task: Task) -> tuple[int, int]:
    """Return the batch dimension of the inputs and of the targets of a task."""
    first = task.readout == "last" and task.answer != "trajectory"
    return 1 if task.sequential else 0, 0 if first else 1


class GeneratedTask(Task):
    """A task with unlimited training data; validation and test are fixed batches of it."""

    held_out: ClassVar[dict[Split, int]] = {"valid": 512, "test": 2048}
    """Sequences of validation and test."""

    @abstractmethod
    def draw(self, size: int, generator: torch.Generator) -> Batch:
        """Draw `size` new sequences."""

    def draw_split(self, split: Split, size: int, generator: torch.Generator) -> Batch:
        """Draw `size` new sequences of a split; by default all splits are alike."""
        return self.draw(size, generator)

    def batch(self, split: Split, index: int, size: int) -> Batch:
        """Draw the sequences of batch `index`; held-out ones do not depend on `size`."""
        if split == "train":
            return self.draw_split(split, size, self.generator(split, index))
        inputs, targets = batch_axes(self)
        axes = (inputs, targets, 0, 1, inputs, 1, targets, 0, 0)

        def draw(block: int, count: int) -> Batch:
            return self.draw_split(split, count, self.generator(split, block)).expanded()

        return Batch(*self.cut_from_blocks(draw, split, index, size, axes))

    def cut_from_blocks(
        self,
        draw: Callable[[int, int], Sequence[Tensor | None]],
        split: Split,
        index: int,
        size: int,
        axes: Sequence[int],
    ) -> list[Any]:
        """Return the tensors of a held-out batch, whose sequences do not depend on the batch size.

        They are drawn in blocks of one size, each with its generator, and cut out of these blocks.
        So models that are trained with batches of different sizes are scored on the same sequences.

        Args:
            draw: Draws a block from its index and its size.
            split: The split.
            index: The index of the batch.
            size: Sequences of a batch; the last batch may have fewer.
            axes: The batch dimension of each tensor that `draw` returns.
        """
        first, last = index * size, min((index + 1) * size, self.held_out[split])
        blocks = range(first // _BLOCK, -(-last // _BLOCK))
        fields = zip(*[draw(block, _BLOCK) for block in blocks], strict=True)
        return [
            _concatenate(tensors, axis)
            .narrow(axis, first - blocks.start * _BLOCK, last - first)
            .contiguous()
            if tensors[0] is not None
            else None
            for tensors, axis in zip(fields, axes, strict=True)
        ]

    def count(self, split: Split, size: int) -> int | None:
        """Return None for training, which is infinite."""
        return None if split == "train" else -(-self.held_out[split] // size)


def _concatenate(tensors: Sequence[Tensor], axis: int) -> Tensor:
    shapes = {(*tensor.shape[:axis], *tensor.shape[axis + 1 :]) for tensor in tensors}
    if len(shapes) > 1:
        raise DataError(
            f"Held-out sequences must have one shape, got {' and '.join(map(str, sorted(shapes)))}."
            " Pad them to the longest possible, and return lengths."
        )
    return torch.cat(list(tensors), axis)


class ArrayTask(Task):
    """A task with a fixed number of sequences, shuffled in every pass."""

    @abstractmethod
    def sequences(self, split: Split) -> int:
        """Return the number of sequences of a split."""

    @abstractmethod
    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Return the sequences with these indices as a batch."""

    def batch(self, split: Split, index: int, size: int) -> Batch:
        """Return batch `index`; an epoch of training leaves out an incomplete last batch."""
        total = self.sequences(split)
        if total == 0:
            raise DataError(f"The {split} split has no sequences. Use more data.")
        size = min(size, total)
        if split != "train":
            sequences = torch.arange(index * size, min((index + 1) * size, total))
        else:
            epoch, position = divmod(index, total // size)
            sequences = self.order(epoch, size)[position * size : (position + 1) * size]
        return self.take(split, sequences, self.generator(split, index))

    def order(self, epoch: int, size: int) -> Tensor:
        """Return the indices of the training sequences in the order of one epoch."""
        generator = self.generator("train", epoch, stream=1)
        return torch.randperm(self.sequences("train"), generator=generator)

    def order_by_length(self, epoch: int, size: int, lengths: Tensor) -> Tensor:
        """Return a random order in which a batch has sequences of similar length.

        Args:
            epoch: The epoch.
            size: The batch size.
            lengths: The lengths of the training sequences.
        """
        shuffled = ArrayTask.order(self, epoch, size)
        # Sorted only within segments of eight batches, so that batches still differ by epoch.
        segment = torch.arange(len(shuffled)) // (8 * size)
        sorted_index = shuffled[np.lexsort((lengths[shuffled].numpy(), segment.numpy()))]
        count = len(sorted_index) // size
        batches = sorted_index[: count * size].view(count, size)
        mixed = torch.randperm(count, generator=self.generator("train", epoch, stream=2))
        return torch.cat([batches[mixed].flatten(), sorted_index[count * size :]])

    def count(self, split: Split, size: int) -> int | None:
        total = self.sequences(split)
        size = min(size, total)
        return total // size if split == "train" else -(-total // size)


class LabelledTask(ArrayTask):
    """A task of classes whose inputs are in memory."""

    @abstractmethod
    def load(self) -> dict[Split, tuple[Tensor, Tensor]]:
        """Return inputs and classes of each split."""

    @cached_property
    def _data(self) -> dict[Split, tuple[Tensor, Tensor]]:
        return self.load()

    @property
    def chance(self) -> Chance:
        """The loss of equal probabilities, and the accuracy of the commonest test class."""
        labels = self._data["test"][1]
        frequency = torch.bincount(labels, minlength=self.output_size).max().item() / len(labels)
        return Chance(math.log(self.output_size), frequency, "always the commonest class")

    def sequences(self, split: Split) -> int:
        return len(self._data[split][1])

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        inputs, labels = self._data[split]
        return Batch(inputs[index], labels[index])


def build(name: str, **options: object) -> Task:
    """Build any task by its registry name, for example `build("copy", delay=200)`."""
    return tasks.build(name, **options)
