"""Character-level language modelling: any text, and the Penn Treebank."""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from undamped._base.errors import DataError, OptionError, shortened
from undamped._base.options import PositiveInt
from undamped._base.registry import tasks
from undamped.lab.data.published.cache import folder
from undamped.lab.data.published.formats.text import read_penn_treebank
from undamped.lab.tasks.task import COSINE, SPLITS, Batch, Chance, Split, Task


@tasks.register("characters")
class Characters(Task):
    """Predict each next character of a text.

    Without a file the text is the example of a lecture: the four letters of "hello" as vocabulary,
    "hell" as input, "ello" as targets; it is the same for training, validation and test. Of a file
    the first 90 % are for training and 5 % each for validation and test. A batch has several
    streams of the text, and the next batch continues each of them, so that the state is passed on.

    Args:
        text: The text.
        file: A UTF-8 text file instead of the text.
        length: Characters of each stream in a batch, which limits the reach of gradients.

    Reference:
        Bits per character as in T. Mikolov et al. Subword language modeling with neural networks,
        2012.
    """

    recipes: ClassVar = {
        "*": {"train": {"steps": 1000, "batch_size": 32, "clip": 1.0, "learning_rate": 0.002}}
    }

    readout = "every"
    input_kind = "symbols"
    metric = "bits_per_character"
    higher_is_better = False

    def __init__(
        self, text: str = "hello", *, file: str | None = None, length: PositiveInt = 100
    ) -> None:
        super().__init__()
        self.length = length
        self.file = file
        self.carries_state = file is not None
        self.text = text if file is None else _read(file)
        if len(self.text) < 2:
            raise DataError(f"The text must have at least two characters, got {len(self.text)}.")
        self.vocabulary = "".join(sorted(set(self.text)))
        self.input_size = self.output_size = len(self.vocabulary)

    def encode(self, text: str) -> Tensor:
        """Return the indices of the characters of a text."""
        unknown = sorted(set(text) - set(self.vocabulary))
        if unknown or not text:
            problem = f"has unknown characters {''.join(unknown)!r}" if unknown else "is empty"
            raise OptionError(
                f"The text {shortened(problem)}. Use only: {shortened(repr(self.vocabulary))}."
            )
        return torch.tensor([self.vocabulary.index(character) for character in text])

    def decode(self, symbols: Tensor) -> str:
        """Return the text of some indices."""
        return "".join(self.vocabulary[symbol] for symbol in symbols.tolist())

    def _encode_all(self, text: str) -> Tensor:
        """Return the indices of the characters of a long text of the vocabulary."""
        vocabulary, codes = (
            np.frombuffer(characters.encode("utf-32-le"), np.uint32)
            for characters in (self.vocabulary, text)
        )
        return torch.from_numpy(np.searchsorted(vocabulary, codes))

    @cached_property
    def splits(self) -> dict[Split, Tensor]:
        """The indices of the characters of each split."""
        symbols = self._encode_all(self.text)
        if self.file is None:
            return dict.fromkeys(SPLITS, symbols)
        held_out = max(2, len(symbols) // 20)
        train = len(symbols) - 2 * held_out
        if train < 2:
            raise DataError(
                f"{self.file} must have at least 6 characters, two for each split; got "
                f"{len(symbols)}."
            )
        return dict(zip(SPLITS, symbols.split([train, held_out, held_out]), strict=True))

    def _streams(self, split: Split, size: int) -> tuple[int, int]:
        """Return the number of streams, and the number of characters of each."""
        total = len(self.splits[split]) - 1
        streams = 1 if not self.carries_state else min(size, max(1, total // self.length))
        return streams, total // streams

    def batch(self, split: Split, index: int, size: int) -> Batch:
        """Return the next `length` characters of every stream, starting over at the end."""
        streams, available = self._streams(split, size)
        text = self.splits[split]
        windows = max(1, math.ceil(available / self.length))
        start = index % windows * self.length
        stop = min(start + self.length, available)
        begin = torch.arange(streams) * available
        position = begin.unsqueeze(0) + torch.arange(start, stop).unsqueeze(1)
        return Batch(text[position], text[position + 1])

    def count(self, split: Split, size: int) -> int | None:
        return max(1, math.ceil(self._streams(split, size)[1] / self.length))

    @property
    def chance(self) -> Chance:
        """The score of the character frequencies of the training text."""
        frequency = torch.bincount(self.splits["train"], minlength=self.output_size).double()
        scores = (frequency + 1).log()  # one more of each, since the test may have new characters
        answers = self.splits["test"][1:]
        loss = F.cross_entropy(scores.expand(len(answers), -1), answers).item()
        return Chance(loss=loss, metric=loss / math.log(2), rule="character frequencies")

    def score(self, prediction: Tensor, batch: Batch) -> tuple[Tensor, int]:
        """Return the sum of bits, and the number of characters."""
        nats = F.cross_entropy(
            prediction.flatten(0, -2).double(), batch.targets.flatten(), reduction="sum"
        )
        return nats / math.log(2), batch.targets.numel()


def _read(file: str) -> str:
    path = Path(file)
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        problem = f"No such file: {file}"
    except IsADirectoryError:
        problem = f"{file} is a folder, expected a text file."
    except PermissionError:
        problem = f"{file} cannot be read: permission denied."
    except UnicodeDecodeError:
        problem = f"{file} is not UTF-8 text."
    raise DataError(problem)


@tasks.register("ptb")
class PennTreebank(Characters):
    """Predict each next character of the Penn Treebank.

    Five million characters of newspaper text with 50 different symbols, in the published splits. A
    batch has several streams of the text, and the next batch continues each of them, so that the
    state is passed on. The score is in bits per character.

    Args:
        length: Characters of each stream in a batch, which limits the reach of gradients. The
            papers use 150 and 300.

    Example:
        >>> build("ptb", length=300)

    Reference:
        M. Marcus et al. Building a large annotated corpus of English: the Penn Treebank, 1993;
        splits and preparation of T. Mikolov et al. Subword language modeling with neural
        networks, 2012.
    """

    recipes: ClassVar = {
        "*": {
            "model": {"hidden_size": 256, "embedding_size": 200},
            "train": {**COSINE, "batch_size": 128, "learning_rate": 0.002, "epochs": 10},
        }
    }

    def __init__(self, *, length: PositiveInt = 150) -> None:
        self._texts = read_penn_treebank(folder("ptb"))
        super().__init__("".join(self._texts.values()), length=length)
        self.carries_state = True

    @cached_property
    def splits(self) -> dict[Split, Tensor]:
        return {split: self._encode_all(self._texts[split]) for split in SPLITS}
