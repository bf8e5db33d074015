"""Breast cancer: classification of cell samples by thirty measurements."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from undamped._base.options import NonNegativeInt
from undamped._base.registry import tasks
from undamped.lab.tasks.task import Chance, LabelledTask, Split

VALIDATION, TEST = 85, 143


@tasks.register("breast-cancer")
class BreastCancer(LabelledTask):
    """Classify cell samples as malignant or benign by thirty measurements of nuclei.

    The 569 samples of Wisconsin's diagnostic set, which scikit-learn ships, stratified by class:
    341 to train, 85 to validate, 143 to test. Measurements are standardised with mean and deviation
    of the training split.

    Args:
        split_seed: Seed of the split.
        seed: Seed of the order of the batches.

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

    def load(self) -> dict[Split, tuple[Tensor, Tensor]]:
        """Return standardised measurements and classes of each split."""
        from sklearn.datasets import load_breast_cancer
        from sklearn.model_selection import train_test_split

        values, labels = load_breast_cancer(return_X_y=True)
        rest, test, rest_labels, test_labels = train_test_split(
            values, labels, test_size=TEST, stratify=labels, random_state=self.split_seed
        )
        train, valid, train_labels, valid_labels = train_test_split(
            rest,
            rest_labels,
            test_size=VALIDATION,
            stratify=rest_labels,
            random_state=self.split_seed,
        )
        arrays: dict[Split, Any] = {
            "train": (train, train_labels),
            "valid": (valid, valid_labels),
            "test": (test, test_labels),
        }
        mean, deviation = np.mean(train, axis=0), np.std(train, axis=0)
        return {
            split: (torch.tensor((x - mean) / deviation).float(), torch.tensor(y))
            for split, (x, y) in arrays.items()
        }

    @property
    def chance(self) -> Chance:
        """The entropy of the test classes, and the accuracy of the commoner one."""
        benign = self._data["test"][1].double().mean().item()
        loss = -benign * math.log(benign) - (1 - benign) * math.log(1 - benign)
        return Chance(loss=loss, metric=max(benign, 1 - benign), rule="always benign")
