"""The prediction of a latent model between samples: its mean and a 90 % band."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from undamped._base.contract import Batch
from undamped._base.options import NonNegativeInt, PositiveInt
from undamped._base.registry import instruments
from undamped.analysis.core import InapplicableError, Layout, Probe, Result, Style, Trace
from undamped.analysis.core.figures import reference
from undamped.lab.tasks.task import Task
from undamped.models.latent.latent_model import LatentModel

Array = NDArray[Any]
SERIES = 64
"""Number of series for the coverage of the band."""


class Curve(NamedTuple):
    """Predicted measurements at any times, (times, batch, features).

    Args:
        mean: The mean.
        low: The 5 % quantile.
        high: The 95 % quantile.
    """

    mean: Tensor
    low: Tensor
    high: Tensor


@torch.no_grad()
def predicted_curve(
    model: LatentModel, batch: Batch, times: Tensor, *, draws: int = 100, seed: int = 0
) -> Curve:
    """Return the measurements that a model predicts at any times: mean, and a 90 % band.

    Args:
        model: The model.
        batch: The inputs.
        times: (times, batch).
        draws: Number of latent initial states from which the band is computed.
        seed: Seed of the draws.
    """
    batch = batch.expanded()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        starts = model.posterior(batch).draw(draws)
        means = model.emission(model.decode(starts, times.double()))
        # One draw of noise for all times of a curve: bands are the same, and smooth.
        noisy = means + model.emission.log_noise.exp() * torch.randn_like(means[:, :1])
    low, high = torch.quantile(noisy.float(), torch.tensor([0.05, 0.95]), dim=0)
    return Curve(means.mean(0), low.to(means), high.to(means))


@instruments.register("between_samples")
@dataclass(frozen=True)
class BetweenSamples(Result):
    """A series with the prediction of a model: `mean`, `low` and `high` of a 90 % band at `times`.

    `observed_times` and `observed` are the inputs of the model, `target_times` and `targets` the
    held-out measurements; `inside` is the fraction of the points of many series in their band.
    """

    question = "What does the model predict between samples, with which uncertainty?"
    page_order = 9

    times: Array
    mean: Array
    low: Array
    high: Array
    observed_times: Array
    observed: Array
    target_times: Array
    targets: Array
    inside: float
    name: str

    @classmethod
    def measure(cls, probe: Probe) -> BetweenSamples:
        """Measure the first series of the test split."""
        if not isinstance(probe.model, LatentModel):
            raise InapplicableError("it has no latent initial state")
        if probe.task is None:
            raise InapplicableError("there is no task whose series could be predicted")
        return between_samples(probe.model, probe.task, seed=probe.seed, name=probe.name)

    @property
    def sentence(self) -> str:
        return f"{self.inside:.0%} of the measurements of {SERIES} series lie in the 90 % band."

    @property
    def layout(self) -> Layout:
        hidden = {"mode": "markers", "marker": {"color": "#9aa4b5", "size": 4, "symbol": "circle"}}
        return Layout(
            "Between samples",
            "time",
            "first channel",
            "Black: inputs of the model; grey: held-out values. The band should contain 90 %.",
            background=(
                {**reference(self.target_times, self.targets, "held out"), **hidden},
                {
                    **reference(self.observed_times, self.observed, "inputs"),
                    **hidden,
                    "marker": {"color": "#000000", "size": 7, "symbol": "circle"},
                },
            ),
        )

    def traces(self, style: Style) -> list[Trace]:
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
    """Return the prediction of a latent model for a series of the test split.

    Args:
        model: A latent ODE, or another model with a latent initial state.
        task: The task of the series.
        series: Index of the series.
        points: Number of times.
        seed: Seed of the samples.
        name: Name of the model in figures.

    Example:
        >>> between_samples(model, task, series=3).save_figure("series.png")
    """
    batch = task.batch("test", 0, max(SERIES, series + 1)).expanded().cast(model.dtype)
    inputs, input_times, input_mask = _observed(model, batch)
    target_times, targets, target_mask = input_times[:0], inputs[:0], input_mask[:0]
    if batch.target_times is not None and model.shape.same_channels:
        target_times, targets = batch.target_times.double(), batch.targets.double()
        target_mask = torch.ones_like(targets, dtype=torch.bool)
        if batch.target_mask is not None:
            mask = batch.target_mask
            target_mask = (
                mask if mask.dim() == targets.dim() else mask.unsqueeze(-1).expand_as(targets)
            )
    times = torch.cat([input_times, target_times])
    values, valid = torch.cat([inputs, targets]), torch.cat([input_mask, target_mask])
    curve = predicted_curve(model, batch, times, seed=seed)
    within = ((values >= curve.low) & (values <= curve.high))[valid]
    index = slice(series, series + 1)
    end = float(times[:, series][valid[:, series].any(-1)].max())
    grid = torch.linspace(0.0, end, points, dtype=torch.float64).unsqueeze(1)
    single = batch.part(index, inputs_axis=1, targets_axis=1 if batch.targets.dim() > 1 else 0)
    band = predicted_curve(model, single, grid, draws=200, seed=seed)

    def first(
        timestamps: torch.Tensor, values: torch.Tensor, mask: torch.Tensor
    ) -> tuple[Any, Any]:
        rows = mask[:, series, 0]
        return timestamps[:, series][rows].numpy(), values[:, series, 0][rows].numpy()

    mean, low, high = (part[:, 0, 0].double().numpy() for part in band)
    observed_at, observed = first(input_times, inputs, input_mask)
    target_at, held_out = first(target_times, targets, target_mask)
    inside = float(within.double().mean()) if len(within) else float(np.nan)
    return BetweenSamples(
        grid[:, 0].numpy(),
        mean,
        low,
        high,
        observed_at,
        observed,
        target_at,
        held_out,
        inside,
        name,
    )


def _observed(model: LatentModel, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    from undamped.models.timestamped import observed_points

    points = observed_points(batch, model.gap, torch.float64)
    return points.values, points.times, points.mask
