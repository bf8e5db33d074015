"""Events among distractors: tasks that cannot be solved without memory.

Every step of a sequence has a random symbol. A few steps are marked; these are the events. All
events are in the first half of a sequence. The answer depends on the order of the events and on
nothing else, which gives three certificates for every task of this file:

- The events of a sequence are always the same multiset, whatever the answer. So features that do
  not depend on the order of the steps have the same distribution in every class.
- Symbols in the second half are independent of the events. So a model of a window that is shorter
  than half of a sequence has the score of chance.
- A symbol matters only if it is marked at the same step. A linear memory stores symbols and marks
  separately; it would have to resolve single steps to combine them later.

Training sequences are short and have random lengths; tests are longer.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Sequence
from itertools import permutations
from typing import Annotated, Any, ClassVar, TypedDict, Unpack

import torch
from torch import Tensor
from torch.nn import functional as F

from undamped._base.checked import checked
from undamped._base.contract import Batch
from undamped._base.errors import OptionError
from undamped._base.options import Default, NonNegativeFloat, NonNegativeInt, PositiveInt, Range
from undamped._base.registry import tasks
from undamped.lab.tasks.noise_padded import ROWS, NoisePaddedDigits
from undamped.lab.tasks.task import COSINE, Chance, GeneratedTask, Split, Task


class LengthOptions(TypedDict, total=False):
    """Lengths of sequences: short ones in training, long ones in tests."""

    length: Annotated[int, Default(128, "Steps of the longest training sequences."), Range(low=64)]
    shortest: Annotated[
        int, Default(32, "Steps of the shortest training sequences."), Range(low=32)
    ]
    test_lengths: Annotated[
        Sequence[Annotated[int, Range(low=64)]],
        Default((256, 1024, 4096, 16384), "Steps of the test sequences."),
    ]
    sequences: Annotated[PositiveInt, Default(384, "Test sequences of each length.")]
    seed: Annotated[NonNegativeInt, Default(0, "Seed of the data.")]


class LongTests(GeneratedTask):
    """A task that is learnt on short sequences of random lengths, and tested on long ones."""

    recipes: ClassVar = {
        "*": {
            "model": {"hidden_size": 64},
            "train": {**COSINE, "steps": 2000, "batch_size": 64, "learning_rate": 0.005},
        },
        "latch": {"model": {"hidden_size": 32, "num_layers": 3}},
        # A closed-form model is fitted to batches that are in memory at once.
        "bank": {"train": {"steps": 20}},
    }

    @checked
    def __init__(self, **options: Unpack[LengthOptions]) -> None:
        complete: Any = options  # `checked` fills in the defaults
        super().__init__(complete["seed"])
        self.held_out = {"valid": 192, "test": complete["sequences"]}  # pyright: ignore
        self.length: int = complete["length"]
        self.shortest: int = complete["shortest"]
        if self.shortest > self.length:
            raise OptionError(
                f"task.shortest must be at most task.length={self.length}, got {self.shortest}."
            )
        self.test_lengths: tuple[int, ...] = tuple(complete["test_lengths"])
        self._held_out_length = self.length

    @abstractmethod
    def draw_steps(self, split: Split, size: int, steps: int, generator: torch.Generator) -> Batch:
        """Draw sequences of a number of steps."""

    def test_tasks(self) -> dict[str, Task]:
        """Return the test at each length."""
        tests: dict[str, Task] = {}
        for length in self.test_lengths:
            test = copy.copy(self)
            test._held_out_length = length
            tests[f"{length} steps"] = test
        return tests

    def draw_split(self, split: Split, size: int, generator: torch.Generator) -> Batch:
        """Draw training sequences of one random length, or held-out ones of a fixed length."""
        steps = self._held_out_length
        if split == "train":
            steps = int(torch.randint(self.shortest, self.length + 1, (), generator=generator))
        return self.draw_steps(split, size, steps, generator)

    def draw(self, size: int, generator: torch.Generator) -> Batch:
        """Draw sequences as long as those of a test."""
        return self.draw_split("test", size, generator)


class EventTask(LongTests):
    """Answer a question about the order of marked symbols, after many symbols without a mark.

    A subclass sets `multiset`, the symbols of the events in any order, and defines `answers_of`.
    """

    multiset: Tensor
    """The symbols of the events of every sequence, (events,)."""
    symbols: int
    """Number of different symbols."""
    queries: int = 0
    """Number of different questions; the question is one-hot in the last step."""

    def __init__(self, **options: Unpack[LengthOptions]) -> None:
        super().__init__(**options)
        self.input_size = self.symbols + 1 + self.queries

    @abstractmethod
    def answers_of(self, events: Tensor, query: Tensor) -> Tensor:
        """Return the answers to events in their order (events, size) and queries (size,)."""

    @property
    def chance(self) -> Chance:
        """The commonest answer to every query; its loss is the entropy of the answers."""
        frequencies = self.frequencies()
        entropy = torch.special.entr(frequencies).sum(1).mean().item()
        rule = "always the commonest answer" + (" to the query" if self.queries else "")
        return Chance(entropy, frequencies.amax(1).mean().item(), rule)

    def frequencies(self) -> Tensor:
        """Return the probability of every answer to every query, over all orders of the events."""
        orders = torch.tensor(list(permutations(range(len(self.multiset))))).T
        counts = [
            torch.bincount(
                self.answers_of(self.multiset[orders], torch.full((orders.shape[1],), query)),
                minlength=self.output_size,
            )
            for query in range(max(1, self.queries))
        ]
        return torch.stack(counts) / orders.shape[1]

    def draw_events(
        self, size: int, steps: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Draw the order of the events, and their times in the first half; (events, size) each."""
        count, half = len(self.multiset), steps // 2
        order = torch.rand(count, size, generator=generator).argsort(0)
        times = torch.rand(half, size, generator=generator).argsort(0)[:count].sort(0).values
        return self.multiset[order], times

    def draw_steps(self, split: Split, size: int, steps: int, generator: torch.Generator) -> Batch:
        """Draw sequences with the events in the first half."""
        events, times = self.draw_events(size, steps, generator)
        symbols = torch.randint(0, self.symbols, (steps, size), generator=generator)
        symbols.scatter_(0, times, events)
        marks = torch.zeros(steps, size, 1).scatter_(0, times.unsqueeze(-1), 1.0)
        query = torch.randint(0, max(1, self.queries), (size,), generator=generator)
        parts = [F.one_hot(symbols, self.symbols).float(), marks]
        if self.queries:
            question = torch.zeros(steps, size, self.queries)
            question[-1] = F.one_hot(query, self.queries).float()
            parts.append(question)
        return Batch(torch.cat(parts, -1), self.answers_of(events, query))


