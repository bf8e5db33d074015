"""Sequential MNIST: the pixels of a digit one at a time, row by row or in a fixed random order."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar, Literal, Unpack

import numpy as np
import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.registry import tasks
from undamped.lab.tasks.images import ImageOptions, LabelledImages, MNISTVariant
from undamped.lab.tasks.task import Batch, Settings, Split

Permutation = Literal["unicornn", "cornn", "exprnn", "nnrnn", "bit-reversal"]


def _recipes(learning_rate: float, **cornn: float) -> Mapping[str, Settings]:
    """Return the papers' settings, with those of coRNN as arguments.

    The budgets are not the papers', which train for days.
    """
    return {
        "*": {"train": {"batch_size": 64, "clip": 1.0, "epochs": 10, "schedule": "cosine"}},
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
        """Return images as (images, pixels)."""
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
