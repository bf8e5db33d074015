"""Predicted films, compared with the true ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from undamped._base.registry import instruments
from undamped.analysis.core import InapplicableError, Layout, Probe, Result, Style, Trace
from undamped.analysis.core.unrolled import evaluating
from undamped.lab.tasks.task import Task
from undamped.models.task_model import TaskModel

FRAMES = 10
"""Frames in the figure, evenly spaced in time."""
FILMS = 32
"""Number of films for the mean error."""


@instruments.register("films")
@dataclass(frozen=True)
class Films(Result):
    """A film, true and predicted, and how the error grows with time.

    `true` and `predicted` are frames of one film at `times`, (frames, height, width), the mean over
    colours; `errors` mean squared errors at every time over several films; the model has observed
    the first `num_observed` frames.
    """

    times: np.ndarray
    true: np.ndarray
    predicted: np.ndarray
    errors: np.ndarray
    chance: float
    num_observed: int
    name: str = ""

    question = "How well does the model predict films?"
    page_order = 8
    columns = ("time", "mean squared error", "of the naive baseline")

    @classmethod
    def measure(cls, probe: Probe) -> Films:
        return films(probe.model, probe.task, name=probe.name)  # type: ignore[arg-type]

    @property
    def sentence(self) -> str:
        observed = self.errors[: self.num_observed].mean() / self.chance
        end = self.errors[-1] / self.chance
        return (
            f"Observed frames have {100 * observed:.2g} % of the naive baseline's error; at time "
            f"{self.times[-1]:g} it is {100 * end:.2g} %."
        )

    @property
    def rows(self) -> list[tuple[str, ...]]:
        return [
            (f"{self.times[k]:.3g}", f"{self.errors[k]:.2g}", f"{self.errors[k] / self.chance:.0%}")
            for k in self._indices()
        ]

    def _indices(self) -> np.ndarray:
        return np.unique(np.linspace(0, len(self.times) - 1, FRAMES).round().astype(int))

    @property
    def layout(self) -> Layout:
        """Frames side by side: true ones above, predicted ones below."""
        return Layout(
            "A film, true above and predicted below",
            f"frames from time 0 to {self.times[-1]:g}, evenly",
            "rows of pixels",
            "Accurate predictions look like the frames above; a blur is not accurate.",
            downwards=True,
            legend=False,
        )

    def traces(self, style: Style) -> list[Trace]:
        """All frames as one image, of the first model only."""
        if style.index:
            return []
        strips = [np.concatenate(part[self._indices()], axis=1) for part in self._both()]
        return [style.heatmap(np.concatenate(strips), "brightness")]

    def _both(self) -> tuple[np.ndarray, np.ndarray]:
        """Return true and predicted frames with a bright line below and beside them."""
        edge = float(self.true.max())
        widths = ((0, 0), (0, 1), (0, 1))
        true, predicted = (
            np.pad(part, widths, constant_values=edge) for part in (self.true, self.predicted)
        )
        return true, predicted


def films(model: TaskModel, task: Task | None, *, film: int = 0, name: str = "") -> Films:
    """Predict films of the longest test split of a task.

    Args:
        model: A model whose outputs are images at query times.
        task: Its task.
        film: Index of the film in the figure.
        name: Name of the model in figures.

    Example:
        >>> films(model, task).save_figure("films.png")
    """
    if task is None or task.input_kind != "pictures" or task.answer != "trajectory":
        raise InapplicableError("its outputs are not images")
    part = list(task.test_tasks().values())[-1]
    batch = part.batch("test", 0, FILMS)
    with evaluating(model), torch.no_grad():
        predictions = model(batch)
    assert batch.target_times is not None
    errors = (predictions - batch.targets).double().square().flatten(2).mean((1, 2))
    return Films(
        batch.target_times[:, 0].double().numpy(),
        _grey(batch.targets[:, film]),
        _grey(predictions[:, film]),
        errors.numpy(),
        part.chance.metric,
        batch.inputs.shape[0],
        name,
    )


def _grey(frames: Tensor) -> np.ndarray:
    return frames.mean(1).double().cpu().numpy()
