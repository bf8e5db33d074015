"""Trials of a task of pictures, drawn for people: rows of pictures, and the answer below."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from undamped._base.errors import OptionError, explain
from undamped.lab.tasks.task import Split, Task


@dataclass(frozen=True)
class Trial:
    """One trial as it is drawn.

    Args:
        rows: Its pictures, (height, width, 3) each with values from 0 to 1, row by row.
        answer: What is right, or nothing where that is more pictures.
    """

    rows: list[list[NDArray[Any]]]
    answer: str


def some_trials(task: Task, count: int = 4, split: Split = "train") -> list[Trial]:
    """Return the first trials of a part of a task, as pictures for people.

    Args:
        task: A task whose inputs are pictures.
        count: How many.
        split: Which part.
    """
    if task.input_kind != "pictures":
        raise OptionError(
            explain(
                type(task).__name__,
                expected="a task of pictures",
                got=f"one of {task.input_kind}",
                remedy="'undamped list' shows all.",
            )
        )
    batch = task.batch(split, 0, count).expanded()
    pictures = batch.inputs.float() / (1 if batch.inputs.is_floating_point() else 255)
    shown = pictures.movedim(2, -1).numpy()
    if shown.shape[-1] != 3:
        shown = np.repeat(shown[..., :1], 3, axis=-1)
    rows = task.rows or (len(shown),)
    return [
        Trial(list(_in_rows(shown[:, number], rows)), _named(task, batch.targets[number]))
        for number in range(min(count, shown.shape[1]))
    ]


def _in_rows(pictures: NDArray[Any], rows: tuple[int, ...]) -> Iterator[list[NDArray[Any]]]:
    start = 0
    for length in rows:
        yield list(pictures[start : start + length])
        start += length


def _named(task: Task, answer: Tensor) -> str:
    """Say a class in words; nothing of an answer that is more pictures."""
    if task.answer != "class":
        return ""
    return task.answer_names[int(answer)] if task.answer_names else str(int(answer))


def trials_figure(trials: list[Trial], title: str = "") -> Any:
    """Draw trials side by side into a matplotlib figure.

    Args:
        trials: The trials, at least one.
        title: What stands above.
    """
    from matplotlib.figure import Figure

    rows = len(trials[0].rows)
    columns = max(len(row) for row in trials[0].rows)
    width = max(1.8, 0.42 * columns + 0.3)
    size = (width * len(trials), 0.45 * rows + 0.9)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(1, len(trials), squeeze=False)[0]
    for axis, trial in zip(axes, trials, strict=True):
        axis.imshow(mosaic(trial), interpolation="nearest")
        axis.set_xticks([])
        axis.set_yticks([])
        axis.set_frame_on(False)
        axis.set_xlabel(trial.answer, fontsize=9)
    figure.suptitle(title, fontsize=10)
    return figure


def mosaic(trial: Trial, gap: int = 2) -> NDArray[Any]:
    """Return one picture of a trial: its rows below each other, on grey."""
    height, width, _ = trial.rows[0][0].shape
    columns = max(len(row) for row in trial.rows)
    whole = np.full((len(trial.rows) * (height + gap) + gap, columns * (width + gap) + gap, 3), 0.6)
    for y, row in enumerate(trial.rows):
        for x, picture in enumerate(row):
            top, left = gap + y * (height + gap), gap + x * (width + gap)
            whole[top : top + height, left : left + width] = picture
    return np.clip(whole, 0, 1)
