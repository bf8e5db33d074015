"""Penn Treebank, one character at a time."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

from torch import Tensor

from undamped._base.options import PositiveInt
from undamped._base.registry import tasks
from undamped.lab.data.published.cache import folder
from undamped.lab.data.published.formats.text import read_penn_treebank
from undamped.lab.tasks.characters import Characters


@tasks.register("ptb")
class PennTreebank(Characters):
    """Predict each next character of the Penn Treebank.

    Five million characters of newspaper text with 50 different symbols, in the published parts
    for training, validation and test. A batch reads several places at once, and each goes on
    where it stopped, so that the state is handed on from batch to batch; gradients reach back
    `length` characters. The score is in bits per character.

    Args:
        length: Characters per batch and place: how far back a gradient reaches. The papers use
            150 and 300.

    Example:
        >>> build("ptb", length=300)

    Reference:
        M. Marcus et al. Building a large annotated corpus of English: the Penn Treebank, 1993;
        parts and preparation of T. Mikolov et al. Subword language modeling with neural
        networks, 2012.
    """

    recipes: ClassVar = {
        "*": {
            "model": {"hidden_size": 256, "embedding_size": 200},
            "train": {
                "batch_size": 128,
                "learning_rate": 0.002,
                "clip": 1.0,
                "epochs": 10,
                "schedule": "cosine",
            },
        }
    }

    def __init__(self, *, length: PositiveInt = 150) -> None:
        self._texts = read_penn_treebank(folder("ptb"))
        super().__init__("".join(self._texts.values()), length=length)
        self.carries_state = True

    @cached_property
    def _parts(self) -> dict[str, Tensor]:
        return {part: self._numbers(text) for part, text in self._texts.items()}
