"""Tasks of labelled images: the base class, and images that a model sees as a whole."""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from undamped._base.errors import OptionError
from undamped._base.options import NonNegativeInt, PositiveInt
from undamped._base.registry import tasks
from undamped.lab.data.published.cache import folder
from undamped.lab.data.published.formats.images import Images, read_cifar10, read_idx_folder
from undamped.lab.tasks.task import ArrayTask, Batch, Chance, Split


class LabelledImages(ArrayTask):
    """Published images of ten classes, some of the training ones held out for validation.

    Args:
        validation: How many training images are held out for validation.
        split_seed: Seed of the choice of validation images.
        training: How many training images are used; 0 for all.
        seed: Seed of the order of training.
    """

    output_size = 10

    def __init__(self, validation: int, split_seed: int, seed: int, training: int = 0) -> None:
        super().__init__(seed)
        self.validation, self.split_seed, self.training = validation, split_seed, training

    @abstractmethod
    def read(self) -> Images:
        """Read all images."""

    @abstractmethod
    def arrange(self, images: np.ndarray) -> np.ndarray:
        """Return images in the layout in which they are stored."""

    @cached_property
    def _data(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Bytes and classes of each split."""
        images = self.read()
        total = len(images.train)
        if self.validation >= total:
            raise OptionError(
                f"validation must be less than the {total:,} training images, got "
                f"{self.validation}."
            )
        order = np.random.default_rng(self.split_seed).permutation(total)
        valid, train = np.sort(order[: self.validation]), np.sort(order[self.validation :])
        if self.training:
            train = train[: self.training]
        data = {
            "valid": (images.train[valid], images.train_labels[valid]),
            "train": (images.train[train], images.train_labels[train]),
            "test": (images.test, images.test_labels),
        }
        # Copies, since arrays that are read from a file are not writable.
        return {
            name: (torch.tensor(self.arrange(pixels)), torch.tensor(labels))
            for name, (pixels, labels) in data.items()
        }

    @property
    def chance(self) -> Chance:
        """The loss of equal probabilities, and the accuracy of the commonest test class."""
        labels = self._data["test"][1]
        frequency = torch.bincount(labels, minlength=10).max().item() / len(labels)
        return Chance(loss=math.log(10), metric=frequency, rule="always the commonest class")

    def sequences(self, split: Split) -> int:
        """Return the number of images of a split."""
        return len(self._data[split][1])


class ImageTask(LabelledImages):
    """Pictures with ten classes, given as vectors: colour after colour, row after row."""

    recipes: ClassVar = {
        "*": {"model": {"hidden_size": 32}, "train": {"batch_size": 64, "epochs": 3}}
    }

    sequential: ClassVar[bool] = False
    colours: ClassVar[int] = 1
    side: ClassVar[int] = 28

    def __init__(
        self,
        *,
        training: NonNegativeInt = 0,
        validation: PositiveInt = 3000,
        pool: PositiveInt = 1,
        split_seed: NonNegativeInt = 0,
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(validation, split_seed, seed, training)
        if self.side % pool:
            raise OptionError(f"pool must be a divisor of {self.side}, got {pool}.")
        self.pool = pool
        self.input_size = self.colours * (self.side // pool) ** 2

    def arrange(self, images: np.ndarray) -> np.ndarray:
        """Return images as (images, colours, rows, columns)."""
        return images.reshape(-1, self.colours, self.side, self.side)

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Return the chosen images with pixels in [0, 1], (batch, numbers)."""
        images, labels = self._data[split]
        pixels = images[index].float() / 255
        if self.pool > 1:
            pixels = avg_pool2d(pixels, self.pool)
        return Batch(pixels.flatten(1), labels[index])


@tasks.register("mnist-images")
class MNISTImages(ImageTask):
    """Classify the image of a digit, given as a whole.

    Args:
        images: The handwritten digits of MNIST, or the clothes of Fashion-MNIST.
        training: How many training images are used; 0 for all.
        validation: How many training images are held out for validation.
        pool: Side of the squares of pixels that are averaged; 2 makes 14 × 14 of 28 × 28.
        split_seed: Seed of the choice of validation images.
        seed: Seed of the order of training.

    Example:
        >>> build("mnist-images", training=2560, pool=2)

    Reference:
        Y. LeCun et al. Gradient-based learning applied to document recognition. 1998; H. Xiao et
        al. Fashion-MNIST. 2017.
    """

    def __init__(
        self,
        *,
        images: Literal["mnist", "fashion-mnist"] = "mnist",
        training: NonNegativeInt = 0,
        validation: PositiveInt = 3000,
        pool: PositiveInt = 1,
        split_seed: NonNegativeInt = 0,
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(
            training=training, validation=validation, pool=pool, split_seed=split_seed, seed=seed
        )
        self.images = images

    def read(self) -> Images:
        """Read the four files."""
        return read_idx_folder(folder(self.images))


@tasks.register("cifar10-images")
class CIFAR10Images(ImageTask):
    """Classify a small colour image, given as a whole.

    Args:
        training: How many training images are used; 0 for all.
        validation: How many training images are held out for validation.
        pool: Side of the squares of pixels that are averaged.
        split_seed: Seed of the choice of validation images.
        seed: Seed of the order of training.

    Example:
        >>> build("cifar10-images", training=5000)

    Reference:
        A. Krizhevsky. Learning multiple layers of features from tiny images. 2009.
    """

    colours: ClassVar[int] = 3
    side: ClassVar[int] = 32

    def read(self) -> Images:
        """Read the batches."""
        return read_cifar10(folder("cifar10"))
