"""What a model with a latent start believes between samples: a mean, and a band around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from undamped._base.contract import Batch
from undamped._base.options import NonNegativeInt, PositiveInt
from undamped._base.registry import instruments
from undamped.analysis.core.layout import Layout, reference
from undamped.analysis.core.probe import InapplicableError, Probe
from undamped.analysis.core.result import Result
from undamped.analysis.core.style import Style, Trace
from undamped.lab.tasks.task import Task
from undamped.models.latent.latent_model import LatentModel

Array = NDArray[Any]
SERIES = 64
"""Series over which the share of points inside the band is counted."""


@instruments.register("between_samples")
@dataclass(frozen=True)
class BetweenSamples(Result):
    """A series: `mean` at `times`, `low` and `high`, where nine of ten measurements should lie.

    `seen_times` and `seen` are what the model was told, `asked_times` and `asked` what it was not;
    `inside` is the share of the points of many series that lies in their band.
    """

    question = "What does the model believe between samples, and how sure is it?"
    place = 9

    times: Array
    mean: Array
    low: Array
    high: Array
    seen_times: Array
    seen: Array
    asked_times: Array
    asked: Array
    inside: float
    name: str

    @classmethod
    def measure(cls, probe: Probe) -> BetweenSamples:
        """Look at the first series of the test part."""
        if not isinstance(probe.model, LatentModel):
            raise InapplicableError("it has no latent start from which a series follows")
        if probe.task is None:
            raise InapplicableError("it is drawn through the series of a task, and there is none")
        return between_samples(probe.model, probe.task, seed=probe.seed, name=probe.name)

    @property
    def sentence(self) -> str:
        """How many of the points lie in the band."""
        return f"{self.inside:.0%} of the measurements of {SERIES} series lie in a band for 90 %."

    @property
    def layout(self) -> Layout:
        """The series through time."""
        hidden = {"mode": "markers", "marker": {"color": "#9aa4b5", "size": 4, "symbol": "circle"}}
        return Layout(
            "Between samples",
            "time",
            "first channel",
            "Black: what the model was told; grey: what it was not. The band is for 90 of 100.",
            background=(
                {**reference(self.asked_times, self.asked, "not told"), **hidden},
                {
                    **reference(self.seen_times, self.seen, "told"),
                    **hidden,
                    "marker": {"color": "#000000", "size": 7, "symbol": "circle"},
                },
            ),
        )

    def traces(self, style: Style) -> list[Trace]:
        """The band, and the mean in it."""
        return [
            style.band(self.times, self.low, self.high, "90 % band"),
            style.line(self.times, self.mean, "mean"),
        ]


def between_samples(
    model: LatentModel,
    task: Task,
    *,
    series: NonNegativeInt = 0,
    points: PositiveInt = 200,
    seed: NonNegativeInt = 0,
    name: str = "",
) -> BetweenSamples:
    """Draw what a latent model believes about a series of the test part.

    Args:
        model: A latent ODE, or another model with a latent start.
        task: The task whose test part the series is from.
        series: Which of its series.
        points: At how many times.
        seed: Where the draws come from.
        name: What to call the model.

    Example:
        >>> between_samples(model, task, series=3).picture("series.png")
    """
    batch = task.batch("test", 0, max(SERIES, series + 1)).expanded().cast(model.dtype)
    told, told_times, known = _told(model, batch)
    asked_times, asked, sought = told_times[:0], told[:0], known[:0]
    if batch.target_times is not None and model.shape.same_channels:
        asked_times, asked = batch.target_times.double(), batch.targets.double()
        sought = torch.ones_like(asked, dtype=torch.bool)
        if batch.target_mask is not None:
            mask = batch.target_mask
            sought = mask if mask.dim() == asked.dim() else mask.unsqueeze(-1).expand_as(asked)
    times = torch.cat([told_times, asked_times])
    values, there = torch.cat([told, asked]), torch.cat([known, sought])
    curve = model.curve(batch, times, seed=seed)
    within = ((values >= curve.low) & (values <= curve.high))[there]
    own = slice(series, series + 1)
    end = float(times[:, series][there[:, series].any(-1)].max())
    grid = torch.linspace(0.0, end, points, dtype=torch.float64).unsqueeze(1)
    alone = batch.part(own, inputs_axis=1, targets_axis=1 if batch.targets.dim() > 1 else 0)
    drawn = model.curve(alone, grid, draws=200, seed=seed)

    def first(stamps: torch.Tensor, numbers: torch.Tensor, kept: torch.Tensor) -> tuple[Any, Any]:
        chosen = kept[:, series, 0]
        return stamps[:, series][chosen].numpy(), numbers[:, series, 0][chosen].numpy()

    mean, low, high = (part[:, 0, 0].double().numpy() for part in drawn)
    seen_at, seen = first(told_times, told, known)
    asked_at, not_told = first(asked_times, asked, sought)
    inside = float(within.double().mean()) if len(within) else float(np.nan)
    return BetweenSamples(
        grid[:, 0].numpy(), mean, low, high, seen_at, seen, asked_at, not_told, inside, name
    )


def _told(model: LatentModel, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    from undamped.models.latent.points import seen_points

    points = seen_points(batch, model.gap, torch.float64)
    return points.values, points.times, points.known