@tasks.register("last-event")
class LastEvent(EventTask):
    """Name the last of four marked symbols.

    Reference:
        Y. Bengio, P. Simard, P. Frasconi. Learning long-term dependencies with gradient descent is
        difficult. IEEE Transactions on Neural Networks 5, 1994: latching.
    """

    symbols = output_size = 4
    multiset = torch.arange(4)

    def answers_of(self, events: Tensor, query: Tensor) -> Tensor:
        """Return the last symbol."""
        return events[-1]


@tasks.register("first-event")
class FirstEvent(EventTask):
    """Name the first of four marked symbols.

    Reference:
        S. Hochreiter, J. Schmidhuber. Long short-term memory. Neural Computation 9, 1997: temporal
        order, in which distractors separate symbols.
    """

    symbols = output_size = 4
    multiset = torch.arange(4)

    def answers_of(self, events: Tensor, query: Tensor) -> Tensor:
        """Return the first symbol."""
        return events[0]


@tasks.register("event-before-last")
class EventBeforeLast(EventTask):
    """Name the last but one of four marked symbols.

    Reference:
        W. K. Kirchner. Age differences in short-term retention of rapidly changing information.
        Journal of Experimental Psychology 55, 1958: n-back.
    """

    symbols = output_size = 4
    multiset = torch.arange(4)

    def answers_of(self, events: Tensor, query: Tensor) -> Tensor:
        """Return the last symbol but one."""
        return events[-2]


