"""The Task contract: batches by number, a loss, a metric, and the score of a guess.

A batch is a function of (seed, split, number) and of nothing else, so every model sees the same
data, an interrupted training finds its place again, and several processes can share the work by
dividing batches among them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from undamped._base.checked import naming_unknown
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
from undamped.lab.tasks.held_out import cut_from_blocks

Split = Literal["train", "valid", "test"]
Settings = dict[str, dict[str, Any]]
"""Options of "model", "task" and "train", by part and name."""
_SPLIT_NUMBER = {"train": 0, "valid": 1, "test": 2}


@dataclass(frozen=True)
class Chance:
    """What a guess that never looks at the input would score."""

    loss: float
    metric: float
    guess: str


@dataclass(frozen=True)
class Baseline:
    """What a rule scores that looks at the input, but not at what is asked.

    Args:
        metric: Its score in the test.
        rule: What it looks at.
    """

    metric: float
    rule: str


class Task(ABC):
    """Something to learn.

    Args:
        seed: Where the random numbers of the data come from.
    """

    input_size: int
    output_size: int
    input_kind: InputKind = "vectors"
    readout: TaskReadout = "last"
    answer: Answer = "class"
    """What an answer is; the loss and the metric of a task follow it unless it has its own."""
    needs: frozenset[Use] = frozenset()
    """What of a batch a model must be able to use; "pictures" and "target_times" are added by
    themselves where inputs are pictures and answers trajectories."""
    picture_shape: tuple[int, int, int] | None = None
    """Channels, height and width, where inputs are pictures."""
    state_space: StateSpace | None = None
    """What the coordinates are, where inputs are states."""
    segments: tuple[int, ...] = ()
    """How many steps each part of a sequence has, where all are alike; see `TaskShape`."""
    clock: Clock | None = None
    """How time runs, where batches have times."""
    steps_ahead: int = 0
    """How many regular steps to come an answer is about, where it is a forecast of such."""
    rows: tuple[int, ...] = ()
    """How many pictures of a sequence stand in each row where it is drawn for people."""
    answer_names: tuple[str, ...] = ()
    """What the classes are called, for people."""
    seen_part: ClassVar[str] = ""
    """Which of `test_parts` is like training, where the others are not: what the gap is to."""
    same_channels: bool = False
    """Whether the features of an answer are those of an input, at other times."""
    class_weights: tuple[float, ...] = ()
    """What an answer of each class counts, in the loss and in the score; empty where all count
    alike."""
    metric: str = "accuracy"
    higher_is_better: bool = True
    sequential: ClassVar[bool] = True
    """Whether inputs are sequences; otherwise they are single vectors."""
    carries_state: bool = False
    """Whether a batch goes on where the one before it ended, so that state is handed on."""
    too_short: bool = False
    """Whether there are too few data to validate what was learnt."""
    stays_on_disk: bool = False
    """Whether a batch is read from disk when it is asked for, so that reading ahead pays."""

    @property
    def baseline(self) -> Baseline | None:
        """The best trivial rule, where a task has such: what a model has to beat."""
        return None

    @property
    def validates_on_training(self) -> bool:
        """Whether validation looks at the training data, for want of data of its own."""
        return False

    def redrawn(self, number: int) -> Task | None:
        """Return the task with other validation data, drawn from what is not for the test.

        None where that would not be honest, or where there is more validation data than needed.

        Args:
            number: Which of the possible draws.
        """
        return None

    recipes: ClassVar[Mapping[str, Settings]] = {}
    """Settings to start from, by the name of the model; those of "*" are for all. What
    `undamped train` is not told comes from here."""
    continues_text: ClassVar[bool] = False
    """Whether a model of the task can go on with a text: `undamped predict RUN --prompt …`. Such a
    task has a `text`, and turns texts into symbols and back by `encode` and `decode`."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = naming_unknown(cls.__init__)

    def __init__(self, seed: NonNegativeInt = 0) -> None:
        self.seed = seed

    def generator(self, split: Split, number: int, part: int = 0) -> torch.Generator:
        """Return the source of random numbers of one batch."""
        return generator_of(self.seed, split, number, part)

    @abstractmethod
    def batch(self, split: Split, number: int, size: int) -> Batch:
        """Return batch `number` of a split, with `size` sequences where there are so many."""

    @abstractmethod
    def count(self, split: Split, size: int) -> int | None:
        """Return how many batches make one pass over a split; None if it never ends."""

    @property
    @abstractmethod
    def chance(self) -> Chance:
        """What a guess would score."""

    @property
    def task_shape(self) -> TaskShape:
        """What a model has to know about the task."""
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
            self.steps_ahead,
            self.same_channels,
            self.class_weights,
        )

    def share(self, batch: Batch, rank: int, world: int) -> Batch:
        """Return the sequences of a batch that are process `rank`'s of `world`."""
        inputs, targets = self._batch_axes
        chosen = slice(rank, None, world)
        return batch.part(chosen, inputs_axis=inputs, targets_axis=targets)

    def sequences_in(self, batch: Batch) -> int:
        """Return how many sequences, or points, a batch has."""
        return batch.inputs.shape[self._batch_axes[0]]

    def samples_in(self, batch: Batch) -> int:
        """Return how many steps the sequences of a batch have together, without padding."""
        if batch.lengths is not None:
            return int(batch.lengths.sum())
        return self.sequences_in(batch) * (batch.inputs.shape[0] if self.sequential else 1)

    @property
    def _batch_axes(self) -> tuple[int, int]:
        """Where the sequences of a batch are counted, in its inputs and in its targets."""
        first = self.readout == "last" and self.answer != "trajectory"
        return 1 if self.sequential else 0, 0 if first else 1

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Return the mean loss that training makes small.

        Cross entropy for classes, the mean squared error for numbers and trajectories, the
        negative log-likelihood for densities, each over the answers that are known.
        """
        if self.answer == "density":
            return -prediction.mean()
        prediction, targets = known_answers(prediction, batch)
        if self.answer == "class":
            return F.cross_entropy(prediction.flatten(0, -2), targets.flatten())
        return F.mse_loss(prediction, targets.to(prediction.dtype))

    def score(self, prediction: Tensor, batch: Batch) -> tuple[Tensor, float]:
        """Return what `finish` makes the metric of, as a sum and a count.

        Right answers for classes, squared errors for numbers and trajectories, negative
        log-likelihoods for densities.
        """
        if self.answer == "density":
            return -prediction.double().sum(), prediction.numel()
        prediction, targets = known_answers(prediction, batch)
        if self.answer == "class":
            return (prediction.argmax(-1) == targets).sum().double(), targets.numel()
        return (prediction - targets).double().square().sum(), targets.numel()

    def more_scores(self, prediction: Tensor, batch: Batch) -> dict[str, tuple[float, float]]:
        """Return further scores of predictions, each as a sum and a count; usually none."""
        return {}

    def answers(self, batch: Batch) -> int:
        """Return over how many answers `loss` is a mean; padding does not count."""
        mask = batch.target_mask
        return batch.targets.numel() if mask is None else batch.targets[mask].numel()

    def finish(self, mean: float) -> float:
        """Return the metric from the mean of what `score` adds up; a root for root mean squares."""
        return mean

    def starting_embedding(self) -> Tensor | None:
        """Return vectors (symbols, size) from which an embedding of the symbols should start."""
        return None

    def suggest(self, model: str) -> Settings:
        """Return settings that the data itself suggests for a model; recipes come before them."""
        return {}

    def attributes(self, split: Split, number: int, size: int) -> dict[str, Tensor]:
        """Return what the inputs of a batch are, where that is known: whole numbers (time, batch).

        A number below zero means that an input has no such attribute.
        """
        return {}

    def harder(self) -> dict[str, Any]:
        """Return options of the task that make it harder, for a person who wants to go on."""
        return {}

    def record(self) -> dict[str, Any]:
        """Return what a run has to remember about the data, as plain values for run.json."""
        return {}

    def notes(self) -> list[str]:
        """Return sentences about what was done to the data, for the person who trains."""
        return []

    def test_parts(self) -> dict[str, Task]:
        """Return the tasks on which a trained model is tested, by name; usually itself."""
        return {"test": self}

    def describe(self) -> str:
        """Say in one line what a model is asked to do."""
        return (type(self).__doc__ or "").splitlines()[0]


def generator_of(seed: int, split: Split, number: int, part: int = 0) -> torch.Generator:
    """Return a source of random numbers that depends on these four and on nothing else."""
    words = np.random.SeedSequence([seed, _SPLIT_NUMBER[split], number, part]).generate_state(2)
    return torch.Generator().manual_seed(int(words[0]) << 32 | int(words[1]))


def known_answers(prediction: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return predictions and targets where the targets are known, flat if that is not everywhere.

    Args:
        prediction: What a model said: targets have its shape, for classes without the last
            dimension.
        batch: The batch.
    """
    mask = batch.target_mask
    if mask is None:
        return prediction, batch.targets
    return prediction[mask], batch.targets[mask]


