"""Tasks of labelled images: the base class, and whole images as vectors."""

from __future__ import annotations

from abc import abstractmethod
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
from undamped.lab.tasks.task import Batch, LabelledTask, Split

MNISTVariant = Literal["mnist", "fashion-mnist"]


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
        """Return bytes and classes of each split."""
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
