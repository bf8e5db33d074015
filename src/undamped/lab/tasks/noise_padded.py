"""Noise-padded images: a digit or a photograph row by row, followed by many steps of noise."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Unpack

import numpy as np
import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.options import Default, NonNegativeFloat, NonNegativeInt, PositiveInt, Range
from undamped._base.registry import tasks
from undamped.lab.data.published.formats.images import CIFAR_SIDE
from undamped.lab.tasks.images import ImageOptions, LabelledImages
from undamped.lab.tasks.task import COSINE, Batch, Chance, GeneratedTask, LabelledTask, Split, Task

ROWS = 8
SHORTEST = 40
"""Steps of the shortest training sequences of `last-digit`."""
FEATURES = 3 * CIFAR_SIDE


@tasks.register("digits")
class NoisePaddedDigits(LabelledTask):
    """Read a handwritten digit, then noise, then classify the digit.

    The 1,797 digits of 8 × 8 pixels that scikit-learn ships are read row by row, eight steps of
    eight pixels scaled to [0, 1]; noise fills the sequence up to `length`. As in the noise-padded
    CIFAR-10 task, one noise sequence is shared by all samples. Splits are stratified by class:
    1,257 to train, 270 each to validate and to test.

    Args:
        length: Steps of a sequence, the eight rows included.
        noise: Distribution of the noise: standard normal, as the published program has it, or
            uniform on [0, 1), as the paper's text says.
        fresh_noise: Whether every sample has its own noise, different in each epoch.
        split_seed: Seed of the split.
        seed: Seed of noise and order.

    Reference:
        E. Alpaydin, C. Kaynak. Optical recognition of handwritten digits. UCI, 1998. Padding
        after B. Chang et al. AntisymmetricRNN. ICLR, 2019.
    """

    # Chosen on the validation split; docs/results.md names the commands.
    recipes: ClassVar = {
        "*": {
            "model": {"hidden_size": 64},
            "train": {**COSINE, "learning_rate": 0.01, "batch_size": 64, "epochs": 24},
        },
        "unicornn": {"model": {"dt": 0.3, "alpha": 13.0}},
    }

    input_size = ROWS
    output_size = 10

    def __init__(
        self,
        length: Annotated[int, Range(low=ROWS)] = 500,
        *,
        noise: Literal["normal", "uniform"] = "normal",
        fresh_noise: bool = False,
        split_seed: NonNegativeInt = 0,
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(seed)
        self.length, self.split_seed = length, split_seed
        self.noise, self.fresh_noise = noise, fresh_noise

    def load(self) -> dict[Split, tuple[Tensor, Tensor]]:
        """Return images (digits, rows, columns) and classes of each split."""
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split

        images, labels = load_digits(return_X_y=True)
        train_x, rest_x, train_y, rest_y = train_test_split(
            images, labels, test_size=540, stratify=labels, random_state=self.split_seed
        )
        valid_x, test_x, valid_y, test_y = train_test_split(
            rest_x, rest_y, test_size=270, stratify=rest_y, random_state=self.split_seed
        )
        arrays: dict[Split, Any] = {
            "train": (train_x, train_y),
            "valid": (valid_x, valid_y),
            "test": (test_x, test_y),
        }
        return {
            split: (torch.tensor(x, dtype=torch.float32).view(-1, ROWS, ROWS) / 16, torch.tensor(y))
            for split, (x, y) in arrays.items()
        }

    @cached_property
    def _shared_noise(self) -> Tensor:
        return self._draw_noise(1, self.generator("train", 0, stream=2))

    def _draw_noise(self, size: int, generator: torch.Generator) -> Tensor:
        draw = torch.randn if self.noise == "normal" else torch.rand
        return draw(self.length - ROWS, size, ROWS, generator=generator)

    def harder(self) -> dict[str, Any]:
        """Return a longer sequence."""
        return {"length": max(1000, 2 * self.length)}

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Return the rows of digits, followed by noise."""
        images, labels = self._data[split]
        rows = images[index].transpose(0, 1)
        if self.fresh_noise and split != "train":
            # For the whole split, so that batches of any size have the same sequences.
            noise = self._draw_noise(self.sequences(split), self.generator(split, 0))[:, index]
        elif self.fresh_noise:
            noise = self._draw_noise(len(index), generator)
        else:
            noise = self._shared_noise.expand(-1, len(index), -1)
        return Batch(torch.cat([rows, noise]), labels[index])


class _CIFAROptions(ImageOptions, total=False):
    validation: Annotated[
        PositiveInt, Default(2000, "How many training images are held out for validation.")
    ]


