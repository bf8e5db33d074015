"""Sequences of pictures of one's own as a task: a folder or an .npz file, and a class for each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import DataError, OptionError, explain
from undamped._base.options import Fraction, NonNegativeInt
from undamped._base.registry import tasks
from undamped.lab.data.images.sequences import ImageSequences, read_image_sequences
from undamped.lab.data.recordings.splits import DEFAULT_FRACTIONS, PARTS, deal
from undamped.lab.tasks.task import ArrayTask, Batch, Chance, Split


@tasks.register("picture-sequences")
class PictureSequences(ArrayTask):
    """Learn from sequences of pictures of your own.

    A folder with a folder for each class, in it one for each sequence, in it its pictures in the
    order of their names; or an .npz file with `pictures` and `labels`. All pictures have one size
    and all sequences one length.

    Args:
        file: The folder or .npz file.
        fractions: Shares of training, validation and test, where the source brings no split.
        split_seed: Which of the possible splits.
        seed: Where the order of training comes from.

    Example:
        >>> build("picture-sequences", file="trials/")

    Reference:
        Why copies have to stay on one side: S. Kaufman, S. Rosset, C. Perlich. Leakage in data
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
        found = read_image_sequences(file)
        assert found.labels is not None
        self.parts = split_sequences(found, tuple(fractions), split_seed)
        self.source = found
        self._pictures = torch.from_numpy(np.ascontiguousarray(found.images))
        self._sequences = torch.from_numpy(found.sequences)
        self._labels = torch.from_numpy(found.labels)
        _, channels, height, width = found.images.shape
        self.picture_shape = (channels, height, width)
        self.input_size = channels * height * width
        self.segments = self.rows = (found.sequences.shape[1],)
        self.output_size = len(found.classes)
        self.answer_names = tuple(found.classes)

    @property
    def chance(self) -> Chance:
        """The commonest class of the test part, and the shares of all for the loss."""
        labels = self._labels[torch.from_numpy(self.parts["test"])]
        shares = torch.bincount(labels, minlength=self.output_size).double() / len(labels)
        loss = -sum(share * math.log(share) for share in shares.tolist() if share)
        return Chance(loss, shares.max().item(), "always the commonest class")

    def sequences(self, split: Split) -> int:
        """How many sequences a split has."""
        return len(self.parts[split])

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Return the chosen sequences; each of their pictures is there once."""
        chosen = torch.from_numpy(self.parts[split])[index]
        numbers = self._sequences[chosen].T.contiguous()
        return Batch(numbers, self._labels[chosen], distinct=self._pictures)

    def record(self) -> dict[str, Any]:
        """The names of the classes, for predictions."""
        return {"answer_names": list(self.answer_names)}

    def notes(self) -> list[str]:
        """What was read."""
        found = self.source
        sizes = ", ".join(f"{len(self.parts[part])} {part}" for part in PARTS)
        steps, (height, width) = found.sequences.shape[1], found.images.shape[-2:]
        return [
            f"{len(found)} sequences of {steps} pictures, {width} × {height} pixels, "
            f"{len(found.images)} of which differ; {self.output_size} classes: "
            f"{', '.join(self.answer_names)}. Split: {sizes}."
        ]


def split_sequences(
    found: ImageSequences, fractions: tuple[float, ...], seed: int
) -> dict[str, np.ndarray]:
    """Return the numbers of the sequences of each part; copies stay together.

    Args:
        found: The sequences.
        fractions: Shares of training, validation and test.
        seed: Which of the possible splits.
    """
    if len(fractions) != 3 or abs(sum(fractions) - 1) > 1e-6 or min(fractions) <= 0:
        raise OptionError(
            explain(
                "fractions",
                expected="three shares for training, validation and test that add up to 1",
                got=", ".join(f"{share:g}" for share in fractions),
                remedy="For example 0.7, 0.15, 0.15.",
            )
        )
    assert found.labels is not None
    tied = np.unique(found.sequences, axis=0, return_inverse=True)[1].reshape(-1)
    everyone = np.arange(len(found))
    if found.parts is None:
        shares = (fractions[0], fractions[1], fractions[2])
        parts = deal(everyone, tied, found.labels, shares, seed)
    else:
        given = np.array(found.parts)
        parts = {name: everyone[given == name] for name in PARTS}
        if not len(parts["valid"]):
            rest = parts["train"]
            share = fractions[1] / (fractions[0] + fractions[1])
            dealt = deal(rest, tied, found.labels, (1 - share, share, 0.0), seed)
            parts = {**parts, "train": dealt["train"], "valid": dealt["valid"]}
    for name in PARTS:
        if not len(parts[name]):
            raise DataError(
                explain(
                    f"{found.source}, {name} part",
                    expected="at least one sequence",
                    got=f"none of {len(found)}",
                    remedy="Use more data, or other fractions.",
                )
            )
    return parts
