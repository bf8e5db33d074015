"""IMDB: sentiment of film reviews."""

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
FRACTIONS = {"train": 0.7, "valid": 0.3}
FRACTIONS_WITHOUT_TEST = {"train": 0.7, "valid": 0.15, "test": 0.15}


@tasks.register("imdb")
class IMDB(ArrayTask):
    """Read a film review word by word, then classify it as favourable or not.

    Words are lower-case and are replaced by their GloVe vectors of 100 numbers; words without a
    vector are zero. With both published halves, 30 % of the training half are for validation and
    the other half is the test, as in the papers. If only the training half is available, it is
    split 70 : 15 : 15, and results are not those of the published test. Identical reviews are in
    the same split.

    Args:
        embedding: "frozen" for vectors as inputs; "trained" for indices of words as inputs of an
            embedding that starts from the vectors.
        vocabulary: Size of the vocabulary, the commonest words of the training split.
        length: Longest review in words; longer ones are truncated.
        split_seed: Seed of the split.
        seed: Seed of the order of the batches.

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
        self.length, self.split_seed, self._limit = length, split_seed, vocabulary
        self.input_kind = "symbols" if embedding == "trained" else "vectors"
        vectors = self.initial_embedding
        self.input_size = vectors.shape[0 if embedding == "trained" else 1]

    @cached_property
    def _reviews(self) -> dict[str, tuple[list[list[str]], Tensor]]:
        """Words and classes of each split."""
        halves = read_imdb(folder("imdb"))
        self.has_test = "test" in halves
        fractions = FRACTIONS if self.has_test else FRACTIONS_WITHOUT_TEST
        indices = divide_reviews(halves["train"], fractions, self.split_seed)
        texts, labels = halves["train"].texts, halves["train"].labels
        splits = {
            name: Reviews([texts[position] for position in index], labels[index])
            for name, index in indices.items()
        }
        if self.has_test:
            splits["test"] = halves["test"]
        return {
            name: ([words(text) for text in reviews.texts], torch.from_numpy(reviews.labels))
            for name, reviews in splits.items()
        }

    @cached_property
    def vocabulary(self) -> list[str]:
        """The words, the commonest first; index 0 is for all others."""
        counts = Counter(word for review in self._reviews["train"][0] for word in review)
        ordered = sorted(counts, key=lambda word: (-counts[word], word))
        return ["", *ordered[: self._limit]]

    @cached_property
    def initial_embedding(self) -> Tensor:
        """The GloVe vector of every word of the vocabulary, (words, 100); zero if there is none."""
        glove, size = read_glove(folder("glove"), set(self.vocabulary))
        vectors = np.zeros((len(self.vocabulary), size), np.float32)
        for index, word in enumerate(self.vocabulary):
            if word in glove:
                vectors[index] = glove[word]
        self.coverage = len(glove) / max(1, len(self.vocabulary) - 1)
        return torch.from_numpy(vectors)

    def starting_embedding(self) -> Tensor | None:
        """Return the GloVe vectors if an embedding is trained."""
        return self.initial_embedding if self.input_kind == "symbols" else None

    @cached_property
    def _data(self) -> dict[str, tuple[list[Tensor], Tensor]]:
        """Indices of the words of each review, and classes."""
        index_of = {word: index for index, word in enumerate(self.vocabulary) if index}

        def encode(review: list[str]) -> Tensor:
            symbols = [index_of.get(word, UNKNOWN) for word in review[: self.length]]
            return torch.tensor(symbols or [UNKNOWN])

        return {
            name: ([encode(review) for review in texts], labels)
            for name, (texts, labels) in self._reviews.items()
        }

    @property
    def chance(self) -> Chance:
        """The commoner class of the training split, on the test split."""
        train, test = self._data["train"][1], self._data["test"][1]
        commoner = int(train.double().mean() >= 0.5)
        accuracy = (test == commoner).double().mean().item()
        return Chance(loss=math.log(2), metric=accuracy, rule="always the commoner class")

    def sequences(self, split: Split) -> int:
        return len(self._data[split][1])

    def order(self, epoch: int, size: int) -> Tensor:
        """Return a shuffled order in which a batch has reviews of similar length."""
        lengths = torch.tensor([len(review) for review in self._data["train"][0]])
        return self.order_by_length(epoch, size, lengths)

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        reviews, labels = self._data[split]
        batch = [reviews[position] for position in index.tolist()]
        lengths = torch.tensor([len(review) for review in batch])
        symbols = torch.nn.utils.rnn.pad_sequence(batch, padding_value=UNKNOWN)
        inputs = symbols if self.input_kind == "symbols" else self.initial_embedding[symbols]
        return Batch(inputs, labels[index], lengths)

    def notes(self) -> list[str]:
        """Return the split and the coverage of the vocabulary, in sentences."""
        sizes = ", ".join(f"{len(labels):,} {name}" for name, (_, labels) in self._reviews.items())
        half = (
            "Test: the published half."
            if self.has_test
            else "Only the published training half is available, and the test is split off from "
            "it, so accuracies are not those of the published test."
        )
        vectors = f"{self.coverage:.0%} of the words have a GloVe vector."
        return [f"IMDB reviews: {sizes}.", half, vectors]

    def record(self) -> dict[str, Any]:
        return {"data": self.notes()}
