"""Sequential MNIST: a handwritten digit, one pixel at a time."""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from undamped.data.published.cache import folder
from undamped.data.published.formats.images import read_idx_folder
from undamped.errors import OptionError, explain
from undamped.options import NonNegativeInt, PositiveInt
from undamped.registry import tasks
from undamped.tasks.task import ArrayTask, Batch, Chance, Split


@tasks.register("smnist")
class SequentialMNIST(ArrayTask):
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
    output_size = 10
    input_kind = "pixels"

    def __init__(
        self,
        *,
        images: Literal["mnist", "fashion-mnist"] = "mnist",
        validation: PositiveInt = 3000,
        split_seed: NonNegativeInt = 0,
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(seed)
        self.images = images
        self.validation = validation
        self.split_seed = split_seed

    @cached_property
    def visits(self) -> Tensor:
        """The place of the pixel that comes at each step."""
        return torch.arange(self._data["test"][0].shape[1])

    @cached_property
    def _data(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Bytes (pictures, pixels) and classes of each part."""
        found = read_idx_folder(folder(self.images))
        parts = held_out_part(len(found.train), self.validation, self.split_seed, self.images)
        data: dict[str, tuple[Tensor, Tensor]] = {
            "test": (_flat(found.test), torch.from_numpy(found.test_labels))
        }
        for name, index in parts.items():
            labels = torch.from_numpy(found.train_labels[index])
            data[name] = _flat(found.train[index]), labels
        return data

    @property
    def chance(self) -> Chance:
        """One class in ten, by the commonest class of the test part."""
        labels = self._data["test"][1]
        share = torch.bincount(labels, minlength=10).max().item() / len(labels)
        return Chance(loss=math.log(10), metric=share, guess="always the commonest class")

    def sequences(self, split: Split) -> int:
        """How many pictures a split has."""
        return len(self._data[split][1])

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Lay the pixels of the chosen pictures out in time."""
        pictures, labels = self._data[split]
        pixels = pictures[index].T[self.visits]
        return Batch(pixels.unsqueeze(-1), labels[index])


def held_out_part(total: int, held: int, seed: int, name: str) -> dict[str, np.ndarray]:
    """Draw which training pictures are kept for validation; both parts in their old order."""
    if held >= total:
        raise OptionError(
            explain(
                "validation",
                expected=f"fewer than the {total:,} training pictures of {name}",
                got=held,
                remedy="Leave some to train on.",
            )
        )
    order = np.random.default_rng(seed).permutation(total)
    return {"valid": np.sort(order[:held]), "train": np.sort(order[held:])}


def _flat(pictures: np.ndarray) -> Tensor:
    # A copy: arrays read from a file may not be written to, and torch wants to be able to.
    return torch.from_numpy(pictures.reshape(len(pictures), -1).copy())
