"""Breast cancer: thirty measurements of a cell sample, benign or malignant."""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from undamped._base.options import NonNegativeInt
from undamped._base.registry import tasks
from undamped.lab.tasks.task import ArrayTask, Batch, Chance, Split

VALIDATION, TEST = 85, 143


@tasks.register("breast-cancer")
class BreastCancer(ArrayTask):
    """Tell malignant from benign by thirty measurements of cell nuclei.

    The 569 samples of Wisconsin's diagnostic set, which scikit-learn ships, split by class: 341
    to train, 85 to validate, 143 to test. Measurements have mean zero and deviation one on the
    training part.

    Args:
        split_seed: Which of the possible splits to use.
        seed: Where the order of training comes from.

    Reference:
        W. N. Street, W. H. Wolberg, O. L. Mangasarian. Nuclear feature extraction for breast
        tumor diagnosis. Biomedical Image Processing, 1993.
    """

    recipes: ClassVar = {
        "*": {"model": {"hidden_size": 32}, "train": {"batch_size": 64, "epochs": 20}}
    }

    sequential: ClassVar[bool] = False
    input_size = 30
    output_size = 2
    answer_names = ("malignant", "benign")

    def __init__(self, *, split_seed: NonNegativeInt = 0, seed: NonNegativeInt = 0) -> None:
        super().__init__(seed)
        self.split_seed = split_seed

    @cached_property
    def _data(self) -> dict[str, tuple[Tensor, Tensor]]:
        from sklearn.datasets import load_breast_cancer
        from sklearn.model_selection import train_test_split

        values, labels = load_breast_cancer(return_X_y=True)
        rest, test, rest_labels, test_labels = train_test_split(
            values, labels, test_size=TEST, stratify=labels, random_state=self.split_seed
        )
        train, valid, train_labels, valid_labels = train_test_split(
            rest, rest_labels, test_size=VALIDATION, stratify=rest_labels,
            random_state=self.split_seed,
        )  # fmt: skip
        parts = {
            "train": (train, train_labels),
            "valid": (valid, valid_labels),
            "test": (test, test_labels),
        }
        mean, deviation = np.mean(train, axis=0), np.std(train, axis=0)
        return {
            split: (torch.tensor((x - mean) / deviation).float(), torch.tensor(y))
            for split, (x, y) in parts.items()
        }

    @property
    def chance(self) -> Chance:
        """The commoner class of the test part, and its share."""
        labels = self._data["test"][1].double()
        share = labels.mean().item()
        loss = -share * math.log(share) - (1 - share) * math.log(1 - share)
        return Chance(loss=loss, metric=max(share, 1 - share), rule="always benign")

    def sequences(self, split: Split) -> int:
        """How many samples a split has."""
        return len(self._data[split][1])

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Return the chosen samples."""
        values, labels = self._data[split]
        return Batch(values[index], labels[index])
