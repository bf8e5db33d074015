"""The generalisation gap between data like the training data and new objects."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from undamped._base.registry import instruments
from undamped.analysis.core import InapplicableError, Judgement, Layout, Probe, Result, Style, Trace
from undamped.analysis.core.unrolled import evaluating
from undamped.lab.tasks import optional
from undamped.lab.tasks.task import Task

SEQUENCES, SIZE = 1000, 100
SMALL = 0.05
"""A gap below this is small."""
LEARNED = 0.5
"""Fraction of the way from chance level to a perfect score at which a task counts as learned."""


@instruments.register("generalisation")
@dataclass(frozen=True)
class Generalisation(Result):
    """Scores on new objects, and on data like the training data.

    `scores[k]` is the metric on `parts[k]`; the last split is like the training data.
    """

    question = "Has the model learned the rule, or the training images?"
    page_order = 5
    columns = ("tested on", "score", "gap")

    parts: tuple[str, ...]
    scores: NDArray[np.float64]
    chance: float
    metric: str
    sequences: int
    name: str

    @classmethod
    def measure(cls, probe: Probe) -> Generalisation:
        """Score the model on every test split of its task."""
        if probe.task is None or not optional.in_distribution(probe.task):
            raise InapplicableError("its task has no test splits both like training and new")
        return generalisation(probe.model, probe.task, name=probe.name)

    @property
    def familiar(self) -> float:
        """The score on data like the training data."""
        return float(self.scores[-1])

    @property
    def new(self) -> float:
        """The worst score on new data."""
        return float(self.scores[:-1].min())

    @property
    def gap(self) -> float:
        """The difference between both scores."""
        return self.familiar - self.new

    @property
    def sentence(self) -> str:
        worst = self.parts[int(self.scores[:-1].argmin())]
        new = "new data" if worst == "test" else f"{worst} (new)"
        return (
            f"Accuracy {100 * self.new:.1f} % on {new}, {100 * self.familiar:.1f} % on data like "
            f"the training data: a gap of {100 * self.gap:.1f} points."
        )

    @property
    def judgement(self) -> Judgement:
        scores = f"{100 * self.familiar:.1f} % like training, {100 * self.new:.1f} % on new data"
        if self.familiar < self.chance + LEARNED * (1 - self.chance):
            return Judgement(f"it has not learned the task yet: {scores}")
        if self.gap <= SMALL:
            return Judgement(f"it has learned the rule: {scores}", "good")
        return Judgement(
            f"it has memorised the training data rather than the rule: {scores}", "bad"
        )

    @property
    def rows(self) -> list[tuple[str, ...]]:
        return [
            (
                "new objects or rules" if part == "test" else part,
                f"{100 * score:.1f} %",
                "" if part == self.parts[-1] else f"{100 * (self.familiar - score):.1f} points",
            )
            for part, score in zip(self.parts, self.scores, strict=True)
        ]

    @property
    def layout(self) -> Layout:
        listed = ", ".join(f"{index} {part}" for index, part in enumerate(self.parts))
        return Layout(
            "Generalisation",
            f"tested on: {listed}",
            self.metric.replace("_", " "),
            "A model that has learned the rule is as accurate on new data as on familiar data.",
            y_range=(0, 1.05),
        )

    def traces(self, style: Style) -> list[Trace]:
        """A line over the splits; for a single model also chance level."""
        at = list(range(len(self.parts)))
        line = style.line(at, self.scores, "scores", mode="lines+markers")
        if not style.single:
            return [line]
        return [line, style.line(at, [self.chance] * len(at), "chance level", color=1)]


def generalisation(
    model: nn.Module, task: Task, *, sequences: int = SEQUENCES, name: str = ""
) -> Generalisation:
    """Score a model on the test splits of a task, the one like the training data last.

    Args:
        model: The model.
        task: A task with a `in_distribution`, whose metric is an accuracy.
        sequences: Largest number of sequences of each split.
        name: Name of the model in figures.
    """
    parts = task.test_tasks()
    if optional.in_distribution(task) not in parts or len(parts) < 2 or task.metric != "accuracy":
        raise InapplicableError(
            "its task must be scored by accuracy and have a test split like training and others, "
            f"got {', '.join(parts)} scored by {task.metric}; hold some objects out, for example "
            "with task.holdout=95"
        )
    names = sorted(parts, key=lambda name: name == optional.in_distribution(task))
    scores = [score_test(model, parts[name], sequences) for name in names]
    return Generalisation(
        tuple(names), np.array(scores), task.chance.metric, task.metric, sequences, name
    )


def score_test(model: nn.Module, task: Task, sequences: int) -> float:
    """Return the metric of a model on the first sequences of a test.

    Args:
        model: The model.
        task: The test.
        sequences: Largest number of sequences.
    """
    total, count = 0.0, 0.0
    device = next(model.parameters()).device
    with evaluating(model), torch.no_grad():
        for number in range(min(-(-sequences // SIZE), task.count("test", SIZE) or 1)):
            batch = task.batch("test", number, SIZE).to(device)
            correct, answers = task.score(model(batch), batch)
            total, count = total + float(correct), count + answers
    return task.finish(total / count)
