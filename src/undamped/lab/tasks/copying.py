"""The copy task (Hochreiter and Schmidhuber, 1997), and its transfer to other delays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from undamped._base.options import NonNegativeInt, PositiveInt
from undamped._base.registry import tasks
from undamped.lab.tasks.task import Batch, Chance, GeneratedTask, Task

Convention = Literal["after-marker", "at-marker"]
Encoding = Literal["one-hot", "number"]

BLANK, MARKER, SYMBOLS, RECALLED = 0, 9, 8, 10


def recall_score(prediction: Tensor, batch: Batch) -> tuple[Tensor, int]:
    """Count right answers among the last ten steps, where the symbols have to be said."""
    right = prediction[-RECALLED:].argmax(-1) == batch.targets[-RECALLED:]
    return right.sum().double(), right.numel()


def recall_chance(length: int) -> Chance:
    """Return the score of a model that knows when to speak but not what to say."""
    return Chance(
        loss=RECALLED * math.log(SYMBOLS) / length,
        metric=1 / SYMBOLS,
        guess="blanks, then symbols at random",
    )


@tasks.register("copy")
class Copy(GeneratedTask):
    """Remember ten symbols over a delay and say them again.

    Ten symbols out of eight, a stretch of blanks, a marker, and ten more steps in which the
    symbols have to be repeated: `delay` + 20 steps in all. The loss is the cross entropy over
    all steps (nine classes: blank and the symbols), the metric counts only the last ten.

    Args:
        delay: Steps between the last symbol and the first that has to be said.
        convention: Whether answers start one step after the marker, as in the programs of uRNN,
            scoRNN, EURNN and nnRNN, or at the marker, as in that of expRNN.
        encoding: One-hot vectors, or the symbol's number as a single feature.
        seed: Where the random numbers of the data come from.

    Reference:
        S. Hochreiter, J. Schmidhuber. Long short-term memory. Neural Computation 9, 1997; in
        the form of M. Arjovsky, A. Shah, Y. Bengio. Unitary evolution recurrent neural
        networks. ICML, 2016.
    """

    recipes: ClassVar = {"*": {"train": {"steps": 2000, "batch_size": 64, "clip": 1.0}}}

    readout = "every"
    output_size = SYMBOLS + 1

    def __init__(
        self,
        delay: PositiveInt = 100,
        *,
        convention: Convention = "after-marker",
        encoding: Encoding = "one-hot",
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(seed)
        self.delay = delay
        self.convention: Convention = convention
        self.encoding: Encoding = encoding
        self.input_kind = "symbols" if encoding == "one-hot" else "vectors"
        self.input_size = MARKER + 1 if encoding == "one-hot" else 1

    @property
    def length(self) -> int:
        """Steps of a sequence."""
        return self.delay + 2 * RECALLED

    @property
    def chance(self) -> Chance:
        """10 ln 8 / (delay + 20)."""
        return recall_chance(self.length)

    def harder(self) -> dict[str, Any]:
        """A longer wait."""
        return {"delay": max(500, 2 * self.delay)}

    def draw(self, size: int, generator: torch.Generator) -> Batch:
        """Make `size` sequences."""
        symbols = torch.randint(1, SYMBOLS + 1, (RECALLED, size), generator=generator)
        inputs = torch.full((self.length, size), BLANK)
        inputs[:RECALLED] = symbols
        marker = self.length - RECALLED - (1 if self.convention == "after-marker" else 0)
        inputs[marker] = MARKER
        targets = torch.full((self.length, size), BLANK)
        targets[-RECALLED:] = symbols
        if self.encoding == "number":
            return Batch(inputs.unsqueeze(-1).float(), targets)
        return Batch(inputs, targets)

    def score(self, prediction: Tensor, batch: Batch) -> tuple[Tensor, int]:
        """Accuracy on the ten symbols."""
        return recall_score(prediction, batch)


@tasks.register("transfer-copy")
class TransferCopy(Copy):
    """Learn to copy over one delay, and be tested on others.

    Training and validation are the copy task at `delay`; the test repeats it at each of
    `test_delays`. A network that counts steps fails, one that waits for the marker does not.

    Args:
        delay: Steps between the last symbol and the first answer while training.
        test_delays: The delays of the test.
        convention: Whether answers start one step after the marker or at it.
        encoding: One-hot vectors, or the symbol's number as a single feature.
        seed: Where the random numbers of the data come from.

    Reference:
        G. Kerg et al. Untangling tradeoffs between recurrence and self-attention in neural
        networks. NeurIPS, 2020.
    """

    def __init__(
        self,
        delay: PositiveInt = 100,
        *,
        test_delays: Sequence[PositiveInt] = (100, 200, 400, 1000, 2000),
        convention: Convention = "after-marker",
        encoding: Encoding = "one-hot",
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(delay, convention=convention, encoding=encoding, seed=seed)
        self.test_delays = tuple(test_delays)

    def test_parts(self) -> dict[str, Task]:
        """The copy task at each delay."""
        return {
            f"delay {delay}": Copy(
                delay, convention=self.convention, encoding=self.encoding, seed=self.seed
            )
            for delay in self.test_delays
        }
