"""Predicted films: what a model sees ahead, over what comes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from undamped._base.registry import instruments
from undamped.analysis.core.layout import Layout
from undamped.analysis.core.probe import InapplicableError, Probe
from undamped.analysis.core.result import Result
from undamped.analysis.core.style import Style, Trace, numbers
from undamped.analysis.core.unrolled import evaluating
from undamped.lab.tasks.task import Task
from undamped.models.task_model import TaskModel

SHOWN = 10
"""Frames that are drawn, evenly over time."""
FILMS = 32
"""Films over which errors are averaged."""


@instruments.register("films")
@dataclass(frozen=True)
class Films(Result):
    """A film, true and predicted, and how the error grows with time.

    `true` and `predicted` are frames of one film at `times`, (frames, height, width), the mean over
    colours; `errors` mean squared errors at every time over several films; the model has `seen` so
    many frames.
    """

    times: np.ndarray
    true: np.ndarray
    predicted: np.ndarray
    errors: np.ndarray
    guess: float
    seen: int
    name: str = ""

    question = "What does the model see ahead?"
    place = 8
    columns = ("time", "mean squared error", "of a guess")

    @classmethod
    def measure(cls, probe: Probe) -> Films:
        """Look at the longest test."""
        return films(probe.model, probe.task, name=probe.name)  # type: ignore[arg-type]

    @property
    def sentence(self) -> str:
        """Errors of what was seen, and at the end."""
        again = self.errors[: self.seen].mean() / self.guess
        end = self.errors[-1] / self.guess
        return (
            f"Frames that were seen come back with {100 * again:.2g} % of the error of a guess; at "
            f"time {self.times[-1]:g} it is {100 * end:.2g} %."
        )

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Errors at some times."""
        return [
            (f"{self.times[k]:.3g}", f"{self.errors[k]:.2g}", f"{self.errors[k] / self.guess:.0%}")
            for k in self._chosen()
        ]

    def _chosen(self) -> np.ndarray:
        return np.unique(np.linspace(0, len(self.times) - 1, SHOWN).round().astype(int))

    @property
    def layout(self) -> Layout:
        """Frames side by side: true ones above, predicted ones below."""
        return Layout(
            "A film, true above and predicted below",
            f"frames from time 0 to {self.times[-1]:g}, evenly",
            "rows of pixels",
            "Frames below that look like those above are seen ahead; a blur is not.",
            downwards=True,
            legend=False,
        )

    def traces(self, style: Style) -> list[Trace]:
        """One picture of all frames; among other models, the first one's alone."""
        if style.index:
            return []
        strips = [np.concatenate(part[self._chosen()], axis=1) for part in self._both()]
        return [
            {
                "type": "heatmap",
                "z": [numbers(row) for row in np.concatenate(strips)],
                "colorscale": "Cividis",
                "colorbar": {"title": {"text": "brightness"}},
                "meta": style.index,
            }
        ]

    def _both(self) -> tuple[np.ndarray, np.ndarray]:
        """Return true and predicted frames with a bright line below and beside them."""
        edge = float(self.true.max())
        widths = ((0, 0), (0, 1), (0, 1))
        true, predicted = (
            np.pad(part, widths, constant_values=edge) for part in (self.true, self.predicted)
        )
        return true, predicted


def films(model: TaskModel, task: Task | None, *, film: int = 0, name: str = "") -> Films:
    """Let a model go on with films of its task's longest test.

    Args:
        model: A model whose answers are pictures at given times.
        task: Its task.
        film: Which film is drawn.
        name: What to call the model.

    Example:
        >>> films(model, task).picture("films.png")
    """
    if task is None or task.input_kind != "pictures" or task.answer != "trajectory":
        raise InapplicableError("it does not answer with pictures")
    part = list(task.test_parts().values())[-1]
    batch = part.batch("test", 0, FILMS)
    with evaluating(model), torch.no_grad():
        found = model(batch)
    assert batch.target_times is not None
    errors = (found - batch.targets).double().square().flatten(2).mean((1, 2))
    return Films(
        batch.target_times[:, 0].double().numpy(),
        _grey(batch.targets[:, film]),
        _grey(found[:, film]),
        errors.numpy(),
        part.chance.metric,
        batch.inputs.shape[0],
        name,
    )


def _grey(frames: Tensor) -> np.ndarray:
    return frames.mean(1).double().cpu().numpy()
