"""Which classes are taken for which, on the test part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from undamped._base.registry import instruments
from undamped.analysis.core.layout import Layout
from undamped.analysis.core.probe import InapplicableError, Probe
from undamped.analysis.core.result import Judgement, Result
from undamped.analysis.core.style import Style, Trace
from undamped.analysis.core.unrolled import evaluating
from undamped.lab.tasks.task import Task
from undamped.models.task_model import TaskModel

SEQUENCES, SIZE = 1000, 50
WEAK = 0.5
"""A class of which less than this share is found is named."""


@instruments.register("confusion")
@dataclass(frozen=True)
class Confusion(Result):
    """Answers beside the truth, class by class.

    `counts[i, j]` is how many sequences of class i were taken for class j.
    """

    question = "Which classes are taken for which?"
    place = 8
    of_answers = True
    columns = ("class", "sequences", "found", "right when named", "F1", "mostly taken for")

    classes: tuple[str, ...]
    counts: NDArray[np.int64]
    name: str

    @classmethod
    def measure(cls, probe: Probe) -> Confusion:
        """Ask the model about the test part of its task."""
        model = probe.whole or probe.model
        if probe.task is None or not isinstance(model, TaskModel):
            raise InapplicableError("it comes without a task whose classes it answers")
        return confusion(model, probe.task, name=probe.name)

    @property
    def found(self) -> NDArray[np.float64]:
        """The share of every class that was recognised; NaN where there was none."""
        return _shares(self.counts.diagonal(), self.counts.sum(1))

    @property
    def trusted(self) -> NDArray[np.float64]:
        """How often the class was right when it was named; NaN where it never was."""
        return _shares(self.counts.diagonal(), self.counts.sum(0))

    @property
    def f1(self) -> NDArray[np.float64]:
        """The harmonic mean of both."""
        both = self.counts.sum(0) + self.counts.sum(1)
        return _shares(2 * self.counts.diagonal(), both)

    @property
    def balanced(self) -> float:
        """The mean share that was recognised, every class counting alike."""
        return float(np.nanmean(self.found))

    @property
    def sentence(self) -> str:
        """Accuracy, with every sequence and with every class counting alike."""
        total = int(self.counts.sum())
        share = self.counts.diagonal().sum() / max(1, total)
        return (
            f"{100 * share:.1f} % of {total:,} sequences of the test part are right; with every "
            f"class counting alike, {100 * self.balanced:.1f} %."
        )

    @property
    def judgement(self) -> Judgement:
        """Which classes are hardly found."""
        share = 100 * self.counts.diagonal().sum() / max(1, self.counts.sum())
        weak = [
            name
            for name, value in zip(self.classes, self.found, strict=True)
            if np.isfinite(value) and value < WEAK
        ]
        said = f"{share:.1f} % of the test part is right"
        if not weak:
            return Judgement(f"{said}, and no class is found less than half the time", "good")
        named = ", ".join(weak[:3]) + (f" and {len(weak) - 3} more" if len(weak) > 3 else "")
        return Judgement(f"{said}, but less than half of {named} is found", "bad")

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Class by class."""
        return [
            (
                name,
                f"{self.counts[place].sum():,}",
                _percent(self.found[place]),
                _percent(self.trusted[place]),
                _percent(self.f1[place]),
                self._mistaken(place),
            )
            for place, name in enumerate(self.classes)
        ]

    def _mistaken(self, place: int) -> str:
        others = self.counts[place].copy()
        others[place] = 0
        if not others.any():
            return "–"
        most = int(others.argmax())
        return f"{self.classes[most]} ({others[most]:,})"

    @property
    def layout(self) -> Layout:
        """The matrix, truth from top to bottom."""
        return Layout(
            "Classes and what they are taken for",
            "what the model says",
            "what it is",
            "Shares of every class: a model that is always right has a bright diagonal and nothing "
            "beside it.",
            downwards=True,
            legend=False,
        )

    def traces(self, style: Style) -> list[Trace]:
        """The matrix, of the first model alone."""
        if style.index:
            return []
        shares = _shares(self.counts, self.counts.sum(1, keepdims=True))
        return [
            {
                "type": "heatmap",
                "x": list(self.classes),
                "y": list(self.classes),
                "z": [[None if np.isnan(v) else round(float(v), 3) for v in row] for row in shares],
                "colorscale": "Cividis",
                "zmin": 0,
                "zmax": 1,
                "colorbar": {"title": {"text": "share"}},
                "meta": style.index,
            }
        ]


def confusion(
    model: TaskModel, task: Task, *, sequences: int = SEQUENCES, name: str = ""
) -> Confusion:
    """Count which classes a model takes for which, on the test part of a task.

    Args:
        model: A model of the task.
        task: A task with one class as the answer to a sequence.
        sequences: How many are asked about, at most.
        name: What to call it.
    """
    if task.answer != "class" or task.readout != "last" or not task.test_parts():
        raise InapplicableError("its task does not ask for one class a sequence on a test part")
    size = task.output_size
    counts = np.zeros((size, size), dtype=np.int64)
    device = next(model.parameters()).device
    with evaluating(model), torch.no_grad():
        batches = task.count("test", SIZE) or 1
        for number in range(min(batches, -(-sequences // SIZE))):
            batch = task.batch("test", number, SIZE).to(device)
            said = model(batch).argmax(-1)
            known = batch.targets >= 0
            pairs = size * batch.targets[known] + said[known]
            counts += torch.bincount(pairs.cpu(), minlength=size * size).view(size, size).numpy()
    return Confusion(_names(task), counts, name)


def _names(task: Task) -> tuple[str, ...]:
    prepared: Any = getattr(task, "preparation", None)
    names = tuple(getattr(prepared, "classes", None) or task.answer_names)
    return names if len(names) == task.output_size else tuple(map(str, range(task.output_size)))


def _shares(part: NDArray[Any], whole: NDArray[Any]) -> NDArray[np.float64]:
    return np.divide(
        part, whole, out=np.full(np.broadcast(part, whole).shape, np.nan), where=whole > 0
    )


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %" if np.isfinite(value) else "–"
