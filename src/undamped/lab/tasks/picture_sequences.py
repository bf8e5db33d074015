"""Labelled sequences of images from a folder or an .npz file as a task."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import DataError, OptionError
from undamped._base.options import Fraction, NonNegativeInt
from undamped._base.registry import tasks
from undamped.lab.data.images import ImageSequences, read_image_sequences
from undamped.lab.data.recordings.splits import DEFAULT_FRACTIONS, PARTS, deal
from undamped.lab.tasks.task import ArrayTask, Batch, Chance, Split


@tasks.register("picture-sequences")
class PictureSequences(ArrayTask):
    """Learn from your own sequences of images.

    A folder with a folder for each class, which has a folder for each sequence, with images in the
    order of their names; or an .npz file with `pictures` and `labels`. All images have one size and
    all sequences one length.

    Args:
        file: The folder or .npz file.
        fractions: Fractions of training, validation and test, if the source has no split.
        split_seed: Seed of the split.
        seed: Seed of the order of the batches.

    Example:
        >>> build("picture-sequences", file="trials/")

    Reference:
        Why copies must stay in one split: S. Kaufman, S. Rosset, C. Perlich. Leakage in data
        mining: formulation, detection, and avoidance. KDD, 2011.
    """

    input_kind = "pictures"
    recipes: ClassVar = {"*": {"train": {"steps": 2000, "batch_size": 96, "learning_rate": 5e-4}}}

    def __init__(
        self,
        file: str,
        *,
        fractions: Sequence[Fraction] = DEFAULT_FRACTIONS,
        split_seed: NonNegativeInt = 0,
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(seed)
        self.file = file
        self.source = source = read_image_sequences(file)
        assert source.labels is not None
        self.splits = split_sequences(source, tuple(fractions), split_seed)
        self._images = torch.from_numpy(np.ascontiguousarray(source.images))
        self._sequences = torch.from_numpy(source.sequences)
        self._labels = torch.from_numpy(source.labels)
        _, channels, height, width = source.images.shape
        self.picture_shape = (channels, height, width)
        self.input_size = channels * height * width
        self.segments = self.rows = (source.sequences.shape[1],)
        self.output_size = len(source.classes)
        self.answer_names = tuple(source.classes)

    @property
    def chance(self) -> Chance:
        """The entropy of the test classes, and the accuracy of the commonest one."""
        labels = self._labels[torch.from_numpy(self.splits["test"])]
        frequencies = torch.bincount(labels, minlength=self.output_size).double() / len(labels)
        loss = -sum(p * math.log(p) for p in frequencies.tolist() if p)
        return Chance(loss, frequencies.max().item(), "always the commonest class")

    def sequences(self, split: Split) -> int:
        return len(self.splits[split])

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Return sequences as indices of distinct images."""
        sequences = torch.from_numpy(self.splits[split])[index]
        images = self._sequences[sequences].T.contiguous()
        return Batch(images, self._labels[sequences], distinct=self._images)

    def record(self) -> dict[str, Any]:
        return {"answer_names": list(self.answer_names)}

    def notes(self) -> list[str]:
        """Return sizes, classes and split, in a sentence."""
        sizes = ", ".join(f"{len(self.splits[split])} {split}" for split in PARTS)
        (count, steps), (height, width) = self._sequences.shape, self._images.shape[-2:]
        return [
            f"{count} sequences of {steps} images, {width} × {height} pixels, {len(self._images)} "
            f"of them distinct; {self.output_size} classes: {', '.join(self.answer_names)}. Split: "
            f"{sizes}."
        ]


def split_sequences(
    source: ImageSequences, fractions: tuple[float, ...], seed: int
) -> dict[str, np.ndarray]:
    """Return the indices of the sequences of each split; copies are in the same split.

    Args:
        source: The sequences.
        fractions: Fractions of training, validation and test.
        seed: Seed of the split.
    """
    if len(fractions) != 3 or abs(sum(fractions) - 1) > 1e-6 or min(fractions) <= 0:
        values = ", ".join(f"{fraction:g}" for fraction in fractions)
        raise OptionError(
            "fractions must be three positive numbers for training, validation and test that add "
            f"up to 1, such as 0.7,0.15,0.15; got {values}."
        )
    assert source.labels is not None
    tied = np.unique(source.sequences, axis=0, return_inverse=True)[1].reshape(-1)
    everything = np.arange(len(source))
    train, valid, test = fractions
    if source.parts is None:
        splits = deal(everything, tied, source.labels, (train, valid, test), seed)
    else:
        published = np.array(source.parts)
        splits = {name: everything[published == name] for name in PARTS}
        if not len(splits["valid"]):
            fraction = valid / (train + valid)
            halves = (1 - fraction, fraction, 0.0)
            split = deal(splits["train"], tied, source.labels, halves, seed)
            splits = {**splits, "train": split["train"], "valid": split["valid"]}
    for name in PARTS:
        if not len(splits[name]):
            raise DataError(
                f"{source.source}: the {name} split has none of the {len(source)} sequences. Use "
                "more data, or other fractions."
            )
    return splits
