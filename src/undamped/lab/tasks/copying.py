"""Tasks of long memory: adding, copy, its transfer to other delays, denoise, first cue."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, TypedDict, Unpack

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.options import Default, NonNegativeFloat, NonNegativeInt, PositiveInt, Range
from undamped._base.registry import tasks
from undamped.lab.tasks.task import Batch, Chance, GeneratedTask, Split, Task

LONGER = {"steps": 10_000, "batch_size": 50, "schedule": "cosine"}

BLANK, MARKER, SYMBOLS, RECALLED = 0, 9, 8, 10
DENOISE_MARKER = 10


@tasks.register("adding")
class Adding(GeneratedTask):
    """Add the two marked numbers of a long sequence.

    Each step has a number from [0, 1) and a mark. One mark is in the first half, one in the second;
    the target after the last step is the sum of the two marked numbers. The constant prediction 1
    has a mean squared error of 1/6.

    Args:
        length: Steps of a sequence.
        seed: Seed of the data.

    Reference:
        S. Hochreiter, J. Schmidhuber. Long short-term memory. Neural Computation 9, 1997.
    """

    # Learning rates and constants of lem and cornn are those of their authors' programs; the
    # schedule is not.
    recipes: ClassVar = {
        "*": {"train": {"steps": 2000, "batch_size": 64, "clip": 1.0}},
        "lem": {"model": {"dt": 0.0242}, "train": {**LONGER, "learning_rate": 0.0026}},
        "cornn": {
            "model": {"dt": 0.06, "gamma": 66.0, "epsilon": 15.0},
            "train": {**LONGER, "learning_rate": 0.02},
        },
    }

    input_size = 2
    output_size = 1
    answer = "number"
    metric = "mse"
    higher_is_better = False

    def __init__(
        self, length: Annotated[int, Range(low=2)] = 200, *, seed: NonNegativeInt = 0
    ) -> None:
        super().__init__(seed)
        self.length = length

    @property
    def chance(self) -> Chance:
        """The variance of a sum of two uniform numbers."""
        return Chance(loss=1 / 6, metric=1 / 6, rule="always one")

    def harder(self) -> dict[str, Any]:
        """Return longer sequences."""
        return {"length": max(1000, 2 * self.length)}

    def draw(self, size: int, generator: torch.Generator) -> Batch:
        half = self.length // 2
        numbers = torch.rand(self.length, size, generator=generator)
        first = torch.randint(0, half, (1, size), generator=generator)
        second = torch.randint(half, self.length, (1, size), generator=generator)
        marks = torch.zeros(self.length, size)
        marks.scatter_(0, torch.cat([first, second]), 1.0)
        target = (numbers * marks).sum(0).unsqueeze(-1)
        return Batch(torch.stack([numbers, marks], dim=-1), target)


Convention = Literal["after-marker", "at-marker"]
Encoding = Literal["one-hot", "number"]


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


@tasks.register("first-cue")
class FirstCue(GeneratedTask):
    """Classify the direction of the first of several bursts, ten thousand steps ago.

    A recording is noise with bursts, half of them upwards and half of them downwards. The first one
    begins in the first fiftieth; the others are in the last four fifths. Number, height and
    duration of the bursts of each direction are the same in both classes, so that no statistic
    without regard to order is informative: only the order is.

    Args:
        length: Steps of a recording.
        bursts: The number of bursts; an odd number is increased by one.
        noise: Standard deviation of the noise; a burst has height one.
        seed: Seed of the data.

    Reference:
        Y. Bengio, P. Simard, P. Frasconi. Learning long-term dependencies with gradient descent is
        difficult. IEEE Transactions on Neural Networks 5, 1994: the latching problem.
    """

    recipes: ClassVar = {
        "*": {
            "model": {"hidden_size": 32},
            "train": {"steps": 300, "batch_size": 16, "learning_rate": 0.005, "clip": 1.0},
        },
        "unicornn": {"model": {"readout": "mean"}},
        "linoss": {"model": {"readout": "mean"}},
    }
    held_out: ClassVar[dict[Split, int]] = {"valid": 128, "test": 512}

    input_size = 1
    output_size = 2
    answer_names = ("down", "up")

    def __init__(
        self,
        length: Annotated[int, Range(low=100)] = 10_000,
        *,
        bursts: Annotated[int, Range(low=2)] = 4,
        noise: NonNegativeFloat = 0.1,
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(seed)
        self.length, self.bursts, self.noise = length, bursts + bursts % 2, noise

    @property
    def chance(self) -> Chance:
        """Both classes are equally likely."""
        return Chance(loss=math.log(2), metric=0.5, rule="either class")

    def harder(self) -> dict[str, Any]:
        """Return more irrelevant bursts."""
        return {"bursts": 2 * self.bursts}

    def draw(self, size: int, generator: torch.Generator) -> Batch:
        steps, others = self.length, self.bursts - 1
        duration = max(1, steps // 100)
        first = torch.randint(0, max(1, steps // 50), (1, size), generator=generator)
        # Each of the others has its own segment, so that bursts do not overlap.
        segment = (steps - steps // 5) // others
        offsets = torch.rand(others, size, generator=generator) * max(1, segment - duration)
        begins = steps // 5 + segment * torch.arange(others).unsqueeze(1) + offsets.long()
        targets = torch.randint(0, 2, (size,), generator=generator)
        sign = 2.0 * targets - 1
        same = torch.arange(others).unsqueeze(1) < others // 2
        order = torch.rand(others, size, generator=generator).argsort(0)
        signs = torch.where(same, sign, -sign).gather(0, order)
        inputs = self.noise * torch.randn(steps, size, generator=generator)
        span = torch.arange(duration).view(-1, 1, 1)
        index = (torch.cat([first, begins]) + span).clamp_max(steps - 1).flatten(0, 1)
        height = torch.cat([sign.unsqueeze(0), signs]).expand(duration, -1, -1).flatten(0, 1)
        inputs.scatter_add_(0, index, height)
        return Batch(inputs.unsqueeze(-1), targets)
