"""Figures of trials of image tasks: rows of images with the answer below."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from undamped._base.errors import OptionError
from undamped.lab.tasks import optional
from undamped.lab.tasks.task import Split, Task


@dataclass(frozen=True)
class Trial:
    """One trial of a figure.

    Args:
        rows: Its images, (height, width, 3) each with values from 0 to 1, row by row.
        answer: The correct answer; empty if the answer is an image.
    """

    rows: list[list[NDArray[Any]]]
    answer: str


def some_trials(task: Task, count: int = 4, split: Split = "train") -> list[Trial]:
    """Return the first trials of a split of a task.

    Args:
        task: A task whose inputs are images.
        count: Number of trials.
        split: The split.
    """
    if task.input_kind != "pictures":
        raise OptionError(
            f"{type(task).__name__} is not a task of images: its inputs are {task.input_kind}."
        )
    batch = task.batch(split, 0, count).expanded()
    images = batch.inputs.float() / (1 if batch.inputs.is_floating_point() else 255)
    arrays = images.movedim(2, -1).numpy()
    if arrays.shape[-1] != 3:
        arrays = np.repeat(arrays[..., :1], 3, axis=-1)
    rows = optional.rows(task) or (len(arrays),)
    return [
        Trial(list(_in_rows(arrays[:, index], rows)), _answer_name(task, batch.targets[index]))
        for index in range(min(count, arrays.shape[1]))
    ]


def _in_rows(images: NDArray[Any], rows: tuple[int, ...]) -> Iterator[list[NDArray[Any]]]:
    start = 0
    for length in rows:
        yield list(images[start : start + length])
        start += length


def _answer_name(task: Task, answer: Tensor) -> str:
    """Return the name of a class; empty for other answers."""
    if task.answer != "class":
        return ""
    names = optional.answer_names(task)
    return names[int(answer)] if names else str(int(answer))


def trials_figure(trials: list[Trial], title: str = "") -> Any:
    """Draw trials side by side into a matplotlib figure.

    Args:
        trials: The trials, at least one.
        title: Title of the figure.
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
    """Return a trial as one image: its rows below each other, on grey."""
    height, width, _ = trial.rows[0][0].shape
    columns = max(len(row) for row in trial.rows)
    canvas = np.full(
        (len(trial.rows) * (height + gap) + gap, columns * (width + gap) + gap, 3), 0.6
    )
    for y, row in enumerate(trial.rows):
        for x, image in enumerate(row):
            top, start = gap + y * (height + gap), gap + x * (width + gap)
            canvas[top : top + height, start : start + width] = image
    return np.clip(canvas, 0, 1)