class GeneratedTask(Task):
    """A task whose training data never ends; validation and test are fixed batches of it."""

    held_out: ClassVar[dict[Split, int]] = {"valid": 512, "test": 2048}
    """How many sequences validation and test have."""

    @abstractmethod
    def draw(self, size: int, generator: torch.Generator) -> Batch:
        """Make `size` new sequences."""

    def batch(self, split: Split, number: int, size: int) -> Batch:
        """Make the sequences of batch `number`; held-out ones are the same for every size."""
        if split == "train":
            return self.draw(size, self.generator(split, number))
        inputs, targets = self._batch_axes
        parts = cut_from_blocks(
            lambda block, count: self.draw(count, self.generator(split, block)).expanded(),
            number,
            size,
            total=self.held_out[split],
            axes=(inputs, targets, 0, 1, inputs, 1, targets, 0, 0),
        )
        return Batch(*parts)  # type: ignore[arg-type]

    def count(self, split: Split, size: int) -> int | None:
        """Training never ends."""
        return None if split == "train" else -(-self.held_out[split] // size)


class ArrayTask(Task):
    """A task with a fixed number of sequences, shuffled anew in every pass."""

    @abstractmethod
    def sequences(self, split: Split) -> int:
        """Return how many sequences a split has."""

    @abstractmethod
    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Return the sequences with these numbers as a batch."""

    def batch(self, split: Split, number: int, size: int) -> Batch:
        """Return batch `number`; a training pass leaves out the incomplete batch at its end."""
        total = self.sequences(split)
        if total == 0:
            raise DataError(
                f"{split} part: expected at least one sequence, got none. Use more data."
            )
        size = min(size, total)
        if split != "train":
            index = torch.arange(number * size, min((number + 1) * size, total))
        else:
            epoch, place = divmod(number, total // size)
            index = self.order(epoch, size)[place * size : (place + 1) * size]
        return self.take(split, index, self.generator(split, number))

    def order(self, epoch: int, size: int) -> Tensor:
        """Return the numbers of the training sequences in the order of one pass."""
        generator = self.generator("train", epoch, part=1)
        return torch.randperm(self.sequences("train"), generator=generator)

    def count(self, split: Split, size: int) -> int | None:
        """One pass over the split."""
        total = self.sequences(split)
        size = min(size, total)
        return total // size if split == "train" else -(-total // size)


def build(name: str, **options: object) -> Task:
    """Build any task by its registry name, for example `build("copy", delay=200)`."""
    return tasks.build(name, **options)
