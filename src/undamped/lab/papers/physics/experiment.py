"""What the experiments on simulated systems share: training, goals, and the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from undamped.lab.papers.runs import fit_once
from undamped.lab.report.table import Report, Table
from undamped.lab.tasks.physics.motion_task import MotionTask
from undamped.models.physics.state_model import StateModel


@dataclass(frozen=True)
class Goal:
    """A limit that a number should not exceed.

    Args:
        words: What the number is.
        value: The measured number.
        limit: Its limit.
    """

    words: str
    value: float
    limit: float

    @property
    def met(self) -> bool:
        """Whether the number is within the limit."""
        return self.value <= self.limit

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {**vars(self), "met": self.met}

    def line(self) -> str:
        """Return a line for a Markdown page."""
        sign = "✓" if self.met else "✗"
        return f"- {sign} {self.words}: {self.value:.3g} (goal: at most {self.limit:.3g})."


def goal_report(
    records: Sequence[Any],
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    goals: Sequence[Goal],
    plots: Mapping[str, Any],
    *notes: str,
    printed: Any = None,
    **further: Any,
) -> Report:
    """Return a report of one table with goals below it.

    Args:
        records: What was measured.
        header: Headings of the table.
        rows: Its rows.
        goals: What should be reached.
        plots: Functions that draw the figures, by name.
        notes: Sentences between table and goals.
        printed: The numbers of the paper, for JSON.
        further: Further fields of the report.
    """
    lines = "\n".join(goal.line() for goal in goals)
    numbers = {"goals": list(goals), **({} if printed is None else {"printed": printed})}
    numbers |= further.pop("numbers", {})
    table = Table(header, rows, notes=[*notes, lines])
    return Report(records, [table], plots, numbers, **further)


def scientific(value: float | None) -> str:
    """Return a number with its power of ten; an empty text for None."""
    return "" if value is None else f"{value:.2e}"


@dataclass(frozen=True)
class TrainedModel:
    """A trained model, its task, and the result of the run."""

    model: StateModel
    task: MotionTask
    result: dict[str, Any]

    @property
    def seconds(self) -> float:
        """Duration of training."""
        return self.result["seconds"]


def train_model(model: str, task: str, **settings: Any) -> TrainedModel:
    """Train a model, or load an earlier run, and return it in evaluation mode.

    Args:
        model: Registry name of the model.
        task: Registry name of the task.
        settings: Options, seed and folder, as for `fit_once`.
    """
    run = fit_once(model, task, **settings)
    network, motion = run.model(), run.task()
    assert isinstance(network, StateModel) and isinstance(motion, MotionTask)
    assert run.result is not None
    return TrainedModel(network, motion, run.result)
