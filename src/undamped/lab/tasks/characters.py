"""Character models: predict the next character of a text."""

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
from undamped.lab.tasks.task import Batch, Chance, Split, Task


@tasks.register("characters")
class Characters(Task):
    """Predict each next character of a text.

    Without a file the text is the lecture's example: the four letters of "hello" as vocabulary,
    "hell" as input, "ello" as answers; it is the same for training, validation and test, since
    there is nothing else to learn. With a file its first 90 % are for training and 5 % each for
    validation and test; a batch reads several places at once, and each goes on where it stopped,
    so that the state is handed on from batch to batch.

    Args:
        text: The text itself.
        file: A UTF-8 text file to read instead.
        length: Characters per batch and place: how far back a gradient reaches.

    Reference:
        The character model of the lecture this library follows; bits per character as in
        T. Mikolov et al. Subword language modeling with neural networks, 2012.
    """

    recipes: ClassVar = {
        "*": {"train": {"steps": 1000, "batch_size": 32, "clip": 1.0, "learning_rate": 0.002}}
    }

    readout = "every"
    input_kind = "symbols"
    metric = "bits_per_character"
    higher_is_better = False

    def __init__(
        self,
        text: str = "hello",
        *,
        file: str | None = None,
        length: PositiveInt = 100,
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
        """Turn a text into the numbers of its characters."""
        unknown = sorted(set(text) - set(self.vocabulary))
        if unknown or not text:
            problem = f"has unknown characters {''.join(unknown)!r}" if unknown else "is empty"
            raise OptionError(
                f"The text {shortened(problem)}. Use only: {shortened(repr(self.vocabulary))}."
            )
        return torch.tensor([self.vocabulary.index(character) for character in text])

    def decode(self, numbers: Tensor) -> str:
        """Turn numbers into a text."""
        return "".join(self.vocabulary[number] for number in numbers.tolist())

    def _numbers(self, text: str) -> Tensor:
        """Number the characters of a long text that has no others than the vocabulary."""
        known = np.frombuffer(self.vocabulary.encode("utf-32-le"), np.uint32)
        codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        return torch.from_numpy(np.searchsorted(known, codes))

    @cached_property
    def _parts(self) -> dict[str, Tensor]:
        numbers = self._numbers(self.text)
        if self.file is None:
            return dict.fromkeys(("train", "valid", "test"), numbers)
        held = max(2, len(numbers) // 20)
        train = len(numbers) - 2 * held
        if train < 2:
            raise DataError(
                f"{self.file} must have at least 6 characters, two for each split; got "
                f"{len(numbers)}."
            )
        parts = numbers.split([train, held, held])
        return dict(zip(("train", "valid", "test"), parts, strict=True))

    def _streams(self, split: Split, size: int) -> tuple[int, int]:
        """Return how many places are read at once, and how many characters each has."""
        total = len(self._parts[split]) - 1
        places = 1 if not self.carries_state else min(size, max(1, total // self.length))
        return places, total // places

    def batch(self, split: Split, number: int, size: int) -> Batch:
        """Return the next `length` characters of every place, starting over at the end."""
        places, available = self._streams(split, size)
        text = self._parts[split]
        windows = max(1, math.ceil(available / self.length))
        start = number % windows * self.length
        stop = min(start + self.length, available)
        begin = torch.arange(places) * available
        index = begin.unsqueeze(0) + torch.arange(start, stop).unsqueeze(1)
        return Batch(text[index], text[index + 1])

    def count(self, split: Split, size: int) -> int | None:
        """One pass over the text."""
        return max(1, math.ceil(self._streams(split, size)[1] / self.length))

    @property
    def chance(self) -> Chance:
        """Every character as often as in the training text, whatever came before."""
        frequency = torch.bincount(self._parts["train"], minlength=self.output_size).double()
        scores = (frequency + 1).log()  # one more of each: the test may hold a character anew
        answers = self._parts["test"][1:]
        loss = F.cross_entropy(scores.expand(len(answers), -1), answers).item()
        return Chance(loss=loss, metric=loss / math.log(2), rule="character frequencies")

    def score(self, prediction: Tensor, batch: Batch) -> tuple[Tensor, int]:
        """Bits and characters."""
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
