"""What tasks with pictures of ten classes share, however a model is shown the pictures."""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import OptionError, explain
from undamped.lab.data.published.formats.images import Images
from undamped.lab.tasks.task import ArrayTask, Chance, Split


class LabelledPictures(ArrayTask):
    """Published pictures, some of the training ones kept for validation, and what a guess scores.

    Args:
        validation: How many training pictures are kept for validation.
        split_seed: Which of the training pictures those are.
        training: How many are trained on; 0 for all that are left.
        seed: Where the order of training comes from.
    """

    output_size = 10

    def __init__(self, validation: int, split_seed: int, seed: int, training: int = 0) -> None:
        super().__init__(seed)
        self.validation, self.split_seed, self.training = validation, split_seed, training

    @abstractmethod
    def read(self) -> Images:
        """Read all pictures."""

    @abstractmethod
    def laid_out(self, pictures: np.ndarray) -> np.ndarray:
        """Return pictures in the layout in which they are kept."""

    @cached_property
    def _data(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Bytes and classes of each part."""
        found = self.read()
        parts = self._held_out(len(found.train))
        if self.training:
            parts["train"] = parts["train"][: self.training]
        data = {name: (found.train[at], found.train_labels[at]) for name, at in parts.items()}
        data["test"] = (found.test, found.test_labels)
        # Copies: arrays read from a file may not be written to, and torch wants to be able to.
        return {
            name: (torch.tensor(self.laid_out(pictures)), torch.tensor(labels))
            for name, (pictures, labels) in data.items()
        }

    def _held_out(self, total: int) -> dict[str, np.ndarray]:
        """Draw which training pictures are kept for validation; both parts in their old order."""
        held = self.validation
        if held >= total:
            raise OptionError(
                explain(
                    "validation",
                    expected=f"fewer than the {total:,} training pictures",
                    got=held,
                    remedy="Leave some to train on.",
                )
            )
        order = np.random.default_rng(self.split_seed).permutation(total)
        return {"valid": np.sort(order[:held]), "train": np.sort(order[held:])}

    @property
    def chance(self) -> Chance:
        """One class in ten, by the commonest class of the test part."""
        labels = self._data["test"][1]
        share = torch.bincount(labels, minlength=10).max().item() / len(labels)
        return Chance(loss=math.log(10), metric=share, guess="always the commonest class")

    def sequences(self, split: Split) -> int:
        """How many pictures a split has."""
        return len(self._data[split][1])
