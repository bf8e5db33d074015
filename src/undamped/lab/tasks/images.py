"""Labelled images: as vectors, or pixel by pixel (sequential MNIST)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, TypedDict, Unpack

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from undamped._base.checked import checked
from undamped._base.errors import OptionError
from undamped._base.options import Default, NonNegativeInt, PositiveInt
from undamped._base.registry import tasks
from undamped.lab.data.published.cache import folder
from undamped.lab.data.published.formats.images import Images, read_cifar10, read_idx_folder
from undamped.lab.tasks.task import COSINE, Batch, LabelledTask, Settings, Split

MNISTVariant = Literal["mnist", "fashion-mnist"]
Permutation = Literal["unicornn", "cornn", "exprnn", "nnrnn", "bit-reversal"]


class ImageOptions(TypedDict, total=False):
    """Options of all tasks of published images."""

    validation: Annotated[
        PositiveInt, Default(3000, "How many training images are held out for validation.")
    ]
    split_seed: Annotated[NonNegativeInt, Default(0, "Seed of the choice of validation images.")]
    seed: Annotated[NonNegativeInt, Default(0, "Seed of the order of the batches.")]


class WholeImageOptions(ImageOptions, total=False):
    """Options of tasks in which a model receives whole images."""

    training: Annotated[NonNegativeInt, Default(0, "How many training images are used; 0 for all.")]
    pool: Annotated[
        PositiveInt,
        Default(1, "Side of the squares of pixels that are averaged; 2 makes 14 × 14 of 28 × 28."),
    ]


class LabelledImages(LabelledTask):
    """Published images of ten classes, some of the training ones held out for validation.

    Args:
        options: Complete options; see `ImageOptions`.
        training: How many training images are used; 0 for all.
    """

    output_size = 10
    images: str = "cifar10"
    """The name of the published data set."""

    def __init__(self, options: Any, training: int = 0) -> None:
        super().__init__(options["seed"])
        self.validation, self.split_seed = options["validation"], options["split_seed"]
        self.training = training

    def read(self) -> Images:
        """Read all images."""
        reader = read_cifar10 if self.images == "cifar10" else read_idx_folder
        return reader(folder(self.images))

    @abstractmethod
    def arrange(self, images: np.ndarray) -> np.ndarray:
        """Return images in the layout in which they are stored."""

    def load(self) -> dict[Split, tuple[Tensor, Tensor]]:
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
        arrays: dict[Split, tuple[np.ndarray, np.ndarray]] = {
            "valid": (images.train[valid], images.train_labels[valid]),
            "train": (images.train[train], images.train_labels[train]),
            "test": (images.test, images.test_labels),
        }
        # Copies, since arrays that are read from a file are not writable.
        return {
            name: (torch.tensor(self.arrange(pixels)), torch.tensor(labels))
            for name, (pixels, labels) in arrays.items()
        }


class ImageTask(LabelledImages):
    """Images of ten classes as vectors, colour by colour and row by row.

    Args:
        options: Complete options; see `WholeImageOptions`.
    """

    recipes: ClassVar = {
        "*": {"model": {"hidden_size": 32}, "train": {"batch_size": 64, "epochs": 3}}
    }

    sequential: ClassVar[bool] = False
    colours: ClassVar[int] = 1
    side: ClassVar[int] = 28

    def __init__(self, options: Any) -> None:
        super().__init__(options, options["training"])
        self.pool: int = options["pool"]
        if self.side % self.pool:
            raise OptionError(f"pool must be a divisor of {self.side}, got {self.pool}.")
        self.input_size = self.colours * (self.side // self.pool) ** 2

    def arrange(self, images: np.ndarray) -> np.ndarray:
        """Return images as (images, colours, rows, columns)."""
        return images.reshape(-1, self.colours, self.side, self.side)

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Return images with pixels in [0, 1], (batch, pixels)."""
        images, labels = self._data[split]
        pixels = images[index].float() / 255
        if self.pool > 1:
            pixels = avg_pool2d(pixels, self.pool)
        return Batch(pixels.flatten(1), labels[index])


@tasks.register("mnist-images")
class MNISTImages(ImageTask):
    """Classify whole images of handwritten digits.

    Args:
        images: The handwritten digits of MNIST, or the clothes of Fashion-MNIST.

    Example:
        >>> build("mnist-images", training=2560, pool=2)

    Reference:
        Y. LeCun et al. Gradient-based learning applied to document recognition. 1998; H. Xiao et
        al. Fashion-MNIST. 2017.
    """

    @checked
    def __init__(
        self, *, images: MNISTVariant = "mnist", **options: Unpack[WholeImageOptions]
    ) -> None:
        super().__init__(options)
        self.images = images


