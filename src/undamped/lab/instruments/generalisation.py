"""The gap between what was seen in training and what is new: a rule, or only the pictures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from undamped._base.errors import explain
from undamped._base.registry import instruments
from undamped.analysis.core.layout import Layout
from undamped.analysis.core.probe import InapplicableError, Probe
from undamped.analysis.core.result import Judgement, Result
from undamped.analysis.core.style import Style, Trace
from undamped.analysis.core.unrolled import evaluating
from undamped.lab.tasks.task import Task

SEQUENCES, SIZE = 1000, 100
SMALL = 0.05
"""A gap below this share of what could be lost is small."""
LEARNT = 0.5
"""The share of the way from a guess to the best possible at which something counts as learnt."""


@instruments.register("generalisation")
@dataclass(frozen=True)
class Generalisation(Result):
    """Scores on what is new beside the score on what is like training.

    `scores[k]` is the metric on `parts[k]`; the last part is like training.
    """

    question = "Has it learnt the rule, or the pictures it saw?"
    place = 5
    columns = ("tested on", "score", "gap")

    parts: tuple[str, ...]
    scores: NDArray[np.float64]
    chance: float
    metric: str
    sequences: int
    name: str

    @classmethod
    def measure(cls, probe: Probe) -> Generalisation:
        """Score the model on every test part of its task."""
        if probe.task is None or not probe.task.seen_part:
            raise InapplicableError("its task has no part that is like training, and others")
        return generalisation(probe.model, probe.task, name=probe.name)

    @property
    def seen(self) -> float:
        """The score on what is like training."""
        return float(self.scores[-1])

    @property
    def new(self) -> float:
        """The worst score on what is new."""
        return float(self.scores[:-1].min())

    @property
    def gap(self) -> float:
        """What is lost on the way from the seen to the new."""
        return self.seen - self.new

    @property
    def sentence(self) -> str:
        """Both scores and the gap."""
        worst = self.parts[int(self.scores[:-1].argmin())]
        new = "what is new" if worst == "test" else f"{worst}, which are new"
        return (
            f"{100 * self.new:.1f} % right on {new}, {100 * self.seen:.1f} % on what is like "
            f"training: a gap of {100 * self.gap:.1f} points."
        )

    @property
    def judgement(self) -> Judgement:
        """Whether it is the rule that was learnt."""
        scores = f"{100 * self.seen:.1f} % on what is like training, {100 * self.new:.1f} % on new"
        if self.seen < self.chance + LEARNT * (1 - self.chance):
            return Judgement(f"it has not learnt the task yet: {scores}")
        if self.gap <= SMALL:
            return Judgement(f"it has learnt the rule: {scores}", "good")
        return Judgement(f"it has learnt what it saw more than the rule: {scores}", "bad")

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Part by part."""
        return [
            (
                "new objects or rules" if part == "test" else part,
                f"{100 * score:.1f} %",
                "" if place == len(self.parts) - 1 else f"{100 * (self.seen - score):.1f} points",
            )
            for place, (part, score) in enumerate(zip(self.parts, self.scores, strict=True))
        ]

    @property
    def layout(self) -> Layout:
        """Scores of all parts."""
        listed = ", ".join(f"{place} {part}" for place, part in enumerate(self.parts))
        return Layout(
            "New beside seen",
            f"tested on: {listed}",
            self.metric.replace("_", " "),
            "A model that has learnt the rule is as good on the new as on the seen.",
            y_range=(0, 1.05),
        )

    def traces(self, style: Style) -> list[Trace]:
        """A point for each part, joined."""
        at = list(range(len(self.parts)))
        line = style.line(at, self.scores, "scores", mode="lines+markers")
        if not style.alone:
            return [line]
        return [line, style.line(at, [self.chance] * len(at), "a guess", part=1)]


def generalisation(
    model: nn.Module, task: Task, *, sequences: int = SEQUENCES, name: str = ""
) -> Generalisation:
    """Score a model on the parts of a task's test, the one that is like training last.

    Args:
        model: The model.
        task: A task with a `seen_part`, whose metric is an accuracy.
        sequences: How many of each part at most.
        name: What to call it.
    """
    parts = task.test_parts()
    if task.seen_part not in parts or len(parts) < 2 or task.metric != "accuracy":
        raise InapplicableError(
            explain(
                "task",
                expected="one whose test has a part like training and others, scored by accuracy",
                got=f"parts {', '.join(parts)}, scored by {task.metric}",
                remedy="Hold some objects out, for example task.holdout=95.",
            )
        )
    names = [part for part in parts if part != task.seen_part] + [task.seen_part]
    scores = [_score(model, parts[part], sequences) for part in names]
    return Generalisation(
        tuple(names), np.array(scores), task.chance.metric, task.metric, sequences, name
    )


def _score(model: nn.Module, task: Task, sequences: int) -> float:
    """Return the metric of a model on the first sequences of a test."""
    total, count = 0.0, 0.0
    device = next(model.parameters()).device
    with evaluating(model), torch.no_grad():
        for number in range(min(-(-sequences // SIZE), task.count("test", SIZE) or 1)):
            batch = task.batch("test", number, SIZE).to(device)
            right, asked = task.score(model(batch), batch)
            total, count = total + float(right), count + asked
    return task.finish(total / count)