@tasks.register("noise-cifar")
class NoisePaddedCIFAR10(LabelledImages):
    """Read a photograph row by row, then noise, then classify the photograph.

    Each of the first 32 steps has one row of the image: 32 red, 32 green and 32 blue values
    in [0, 1]. Standard normal noise fills the remaining 968 steps. As in the published programs
    it is one noise sequence, shared by all images, epochs and splits. The program of UnICORNN holds
    out 2,000 images for validation, that of coRNN 3,000.

    Args:
        length: Steps of a sequence, the 32 rows included.
        noise_seed: Seed of the noise sequence.

    Example:
        >>> build("noise-cifar", length=500)

    Reference:
        B. Chang, M. Chen, E. Haber, E. H. Chi. AntisymmetricRNN. ICLR, 2019. Data:
        A. Krizhevsky, 2009.
    """

    # The papers' settings but for the budget. Where table and program of UnICORNN disagree (the
    # learning rate), this is the program's value.
    recipes: ClassVar = {
        "*": {"train": {**COSINE, "batch_size": 100, "epochs": 10}},
        "unicornn": {
            "model": {"num_layers": 3, "dt": 0.126, "alpha": 13.0, "dropout": 0.1},
            "train": {"learning_rate": 0.00314, "batch_size": 30},
        },
        "cornn": {
            "model": {"dt": 0.034, "gamma": 1.3, "epsilon": 12.7},
            "train": {"learning_rate": 0.0075},
        },
    }

    input_size = FEATURES

    @checked
    def __init__(
        self,
        length: Annotated[int, Range(low=CIFAR_SIDE)] = 1000,
        *,
        noise_seed: NonNegativeInt = 12345,
        **options: Unpack[_CIFAROptions],
    ) -> None:
        super().__init__(options)
        self.length, self.noise_seed = length, noise_seed

    def arrange(self, images: np.ndarray) -> np.ndarray:
        """Return images with the three colours of a row side by side: (images, rows, 96)."""
        return images.transpose(0, 2, 1, 3).reshape(len(images), CIFAR_SIDE, FEATURES)

    @cached_property
    def _noise(self) -> Tensor:
        generator = torch.Generator().manual_seed(self.noise_seed)
        return torch.randn(self.length - CIFAR_SIDE, 1, FEATURES, generator=generator)

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Return the rows of photographs, followed by noise."""
        images, labels = self._data[split]
        rows = images[index].transpose(0, 1).float() / 255
        noise = self._noise.expand(-1, len(index), -1)
        return Batch(torch.cat([rows, noise]), labels[index])


@tasks.register("last-digit")
class LastDigit(GeneratedTask):
    """Read digits at random times in noise, and name the last one, long after.

    Up to three handwritten digits of 8 × 8 pixels are read row by row, one row per step, at random
    times; every other step, and every pixel, has fresh noise. Training sequences have up to
    `length` steps. Tests have three digits in the first half of a sequence and only noise in the
    second half, so that a model of a shorter window has the score of chance. A cue at an unknown
    time has to be recognised and held, against everything that comes later.

    Args:
        length: Steps of the longest training sequences.
        test_lengths: Steps of the test sequences.
        noise: Standard deviation of the noise; pixels are between 0 and 1.
        seed: Seed of the data.

    Reference:
        E. Alpaydin, C. Kaynak. Optical recognition of handwritten digits. UCI, 1998.
    """

    recipes: ClassVar = {
        "*": {
            "model": {"hidden_size": 64},
            "train": {**COSINE, "learning_rate": 0.005, "batch_size": 64, "steps": 900},
        },
        "latch": {"model": {"num_layers": 3}},
        # A closed-form model is fitted to batches that are in memory at once.
        "bank": {"train": {"steps": 30}},
    }
    held_out: ClassVar[dict[Split, int]] = {"valid": 192, "test": 192}
    digits: ClassVar = 3
    input_size = ROWS
    output_size = 10

    def __init__(
        self,
        length: Annotated[int, Range(low=64)] = 200,
        *,
        test_lengths: Sequence[PositiveInt] = (100, 1000, 20_000),
        noise: NonNegativeFloat = 0.2,
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(seed)
        self.length, self.test_lengths, self.noise = length, tuple(test_lengths), noise
        self._images = NoisePaddedDigits()._data
        self._test_length = length

    @property
    def chance(self) -> Chance:
        """All digits are equally likely."""
        return Chance(math.log(10), 0.1, "any digit")

    def test_tasks(self) -> dict[str, Task]:
        """Return the test at each length."""
        tests: dict[str, Task] = {}
        for length in self.test_lengths:
            test = copy.copy(self)
            test._test_length = length
            tests[f"{length} steps"] = test
        return tests

    def batch(self, split: Split, index: int, size: int) -> Batch:
        """Draw the sequences of a batch; training sequences of a batch have one length."""
        if split == "train":
            generator = self.generator(split, index)
            # As many short as long sequences: a uniform logarithm.
            fraction = torch.rand((), generator=generator).item()
            steps = round(SHORTEST * (self.length / SHORTEST) ** fraction)
            count = int(torch.randint(1, self.digits + 1, (), generator=generator))
            return self._draw(split, size, (steps, steps), count, generator)
        sizes = (self._test_length, self._test_length // 2)

        def draw(block: int, count: int) -> Batch:
            return self._draw(split, count, sizes, self.digits, self.generator(split, block))

        axes = (1, 0, 0, 1, 1, 1, 0, 0, 0)
        return Batch(*self.cut_from_blocks(draw, split, index, size, axes))

    def draw(self, size: int, generator: torch.Generator) -> Batch:
        """Draw `size` sequences of the length of a test."""
        sizes = (self._test_length, self._test_length // 2)
        return self._draw("test", size, sizes, self.digits, generator)

    def _draw(
        self,
        split: Split,
        size: int,
        sizes: tuple[int, int],
        count: int,
        generator: torch.Generator,
    ) -> Batch:
        (steps, until), (images, labels) = sizes, self._images[split]
        x = self.noise * torch.randn(steps, size, ROWS, generator=generator)
        # Digits do not overlap: each start leaves the rows of the digits before it.
        starts = torch.randint(0, until - ROWS * count + 1, (count, size), generator=generator)
        starts = starts.sort(0).values + ROWS * torch.arange(count).unsqueeze(1)
        digits = torch.randint(0, len(images), (count, size), generator=generator)
        for start, index in zip(starts, digits, strict=True):
            rows = (start + torch.arange(ROWS).unsqueeze(1)).unsqueeze(-1).expand(-1, -1, ROWS)
            x.scatter_add_(0, rows, images[index].transpose(0, 1))
        return Batch(x, labels[digits[-1]])