@tasks.register("event-order")
class EventOrder(EventTask):
    """Tell whether the first of four symbols was marked before the second.

    Reference:
        S. Hochreiter, J. Schmidhuber. Long short-term memory. Neural Computation 9, 1997: temporal
        order.
    """

    symbols, output_size = 4, 2
    multiset = torch.arange(4)

    def answers_of(self, events: Tensor, query: Tensor) -> Tensor:
        """Return 1 if symbol 0 is before symbol 1."""
        return ((events == 0).long().argmax(0) < (events == 1).long().argmax(0)).long()


@tasks.register("flags")
class Flags(EventTask):
    """Track three flags that are set and reset, and name their final state.

    Each flag is set once and reset once, in random order.

    Reference:
        D. Sussillo, O. Barak. Opening the black box: low-dimensional dynamics in high-dimensional
        recurrent neural networks. Neural Computation 25, 2013: the flip-flop task.
    """

    symbols, output_size = 6, 8
    multiset = torch.arange(6)

    def answers_of(self, events: Tensor, query: Tensor) -> Tensor:
        """Return the flags as a number; symbol 2 f sets flag f and 2 f + 1 resets it."""
        when = events.argsort(0)
        is_set = when[0::2] > when[1::2]
        return (is_set * torch.tensor([[1], [2], [4]])).sum(0)


@tasks.register("cups")
class Cups(EventTask):
    """Follow a ball under one of three cups while pairs of cups are swapped.

    The events are swaps of two cups, each pair twice. Swaps do not commute: this is the word
    problem of the symmetric group S₃, the smallest that needs a state that is not a count.

    Reference:
        W. Merrill, J. Petty, A. Sabharwal. The illusion of state in state-space models. ICML, 2024:
        word problems of groups.
    """

    symbols = output_size = 3
    multiset = torch.arange(3).repeat(2)
    pairs: ClassVar = torch.tensor([[1, 0, 2], [0, 2, 1], [2, 1, 0]])
    """By swap, the new cup of a ball under each cup."""

    def answers_of(self, events: Tensor, query: Tensor) -> Tensor:
        """Return the cup of a ball that starts under the first."""
        cup = torch.zeros_like(events[0])
        for swap in events:
            cup = self.pairs[swap, cup]
        return cup


@tasks.register("event-at-position")
class EventAtPosition(EventTask):
    """Name the n-th of four marked symbols, where the last step says n.

    Reference:
        A. Gu, T. Dao. Mamba: linear-time sequence modeling with selective state spaces. COLM, 2024:
        selective copying.
    """

    symbols = output_size = queries = 4
    multiset = torch.arange(4)

    def answers_of(self, events: Tensor, query: Tensor) -> Tensor:
        """Return the symbol at the position that the query names."""
        return events.gather(0, query.unsqueeze(0))[0]


@tasks.register("next-event")
class NextEvent(EventTask):
    """Name the symbol that was marked after the symbol that the last step names.

    After the last of four marked symbols comes the first one again.

    Reference:
        C. Olsson and others. In-context learning and induction heads. Transformer Circuits, 2022.
    """

    symbols = output_size = queries = 4
    multiset = torch.arange(4)

    def answers_of(self, events: Tensor, query: Tensor) -> Tensor:
        """Return the symbol after the one that is the query."""
        return events.roll(-1, 0).gather(0, (events == query).long().argmax(0, keepdim=True))[0]


@tasks.register("first-is-last")
class FirstIsLast(EventTask):
    """Tell whether the first and the last of four marked symbols are the same.

    Reference:
        S. Hochreiter, J. Schmidhuber. Long short-term memory. Neural Computation 9, 1997: long time
        lags with noise in between.
    """

    symbols = output_size = 2
    multiset = torch.tensor([0, 0, 0, 1])

    def answers_of(self, events: Tensor, query: Tensor) -> Tensor:
        """Return 1 if both are the same."""
        return (events[0] == events[-1]).long()


