"""The confusion matrix of a classifier on the test split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from undamped._base.registry import instruments
from undamped.analysis.core import InapplicableError, Judgement, Layout, Probe, Result, Style, Trace
from undamped.analysis.core.unrolled import evaluating
from undamped.lab.tasks import optional
from undamped.lab.tasks.task import Task
from undamped.models.task_model import TaskModel

SEQUENCES, SIZE = 1000, 50
WEAK = 0.5
"""Recall below which a class is mentioned."""


@instruments.register("confusion")
@dataclass(frozen=True)
class Confusion(Result):
    """The confusion matrix: predictions by true class.

    `counts[i, j]` is the number of sequences of class i that were predicted as class j.
    """

    question = "Which classes are confused with each other?"
    page_order = 8
    of_answers = True
    columns = ("class", "sequences", "recall", "precision", "F1", "most often confused with")
    figure_layout = Layout(
        "Confusion matrix",
        "predicted class",
        "true class",
        "Numbers of sequences; a perfect model has numbers on the diagonal only.",
        downwards=True,
        legend=False,
    )

    classes: tuple[str, ...]
    counts: NDArray[np.int64]
    name: str

    @classmethod
    def measure(cls, probe: Probe) -> Confusion:
        """Classify the test split of the task."""
        model = probe.full_model or probe.model
        if probe.task is None or not isinstance(model, TaskModel):
            raise InapplicableError("there is no task whose classes it predicts")
        return confusion(model, probe.task, name=probe.name)

    @property
    def recall(self) -> NDArray[np.float64]:
        """The recall of every class; NaN where it has no sequences."""
        return _fractions(self.counts.diagonal(), self.counts.sum(1))

    @property
    def precision(self) -> NDArray[np.float64]:
        """The precision of every class; NaN where it was never predicted."""
        return _fractions(self.counts.diagonal(), self.counts.sum(0))

    @property
    def f1(self) -> NDArray[np.float64]:
        """The harmonic mean of precision and recall."""
        both = self.counts.sum(0) + self.counts.sum(1)
        return _fractions(2 * self.counts.diagonal(), both)

    @property
    def accuracy(self) -> float:
        """The fraction of correct predictions."""
        return float(self.counts.diagonal().sum() / max(1, self.counts.sum()))

    @property
    def balanced(self) -> float:
        """The balanced accuracy: the mean recall over classes."""
        return float(np.nanmean(self.recall))

    @property
    def sentence(self) -> str:
        return (
            f"The accuracy on {int(self.counts.sum()):,} sequences of the test split is "
            f"{100 * self.accuracy:.1f} %, the balanced accuracy {100 * self.balanced:.1f} %."
        )

    @property
    def judgement(self) -> Judgement:
        """Classes with a low recall."""
        weak = [
            name
            for name, value in zip(self.classes, self.recall, strict=True)
            if np.isfinite(value) and value < WEAK
        ]
        accuracy = f"the test accuracy is {100 * self.accuracy:.1f} %"
        if not weak:
            return Judgement(f"{accuracy}, and every class has a recall of at least 50 %", "good")
        listed = ", ".join(weak[:3]) + (f" and {len(weak) - 3} more" if len(weak) > 3 else "")
        return Judgement(f"{accuracy}, but the recall of {listed} is below 50 %", "bad")

    @property
    def rows(self) -> list[tuple[str, ...]]:
        return [
            (
                name,
                f"{self.counts[index].sum():,}",
                _percent(self.recall[index]),
                _percent(self.precision[index]),
                _percent(self.f1[index]),
                self._most_confused(index),
            )
            for index, name in enumerate(self.classes)
        ]

    def _most_confused(self, index: int) -> str:
        errors = self.counts[index].copy()
        errors[index] = 0
        if not errors.any():
            return "–"
        most = int(errors.argmax())
        return f"{self.classes[most]} ({errors[most]:,})"

    def traces(self, style: Style) -> list[Trace]:
        """The matrix, of the first model only."""
        if style.index:
            return []
        rows = _fractions(self.counts, self.counts.sum(1, keepdims=True))
        names = list(self.classes)
        numbers = {"text": self.counts.tolist(), "texttemplate": "%{text}"}
        axes = {"x": names, "y": names, "zmin": 0, "zmax": 1}
        return [style.heatmap(rows.round(3), "fraction", **axes, **numbers)]


def confusion(
    model: TaskModel, task: Task, *, sequences: int = SEQUENCES, name: str = ""
) -> Confusion:
    """Return the confusion matrix of a model on the test split of a task.

    Args:
        model: A model of the task.
        task: A task with one class per sequence.
        sequences: Largest number of sequences.
        name: Name of the model in figures.
    """
    if task.answer != "class" or task.readout != "last" or not task.test_tasks():
        raise InapplicableError("its task does not have one class per sequence and a test split")
    size = task.output_size
    counts = np.zeros((size, size), dtype=np.int64)
    device = next(model.parameters()).device
    with evaluating(model), torch.no_grad():
        batches = task.count("test", SIZE) or 1
        for number in range(min(batches, -(-sequences // SIZE))):
            batch = task.batch("test", number, SIZE).to(device)
            predictions = model(batch).argmax(-1)
            labelled = batch.targets >= 0
            pairs = size * batch.targets[labelled] + predictions[labelled]
            counts += torch.bincount(pairs.cpu(), minlength=size * size).view(size, size).numpy()
    return Confusion(_names(task), counts, name)


def _names(task: Task) -> tuple[str, ...]:
    prepared: Any = getattr(task, "preparation", None)
    names = tuple(getattr(prepared, "classes", None) or optional.answer_names(task))
    return names if len(names) == task.output_size else tuple(map(str, range(task.output_size)))


def _fractions(counts: NDArray[Any], totals: NDArray[Any]) -> NDArray[np.float64]:
    return np.divide(
        counts, totals, out=np.full(np.broadcast(counts, totals).shape, np.nan), where=totals > 0
    )


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %" if np.isfinite(value) else "–"
