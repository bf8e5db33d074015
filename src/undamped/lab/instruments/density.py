"""The density that a flow has learned, with data and samples of the flow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from undamped._base.options import PositiveInt
from undamped._base.registry import instruments
from undamped.analysis.core import InapplicableError, Layout, Probe, Result, Style, Trace
from undamped.analysis.core.figures import rounded
from undamped.analysis.core.unrolled import evaluating
from undamped.ode.flows.continuous_flow import ContinuousFlow

Array = NDArray[Any]
POINTS = 200
"""Number of data points, and of samples, in the figure."""
BLOCK = 4096
"""Number of points at which the density is evaluated at a time."""


@instruments.register("density")
@dataclass(frozen=True)
class Density(Result):
    """The density of a flow over a region of the plane.

    `density[i, j]` is p at (`across[j]`, `upwards[i]`) for a flow in two dimensions. In more
    dimensions it is a histogram of the first two features of its samples. `points` are data,
    `samples` those of the flow; `nll` is the mean of −log p over the data, `mass` the integral of p
    over the region.
    """

    question = "What density has the flow learned?"
    page_order = 12
    figure_layout = Layout(
        "Learned density",
        "first feature",
        "second feature",
        "Bright where the density is high; grey points are data, orange points are samples.",
        equal=True,
    )

    across: Array
    upwards: Array
    density: Array
    points: Array
    samples: Array
    nll: float
    mass: float
    size: int
    chance: float | None
    name: str

    @classmethod
    def measure(cls, probe: Probe) -> Density:
        """Evaluate the flow around the data of its task."""
        flow = probe.network
        if not isinstance(flow, ContinuousFlow):
            raise InapplicableError("it has no density")
        if flow.size < 2:
            raise InapplicableError("its density has a single dimension")
        if getattr(flow.field, "context_size", 0):
            raise InapplicableError("its density depends on a condition")
        task = probe.task
        points = probe.inputs if task is None else task.batch("test", 0, 1000).inputs
        chance = None if task is None else task.chance.metric
        return density(flow, points, chance=chance, seed=probe.seed, name=probe.name)

    @property
    def sentence(self) -> str:
        """The negative log-likelihood of the data, and the integral of the density."""
        normal = "" if self.chance is None else f" ({self.chance:.3f} for a normal distribution)"
        cost = f"The negative log-likelihood is {self.nll:.3f} nats per point{normal}"
        if self.size > 2:
            return f"{cost}; the first two of {self.size} features are shown."
        return f"{cost}; over the figure the density integrates to {self.mass:.3f}."

    def traces(self, style: Style) -> list[Trace]:
        """The density with data and samples, of the first model only."""
        if style.index:
            return []
        data_marker = {"color": "#9aa4b5", "size": 3, "opacity": 0.7, "symbol": "circle"}
        sample_marker = {"color": "#ff9e4a", "size": 3, "opacity": 0.7, "symbol": "circle"}
        low, high = (
            np.array([side[end] for side in (self.across, self.upwards)]) for end in (0, -1)
        )
        visible = self.samples[((self.samples >= low) & (self.samples <= high)).all(1)]
        return [
            style.heatmap(
                self.density,
                "density",
                x=rounded(self.across),
                y=rounded(self.upwards),
                # With the maximum as the limit, a single peak would make all other points dark.
                zmin=0,
                zmax=max(float(np.quantile(self.density, 0.99)), 1e-12),
                name="density",
                hoverinfo="skip",
            ),
            style.points(self.points[:, 0], self.points[:, 1], "data", marker=data_marker),
            style.points(visible[:, 0], visible[:, 1], "samples", 1, marker=sample_marker),
        ]


def density(
    model: nn.Module,
    points: Tensor,
    *,
    resolution: PositiveInt = 80,
    chance: float | None = None,
    seed: int = 0,
    name: str = "",
) -> Density:
    """Evaluate the density of a flow around some points.

    Args:
        model: A flow, such as `FFJORD`.
        points: Data, (points, features).
        resolution: Number of grid points along each side.
        chance: Negative log-likelihood of a normal distribution, for comparison.
        seed: Seed of the samples.
        name: Name of the model in figures.
    """
    flow: Any = model
    generator = torch.Generator().manual_seed(seed)
    count = POINTS if flow.size == 2 else 8 * resolution**2
    with evaluating(flow), torch.no_grad():
        like = flow.root_end
        samples = flow.sample(count, generator=generator)[0].double().cpu()
        nll = -float(_log_density(flow, points.to(like)).mean())
        low, high = points.double().amin(0)[:2].cpu(), points.double().amax(0)[:2].cpu()
        margin = 0.15 * (high - low)
        sides = [
            torch.linspace(a, b, resolution, dtype=torch.float64)
            for a, b in zip((low - margin).tolist(), (high + margin).tolist(), strict=True)
        ]
        across, upwards = sides
        cell = float((across[1] - across[0]) * (upwards[1] - upwards[0]))
        if flow.size == 2:
            grid = torch.cartesian_prod(upwards, across).flip(1)
            densities = _log_density(flow, grid.to(like)).double().exp().cpu()
            values = densities.view(resolution, resolution).numpy()
        else:
            values = _histogram(samples.numpy(), across.numpy(), upwards.numpy()) / (count * cell)
    return Density(
        across.numpy(),
        upwards.numpy(),
        values,
        points[:POINTS, :2].detach().double().cpu().numpy(),
        samples[:POINTS, :2].numpy(),
        nll,
        float(values.sum() * cell),
        flow.size,
        chance,
        name,
    )


def _log_density(flow: Any, points: Tensor) -> Tensor:
    return torch.cat([flow.log_prob(part) for part in points.split(BLOCK)])


def _histogram(samples: Array, across: Array, upwards: Array) -> Array:
    """Return the number of samples around every grid point, by their first two features."""

    def edges(side: Array) -> Array:
        half = (side[1] - side[0]) / 2
        return np.append(side - half, side[-1] + half)

    counts, _, _ = np.histogram2d(samples[:, 1], samples[:, 0], [edges(upwards), edges(across)])
    return counts