@tasks.register("last-value")
class LastValue(EventTask):
    """Recall the value that was written last under a key.

    A symbol is one of three keys with one of three values, and each of the nine is written once.
    The last step names a key.

    Reference:
        S. Arora and others. Zoology: measuring and improving recall in efficient language models.
        ICLR, 2024: associative recall.
    """

    symbols, output_size, queries = 9, 3, 3
    multiset = torch.arange(9)

    def frequencies(self) -> Tensor:
        """Return one third for every value, which are exchangeable; there are 9! orders."""
        return torch.full((3, 3), 1 / 3)

    def answers_of(self, events: Tensor, query: Tensor) -> Tensor:
        """Return the value of the last event whose key is the query; a symbol is 3 key + value."""
        matches = (events // 3 == query).long()
        last = len(events) - 1 - matches.flip(0).argmax(0)
        return events.gather(0, last.unsqueeze(0))[0] % 3


@tasks.register("prefix-depth")
class PrefixDepth(EventTask):
    """Tell whether some prefix of brackets has more closing than opening ones.

    The events are three opening and three closing brackets, so that the total is always balanced.

    Reference:
        M. Hahn. Theoretical limitations of self-attention in neural sequence models. TACL, 2020:
        Dyck languages.
    """

    symbols = output_size = 2
    multiset = torch.tensor([0, 0, 0, 1, 1, 1])

    def answers_of(self, events: Tensor, query: Tensor) -> Tensor:
        """Return 1 if the depth is below zero at some event."""
        return ((1 - 2 * events).cumsum(0).amin(0) < 0).long()


@tasks.register("last-digit")
class LastDigit(LongTests):
    """Read digits at random times in noise, and name the last one, long after.

    Up to three handwritten digits of 8 × 8 pixels are read row by row, one row per step, at random
    times; every other step, and every pixel, has fresh noise. Training sequences have up to
    `length` steps. Tests have three digits in the first half of a sequence and only noise in the
    second half, so that a model of a shorter window has the score of chance. A cue at an unknown
    time has to be recognised and held, against everything that comes later.

    Args:
        noise: Standard deviation of the noise; pixels are between 0 and 1.

    Reference:
        E. Alpaydin, C. Kaynak. Optical recognition of handwritten digits. UCI, 1998.
    """

    digits: ClassVar = 3
    input_size = ROWS
    output_size = 10

    @checked
    def __init__(self, noise: NonNegativeFloat = 0.2, **options: Unpack[LengthOptions]) -> None:
        super().__init__(**options)
        self.noise, self._digits = noise, NoisePaddedDigits()

    @property
    def chance(self) -> Chance:
        """All digits are equally likely."""
        return Chance(math.log(10), 0.1, "any digit")

    def draw_steps(self, split: Split, size: int, steps: int, generator: torch.Generator) -> Batch:
        """Draw sequences with up to three digits, in tests three in the first half."""
        images, labels = self._digits._data[split]
        count, until = self.digits, steps // 2
        if split == "train":
            count, until = int(torch.randint(1, count + 1, (), generator=generator)), steps
        x = self.noise * torch.randn(steps, size, ROWS, generator=generator)
        # Digits do not overlap: each start leaves the rows of the digits before it.
        starts = torch.randint(0, until - ROWS * count + 1, (count, size), generator=generator)
        starts = starts.sort(0).values + ROWS * torch.arange(count).unsqueeze(1)
        digits = torch.randint(0, len(images), (count, size), generator=generator)
        for start, index in zip(starts, digits, strict=True):
            rows = (start + torch.arange(ROWS).unsqueeze(1)).unsqueeze(-1).expand(-1, -1, ROWS)
            x.scatter_add_(0, rows, images[index].transpose(0, 1))
        return Batch(x, labels[digits[-1]])