@tasks.register("cifar10-images")
class CIFAR10Images(ImageTask):
    """Classify whole small colour images.

    Example:
        >>> build("cifar10-images", training=5000)

    Reference:
        A. Krizhevsky. Learning multiple layers of features from tiny images. 2009.
    """

    colours: ClassVar[int] = 3
    side: ClassVar[int] = 32

    @checked
    def __init__(self, **options: Unpack[WholeImageOptions]) -> None:
        super().__init__(options)


def _recipes(learning_rate: float, **cornn: float) -> Mapping[str, Settings]:
    """Return the papers' settings, with those of coRNN as arguments.

    The budgets are not the papers', which train for days.
    """
    return {
        "*": {"train": {**COSINE, "batch_size": 64, "epochs": 10}},
        "unicornn": {
            "model": {"num_layers": 3, "dt": 0.482, "alpha": 12.53, "dropout": 0.1},
            "train": {"learning_rate": 0.00114},
        },
        "cornn": {
            "model": {"hidden_size": 256, **cornn},
            "train": {"learning_rate": learning_rate, "batch_size": 120},
        },
    }


@tasks.register("smnist")
class SequentialMNIST(LabelledImages):
    """Read the image of a digit pixel by pixel, then classify it.

    The 28 × 28 pixels follow one after another, row by row: 784 steps of one number in [0, 1]. The
    10,000 test images are the published ones; validation images are drawn from the 60,000 training
    images: 3,000 in the programs of UnICORNN and coRNN, 10,000 in that of nnRNN.

    Args:
        images: The handwritten digits of MNIST, or the clothes of Fashion-MNIST.

    Example:
        >>> build("smnist", validation=10000)

    Reference:
        Q. V. Le, N. Jaitly, G. E. Hinton. A simple way to initialize recurrent networks of
        rectified linear units. 2015. Data: Y. LeCun et al. 1998; H. Xiao et al. 2017.
    """

    recipes: ClassVar = _recipes(dt=0.042, gamma=2.7, epsilon=4.7, learning_rate=0.0035)
    permuted: ClassVar[bool] = False
    """Whether pixels follow in a fixed random order."""
    permutation: Permutation = "unicornn"
    input_size = 1
    input_kind = "pixels"

    @checked
    def __init__(self, *, images: MNISTVariant = "mnist", **options: Unpack[ImageOptions]) -> None:
        super().__init__(options)
        self.images = images

    @cached_property
    def _pixel_order(self) -> Tensor:
        """The index of the pixel of each step."""
        pixels = self._data["test"][0].shape[1]
        return pixel_order(self.permutation, pixels) if self.permuted else torch.arange(pixels)

    def arrange(self, images: np.ndarray) -> np.ndarray:
        return images.reshape(len(images), -1)

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Return the pixels of some images, one per step."""
        images, labels = self._data[split]
        return Batch(images[index].T[self._pixel_order].unsqueeze(-1), labels[index])


@tasks.register("psmnist")
class PermutedMNIST(SequentialMNIST):
    """Read the pixels of a digit in one fixed random order, then classify it.

    Papers use different orders, and accuracies are only comparable within one.

    Args:
        permutation: Whose order: "unicornn" (also LEM; torch, seed 5544), "cornn" (also
            LipschitzRNN; torch, seed 12008), "exprnn" (also uRNN and scoRNN; NumPy's
            RandomState 92916), "nnrnn" (RandomState 1234), or "bit-reversal" (S4, S5: pixels in
            the order of the reversed binary digits of their index).
        images: The handwritten digits of MNIST, or the clothes of Fashion-MNIST.

    Example:
        >>> build("psmnist", permutation="exprnn")

    Reference:
        Q. V. Le, N. Jaitly, G. E. Hinton. A simple way to initialize recurrent networks of
        rectified linear units. 2015. Orders: the programs published with each paper.
    """

    recipes: ClassVar = _recipes(dt=0.076, gamma=0.4, epsilon=8.0, learning_rate=0.0054)
    permuted = True

    @checked
    def __init__(
        self,
        *,
        permutation: Permutation = "unicornn",
        images: MNISTVariant = "mnist",
        **options: Unpack[ImageOptions],
    ) -> None:
        super().__init__(images=images, **options)
        self.permutation: Permutation = permutation


def pixel_order(permutation: Permutation, pixels: int = 784) -> Tensor:
    """Return the order in which a paper's program visits the pixels."""
    if permutation == "bit-reversal":
        digits = max(1, (pixels - 1).bit_length())
        reversed_indices = [int(f"{i:0{digits}b}"[::-1], 2) for i in range(2**digits)]
        return torch.tensor([index for index in reversed_indices if index < pixels])
    if permutation in ("exprnn", "nnrnn"):
        seed = {"exprnn": 92916, "nnrnn": 1234}[permutation]
        return torch.from_numpy(np.random.RandomState(seed).permutation(pixels))
    seed = {"unicornn": 5544, "cornn": 12008}[permutation]
    return torch.randperm(pixels, generator=torch.Generator().manual_seed(seed))
