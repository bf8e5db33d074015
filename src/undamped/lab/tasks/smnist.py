"""Sequential MNIST: a handwritten digit, one pixel at a time."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from undamped._base.options import NonNegativeInt, PositiveInt
from undamped._base.registry import tasks
from undamped.lab.data.published.cache import folder
from undamped.lab.data.published.formats.images import Images, read_idx_folder
from undamped.lab.tasks.labelled_pictures import LabelledPictures
from undamped.lab.tasks.task import Batch, Split


@tasks.register("smnist")
class SequentialMNIST(LabelledPictures):
    """Read a picture of a digit pixel by pixel, then say which digit it was.

    The 28 × 28 pixels come one by one, row after row: 784 steps of one number in [0, 1]. The
    10,000 test pictures are the published ones; validation pictures are drawn once from the
    60,000 training pictures.

    Args:
        images: The handwritten digits of MNIST, or the clothes of Fashion-MNIST.
        validation: How many training pictures are kept for validation: 3,000 in the programs of
            UnICORNN and coRNN, 10,000 in that of nnRNN.
        split_seed: Which of the training pictures those are.
        seed: Where the order of training comes from.

    Example:
        >>> build("smnist", validation=10000)

    Reference:
        Q. V. Le, N. Jaitly, G. E. Hinton. A simple way to initialize recurrent networks of
        rectified linear units. 2015. Data: Y. LeCun et al. 1998; H. Xiao et al. 2017.
    """

    # The papers' settings; their budgets are not, since the papers train for days.
    recipes: ClassVar = {
        "*": {"train": {"batch_size": 64, "clip": 1.0, "epochs": 10, "schedule": "cosine"}},
        "unicornn": {
            "model": {"num_layers": 3, "dt": 0.482, "alpha": 12.53, "dropout": 0.1},
            "train": {"learning_rate": 0.00114},
        },
        "cornn": {
            "model": {"hidden_size": 256, "dt": 0.042, "gamma": 2.7, "epsilon": 4.7},
            "train": {"learning_rate": 0.0035, "batch_size": 120},
        },
    }

    input_size = 1
    input_kind = "pixels"

    def __init__(
        self,
        *,
        images: Literal["mnist", "fashion-mnist"] = "mnist",
        validation: PositiveInt = 3000,
        split_seed: NonNegativeInt = 0,
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(validation, split_seed, seed)
        self.images = images

    @cached_property
    def visits(self) -> Tensor:
        """The place of the pixel that comes at each step."""
        return torch.arange(self._data["test"][0].shape[1])

    def read(self) -> Images:
        """Read digits or clothes."""
        return read_idx_folder(folder(self.images))

    def laid_out(self, pictures: np.ndarray) -> np.ndarray:
        """Lay pictures out as (pictures, pixels)."""
        return pictures.reshape(len(pictures), -1)

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Lay the pixels of the chosen pictures out in time."""
        pictures, labels = self._data[split]
        pixels = pictures[index].T[self.visits]
        return Batch(pixels.unsqueeze(-1), labels[index])
