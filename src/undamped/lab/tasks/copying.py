"""Recall tasks: copy (Hochreiter and Schmidhuber, 1997), its transfer to other delays, denoise."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, TypedDict, Unpack

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.options import Default, NonNegativeInt, PositiveInt
from undamped._base.registry import tasks
from undamped.lab.tasks.task import Batch, Chance, GeneratedTask, Task

Convention = Literal["after-marker", "at-marker"]
Encoding = Literal["one-hot", "number"]

BLANK, MARKER, SYMBOLS, RECALLED = 0, 9, 8, 10
DENOISE_MARKER = 10


class CopyOptions(TypedDict, total=False):
    """Options of the copy task, and of its transfer to other delays."""

    convention: Annotated[
        Convention,
        Default(
            "after-marker",
            "Whether answers start one step after the marker, as in the programs of uRNN, scoRNN, "
            "EURNN and nnRNN, or at the marker, as in that of expRNN.",
        ),
    ]
    encoding: Annotated[
        Encoding,
        Default("one-hot", "One-hot vectors, or the index of the symbol as a single feature."),
    ]
    seed: Annotated[NonNegativeInt, Default(0, "Seed of the data.")]


class RecallTask(GeneratedTask):
    """Ten symbols that have to be repeated in the last ten of `delay` + 20 steps.

    Args:
        delay: Steps between the symbols and their repetition.
        seed: Seed of the data.
    """

    recipes: ClassVar = {"*": {"train": {"steps": 2000, "batch_size": 64, "clip": 1.0}}}

    readout = "every"
    input_kind = "symbols"
    output_size = SYMBOLS + 1

    def __init__(self, delay: int, seed: int) -> None:
        super().__init__(seed)
        self.delay = delay

    @property
    def length(self) -> int:
        """Steps of a sequence."""
        return self.delay + 2 * RECALLED

    @property
    def chance(self) -> Chance:
        """10 ln 8 / (delay + 20): blanks at the right steps, and random symbols."""
        return Chance(
            loss=RECALLED * math.log(SYMBOLS) / self.length,
            metric=1 / SYMBOLS,
            rule="blanks, then symbols at random",
        )

    @abstractmethod
    def arrange(self, symbols: Tensor, generator: torch.Generator) -> Tensor:
        """Return the inputs of some symbols (10, size)."""

    def draw(self, size: int, generator: torch.Generator) -> Batch:
        symbols = torch.randint(1, SYMBOLS + 1, (RECALLED, size), generator=generator)
        targets = torch.full((self.length, size), BLANK)
        targets[-RECALLED:] = symbols
        return Batch(self.arrange(symbols, generator), targets)

    def harder(self) -> dict[str, Any]:
        """Return a longer delay."""
        return {"delay": max(500, 2 * self.delay)}

    def score(self, prediction: Tensor, batch: Batch) -> tuple[Tensor, int]:
        """Return the number of correct symbols in the last ten steps."""
        correct = prediction[-RECALLED:].argmax(-1) == batch.targets[-RECALLED:]
        return correct.sum().double(), correct.numel()


@tasks.register("copy")
class Copy(RecallTask):
    """Remember ten symbols over a delay and repeat them.

    Ten symbols out of eight, a run of blanks, a marker, and ten more steps in which the symbols
    have to be repeated: `delay` + 20 steps in all. The loss is the cross entropy over all steps
    (nine classes: blank and the symbols), the metric counts only the last ten.

    Args:
        delay: Steps between the last symbol and its first repetition.

    Reference:
        S. Hochreiter, J. Schmidhuber. Long short-term memory. Neural Computation 9, 1997; in
        the form of M. Arjovsky, A. Shah, Y. Bengio. Unitary evolution recurrent neural
        networks. ICML, 2016.
    """

    @checked
    def __init__(self, delay: PositiveInt = 100, **options: Unpack[CopyOptions]) -> None:
        complete: Any = options  # `checked` fills in the defaults
        super().__init__(delay, complete["seed"])
        self.convention: Convention = complete["convention"]
        self.encoding: Encoding = complete["encoding"]
        self.input_kind = "symbols" if self.encoding == "one-hot" else "vectors"
        self.input_size = MARKER + 1 if self.encoding == "one-hot" else 1

    def arrange(self, symbols: Tensor, generator: torch.Generator) -> Tensor:
        """Return symbols, blanks, a marker and blanks."""
        inputs = torch.full((self.length, symbols.shape[1]), BLANK)
        inputs[:RECALLED] = symbols
        marker = self.length - RECALLED - (1 if self.convention == "after-marker" else 0)
        inputs[marker] = MARKER
        return inputs.unsqueeze(-1).float() if self.encoding == "number" else inputs


@tasks.register("transfer-copy")
class TransferCopy(Copy):
    """Learn to copy over one delay, and test on others.

    Training and validation are the copy task at `delay`; the test repeats it at each of
    `test_delays`. A network that counts steps fails, one that waits for the marker does not.

    Args:
        delay: Steps between the last symbol and the first answer in training.
        test_delays: The delays of the test.

    Reference:
        G. Kerg et al. Untangling tradeoffs between recurrence and self-attention in neural
        networks. NeurIPS, 2020.
    """

    @checked
    def __init__(
        self,
        delay: PositiveInt = 100,
        *,
        test_delays: Sequence[PositiveInt] = (100, 200, 400, 1000, 2000),
        **options: Unpack[CopyOptions],
    ) -> None:
        super().__init__(delay, **options)
        self.test_delays = tuple(test_delays)

    def test_tasks(self) -> dict[str, Task]:
        return {
            f"delay {delay}": Copy(
                delay, convention=self.convention, encoding=self.encoding, seed=self.seed
            )
            for delay in self.test_delays
        }


@tasks.register("denoise")
class Denoise(RecallTask):
    """Collect ten symbols that are scattered among blanks, and repeat them in order.

    Ten symbols are at ten different steps, drawn without replacement, among the first `delay` + 9;
    then follow a marker and ten steps in which they have to be repeated. The loss is the cross
    entropy over all `delay` + 20 steps, the metric counts only the last ten. Inputs are one-hot of
    size eleven with the marker at index ten, as in the published program, which does not use nine.

    Args:
        delay: Number of noisy steps, less nine.
        seed: Seed of the data.

    Reference:
        L. Jing et al. Gated orthogonal recurrent units. Neural Computation 31, 2019; in the form
        of G. Kerg et al. Untangling tradeoffs between recurrence and self-attention in neural
        networks. NeurIPS, 2020.
    """

    input_size = DENOISE_MARKER + 1

    def __init__(self, delay: PositiveInt = 100, *, seed: NonNegativeInt = 0) -> None:
        super().__init__(delay, seed)

    def arrange(self, symbols: Tensor, generator: torch.Generator) -> Tensor:
        """Return symbols among blanks, a marker and blanks."""
        size, noisy = symbols.shape[1], self.delay + RECALLED - 1
        order = torch.rand(noisy, size, generator=generator).argsort(0)
        steps = order[:RECALLED].sort(0).values
        inputs = torch.full((self.length, size), BLANK)
        inputs[:noisy].scatter_(0, steps, symbols)
        inputs[noisy] = DENOISE_MARKER
        return inputs
