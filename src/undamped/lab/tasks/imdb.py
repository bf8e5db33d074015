"""IMDB: is a film review favourable?"""

from __future__ import annotations

import math
from collections import Counter
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from undamped._base.options import NonNegativeInt, PositiveInt
from undamped._base.registry import tasks
from undamped.lab.data.published.cache import folder
from undamped.lab.data.published.formats.text import (
    Reviews,
    divide_reviews,
    read_glove,
    read_imdb,
    words,
)
from undamped.lab.tasks.task import ArrayTask, Batch, Chance, Split

UNKNOWN = 0
HALVES = {"train": 0.7, "valid": 0.3}
ONE_HALF = {"train": 0.7, "valid": 0.15, "test": 0.15}


@tasks.register("imdb")
class IMDB(ArrayTask):
    """Read a film review word by word, then say whether it is favourable.

    Words are lower-case and come as their GloVe vectors of 100 numbers; words without a vector are
    zero. With both published halves, 30 % of the training half are for validation and the other
    half is the test, as in the papers. Where only the training half is there, it is divided
    70 : 15 : 15, and results are not those of the published test. Identical reviews stay together.

    Args:
        embedding: "frozen" feeds the vectors as they are; "trained" feeds word numbers to an
            embedding that starts from them.
        vocabulary: How many of the commonest words of the training part are known.
        length: Longest review; what comes after is cut off.
        split_seed: Which of the possible divisions.
        seed: Where the order of training comes from.

    Example:
        >>> build("imdb", embedding="trained")

    Reference:
        A. L. Maas et al. Learning word vectors for sentiment analysis. ACL, 2011.
        J. Pennington, R. Socher, C. D. Manning. GloVe. EMNLP, 2014.
    """

    recipes: ClassVar = {
        "*": {"train": {"batch_size": 32, "learning_rate": 0.001, "clip": 1.0, "epochs": 5}},
        "unicornn": {"model": {"num_layers": 2, "dt": 0.205, "alpha": 0.0, "dropout": 0.1}},
        "cornn": {"model": {"dt": 0.054, "gamma": 4.9, "epsilon": 4.8}},
    }

    output_size = 2

    def __init__(
        self,
        *,
        embedding: Literal["frozen", "trained"] = "frozen",
        vocabulary: PositiveInt = 25_000,
        length: PositiveInt = 400,
        split_seed: NonNegativeInt = 0,
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(seed)
        self.length = length
        self.split_seed = split_seed
        self._limit = vocabulary
        self.input_kind = "symbols" if embedding == "trained" else "vectors"
        vectors = self.initial_embedding
        self.input_size = vectors.shape[0 if embedding == "trained" else 1]

    @cached_property
    def _reviews(self) -> dict[str, tuple[list[list[str]], Tensor]]:
        """Words and classes of each part."""
        found = read_imdb(folder("imdb"))
        self.whole = "test" in found
        shares = HALVES if self.whole else ONE_HALF
        parts = divide_reviews(found["train"], shares, self.split_seed)
        chosen = {name: _some(found["train"], index) for name, index in parts.items()}
        if self.whole:
            chosen["test"] = found["test"]
        return {
            name: ([words(text) for text in part.texts], torch.from_numpy(part.labels))
            for name, part in chosen.items()
        }

    @cached_property
    def vocabulary(self) -> list[str]:
        """The known words, the commonest first; number 0 stands for all others."""
        counts = Counter(word for review in self._reviews["train"][0] for word in review)
        ordered = sorted(counts, key=lambda word: (-counts[word], word))
        return ["", *ordered[: self._limit]]

    @cached_property
    def initial_embedding(self) -> Tensor:
        """The GloVe vector of every known word, (words, 100); zero where there is none."""
        found, size = read_glove(folder("glove"), set(self.vocabulary))
        vectors = np.zeros((len(self.vocabulary), size), np.float32)
        for number, word in enumerate(self.vocabulary):
            if word in found:
                vectors[number] = found[word]
        self.share_with_vector = len(found) / max(1, len(self.vocabulary) - 1)
        return torch.from_numpy(vectors)

    def starting_embedding(self) -> Tensor | None:
        """The GloVe vectors, where an embedding is trained."""
        return self.initial_embedding if self.input_kind == "symbols" else None

    @cached_property
    def _data(self) -> dict[str, tuple[list[Tensor], Tensor]]:
        """Numbers of the words of each review, and classes."""
        place = {word: number for number, word in enumerate(self.vocabulary) if number}

        def numbers(review: list[str]) -> Tensor:
            known = [place.get(word, UNKNOWN) for word in review[: self.length]]
            return torch.tensor(known or [UNKNOWN])

        return {
            name: ([numbers(review) for review in texts], labels)
            for name, (texts, labels) in self._reviews.items()
        }

    @property
    def chance(self) -> Chance:
        """The commoner class of the training part, on the test part."""
        train, test = self._data["train"][1], self._data["test"][1]
        likely = int(train.double().mean() >= 0.5)
        right = (test == likely).double().mean().item()
        return Chance(loss=math.log(2), metric=right, rule="always the commoner class")

    def sequences(self, split: Split) -> int:
        """How many reviews a split has."""
        return len(self._data[split][1])

    def order(self, epoch: int, size: int) -> Tensor:
        """Return a shuffled order in which reviews of like length come together."""
        shuffled = super().order(epoch, size)
        lengths = torch.tensor([len(review) for review in self._data["train"][0]])[shuffled]
        # Sorted only within a stretch of eight batches, so that batches still differ by pass.
        stretch = torch.arange(len(shuffled)) // (8 * size)
        near = shuffled[np.lexsort((lengths.numpy(), stretch.numpy()))]
        whole = len(near) // size
        batches = near[: whole * size].view(whole, size)
        mixed = batches[torch.randperm(whole, generator=self.generator("train", epoch, part=2))]
        return torch.cat([mixed.flatten(), near[whole * size :]])

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Pad the chosen reviews to the longest of them."""
        reviews, labels = self._data[split]
        chosen = [reviews[number] for number in index.tolist()]
        lengths = torch.tensor([len(review) for review in chosen])
        numbers = torch.nn.utils.rnn.pad_sequence(chosen, padding_value=UNKNOWN)
        inputs = numbers if self.input_kind == "symbols" else self.initial_embedding[numbers]
        return Batch(inputs, labels[index], lengths)

    def notes(self) -> list[str]:
        """Say which reviews are what."""
        sizes = ", ".join(f"{len(labels):,} {name}" for name, (_, labels) in self._reviews.items())
        half = (
            "Test: the published half."
            if self.whole
            else "Only the published training half is here: it is divided, and the test is a part "
            "of it, so accuracies are not those of the published test."
        )
        vectors = f"{self.share_with_vector:.0%} of the known words have a GloVe vector."
        return [f"IMDB reviews: {sizes}.", half, vectors]

    def record(self) -> dict[str, Any]:
        """What a run has to remember."""
        return {"data": self.notes()}


def _some(reviews: Reviews, index: np.ndarray) -> Reviews:
    return Reviews([reviews.texts[number] for number in index], reviews.labels[index])
