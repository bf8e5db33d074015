"""Pictures as wholes: MNIST, Fashion-MNIST and CIFAR-10 for models that read them at once."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from undamped._base.errors import OptionError, explain
from undamped._base.options import NonNegativeInt, PositiveInt
from undamped._base.registry import tasks
from undamped.lab.data.published.cache import folder
from undamped.lab.data.published.formats.images import Images, read_cifar10, read_idx_folder
from undamped.lab.tasks.labelled_pictures import LabelledPictures
from undamped.lab.tasks.task import Batch, Split


class PictureTask(LabelledPictures):
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
            raise OptionError(
                explain(
                    "pool",
                    expected=f"a divisor of {self.side}",
                    got=pool,
                    remedy="2 halves the sides of the pictures.",
                )
            )
        self.pool = pool
        self.input_size = self.colours * (self.side // pool) ** 2

    def laid_out(self, pictures: np.ndarray) -> np.ndarray:
        """Lay pictures out as (pictures, colours, rows, columns)."""
        return pictures.reshape(-1, self.colours, self.side, self.side)

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Return the chosen pictures with pixels in [0, 1], (batch, numbers)."""
        pictures, labels = self._data[split]
        pixels = pictures[index].float() / 255
        if self.pool > 1:
            pixels = avg_pool2d(pixels, self.pool)
        return Batch(pixels.flatten(1), labels[index])


@tasks.register("mnist-images")
class MNISTImages(PictureTask):
    """See the picture of a digit as a whole, and say which digit it is.

    Args:
        images: The handwritten digits of MNIST, or the clothes of Fashion-MNIST.
        training: How many of the training pictures to use; 0 for all.
        validation: How many training pictures are kept for validation.
        pool: Squares of so many pixels a side are averaged; 2 makes 14 × 14 of 28 × 28.
        split_seed: Which of the training pictures are kept.
        seed: Where the order of training comes from.

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
class CIFAR10Images(PictureTask):
    """See a small coloured picture as a whole, and say what is on it.

    Args:
        training: How many of the training pictures to use; 0 for all.
        validation: How many training pictures are kept for validation.
        pool: Squares of so many pixels a side are averaged.
        split_seed: Which of the training pictures are kept.
        seed: Where the order of training comes from.

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
