"""Permuted sequential MNIST: the same pixels in an order that hides what is near what."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from undamped._base.options import NonNegativeInt, PositiveInt
from undamped._base.registry import tasks
from undamped.lab.tasks.smnist import SequentialMNIST

Permutation = Literal["unicornn", "cornn", "exprnn", "nnrnn", "bit-reversal"]


@tasks.register("psmnist")
class PermutedMNIST(SequentialMNIST):
    """Read the pixels of a digit in one fixed random order, then say which digit it was.

    Papers drew their orders in different ways, and accuracies are only comparable within one.

    Args:
        permutation: Whose order: "unicornn" (also LEM; torch, seed 5544), "cornn" (also
            LipschitzRNN; torch, seed 12008), "exprnn" (also uRNN and scoRNN; NumPy's
            RandomState 92916), "nnrnn" (RandomState 1234), or "bit-reversal" (S4, S5: places in
            the order of their reversed binary digits).
        images: The handwritten digits of MNIST, or the clothes of Fashion-MNIST.
        validation: How many training pictures are kept for validation: 3,000 in the programs of
            UnICORNN and coRNN, 10,000 in that of nnRNN.
        split_seed: Which of the training pictures those are.
        seed: Where the order of training comes from.

    Example:
        >>> build("psmnist", permutation="exprnn")

    Reference:
        Q. V. Le, N. Jaitly, G. E. Hinton. A simple way to initialize recurrent networks of
        rectified linear units. 2015. Orders: the programs published with each paper.
    """

    # The papers' settings; their budgets are not, since the papers train for days.
    recipes: ClassVar = {
        "*": {"train": {"batch_size": 64, "clip": 1.0, "epochs": 10, "schedule": "cosine"}},
        "unicornn": {
            "model": {"num_layers": 3, "dt": 0.482, "alpha": 12.53, "dropout": 0.1},
            "train": {"learning_rate": 0.00114},
        },
        "cornn": {
            "model": {"hidden_size": 256, "dt": 0.076, "gamma": 0.4, "epsilon": 8.0},
            "train": {"learning_rate": 0.0054, "batch_size": 120},
        },
    }

    def __init__(
        self,
        *,
        permutation: Permutation = "unicornn",
        images: Literal["mnist", "fashion-mnist"] = "mnist",
        validation: PositiveInt = 3000,
        split_seed: NonNegativeInt = 0,
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(images=images, validation=validation, split_seed=split_seed, seed=seed)
        self.permutation: Permutation = permutation

    @cached_property
    def visits(self) -> Tensor:
        """The place of the pixel that comes at each step."""
        return pixel_order(self.permutation, self._data["test"][0].shape[1])


def pixel_order(permutation: Permutation, pixels: int = 784) -> Tensor:
    """Return the order in which a paper's program visits the pixels."""
    if permutation == "bit-reversal":
        digits = max(1, (pixels - 1).bit_length())
        reversed_places = [int(f"{i:0{digits}b}"[::-1], 2) for i in range(2**digits)]
        return torch.tensor([place for place in reversed_places if place < pixels])
    if permutation in ("exprnn", "nnrnn"):
        seed = {"exprnn": 92916, "nnrnn": 1234}[permutation]
        return torch.from_numpy(np.random.RandomState(seed).permutation(pixels))
    seed = {"unicornn": 5544, "cornn": 12008}[permutation]
    return torch.randperm(pixels, generator=torch.Generator().manual_seed(seed))
