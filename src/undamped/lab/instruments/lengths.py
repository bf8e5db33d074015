"""The score over the length of the test: how long a model keeps what it needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import nn

from undamped._base.registry import instruments
from undamped.analysis.core import InapplicableError, Judgement, Layout, Probe, Result, Style, Trace
from undamped.lab.instruments.generalisation import score_test
from undamped.lab.tasks.events import LongTests

SEQUENCES = 50


@instruments.register("lengths")
@dataclass(frozen=True)
class Lengths(Result):
    """Accuracy on test sequences of several lengths, whose first halves decide.

    `scores[k]` is the accuracy at `lengths[k]` steps.
    """

    question = "Does the model still know the answer after a long time?"
    page_order = 2
    slow = True
    of_answers = True
    columns = ("steps", "accuracy")

    lengths: tuple[int, ...]
    scores: NDArray[np.float64]
    trained: int
    chance: float
    sequences: int
    name: str

    @classmethod
    def measure(cls, probe: Probe) -> Lengths:
        """Score the model on some test sequences of every length."""
        if not isinstance(probe.task, LongTests):
            raise InapplicableError("its task has no tests at several lengths")
        return lengths(probe.model, probe.task, name=probe.name)

    @property
    def sentence(self) -> str:
        listed = ", ".join(f"{100 * s:.0f} %" for s in self.scores)
        steps = ", ".join(f"{length:,}" for length in self.lengths)
        return (
            f"Trained at up to {self.trained:,} steps, the accuracy is {listed} at {steps} steps "
            f"({self.sequences} sequences each); chance is {100 * self.chance:.0f} %."
        )

    @property
    def judgement(self) -> Judgement:
        best, last = self.scores.max(), self.scores[-1]
        if best < self.chance + 0.5 * (1 - self.chance):
            return Judgement("it has not learned the task yet")
        if last < self.chance + 0.5 * (best - self.chance):
            return Judgement(f"it forgets: {100 * last:.0f} % at {self.lengths[-1]:,} steps", "bad")
        return Judgement(f"it remembers {self.lengths[-1]:,} steps: {100 * last:.0f} %", "good")

    @property
    def rows(self) -> list[tuple[str, ...]]:
        pairs = zip(self.lengths, self.scores, strict=True)
        return [(f"{length:,}", f"{100 * score:.1f} %") for length, score in pairs]

    @property
    def layout(self) -> Layout:
        return Layout(
            "Memory over the length of the test",
            "steps of the test sequences",
            "accuracy",
            "The first half of a sequence determines the answer; the rest is noise.",
            log_x=True,
            y_range=(0, 1.05),
        )

    def traces(self, style: Style) -> list[Trace]:
        """A line over the lengths; for a single model also chance level."""
        line = style.line(self.lengths, self.scores, "accuracy", mode="lines+markers")
        if not style.single:
            return [line]
        level = [self.chance] * len(self.lengths)
        return [line, style.line(self.lengths, level, "chance level", color=1)]


def lengths(
    model: nn.Module, task: LongTests, *, sequences: int = SEQUENCES, name: str = ""
) -> Lengths:
    """Score a model on test sequences of every length of a task.

    Args:
        model: The model.
        task: A task with tests at several lengths, such as `flags`.
        sequences: Largest number of sequences of each length.
        name: Name of the model in figures.
    """
    scores = [score_test(model, test, sequences) for test in task.test_tasks().values()]
    chance = task.chance.metric
    return Lengths(task.test_lengths, np.array(scores), task.length, chance, sequences, name)
