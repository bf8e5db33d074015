"""The density that a flow has learned, drawn beside the data and beside what it draws itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from undamped._base.options import PositiveInt
from undamped._base.registry import instruments
from undamped.analysis.core.layout import Layout
from undamped.analysis.core.probe import InapplicableError, Probe
from undamped.analysis.core.result import Result
from undamped.analysis.core.style import Style, Trace, numbers
from undamped.analysis.core.unrolled import evaluating
from undamped.ode.flows.continuous_flow import ContinuousFlow

Array = NDArray[Any]
SHOWN = 200
"""Points of the data, and of the flow, that are drawn."""
BLOCK = 4096
"""Places at which the density is asked for at a time."""


@instruments.register("density")
@dataclass(frozen=True)
class Density(Result):
    """The density of a flow over a part of the plane.

    `density[i, j]` is p at (`across[j]`, `upwards[i]`) for a flow in the plane. In more dimensions
    it is how often its samples fall there, as far as the first two features say. `points` are data,
    `samples` drawn by the flow; `nll` is the mean of −log p over the data, `mass` the integral of p
    over the picture.
    """

    question = "What density has the flow learned?"
    place = 12

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
        """Look at the flow around the data of its task."""
        flow = probe.network
        if not isinstance(flow, ContinuousFlow):
            raise InapplicableError("it has no density")
        if flow.size < 2:
            raise InapplicableError("its density is over a line, not over a plane")
        if getattr(flow.field, "context_size", 0):
            raise InapplicableError("its density depends on a condition")
        task = probe.task
        points = probe.inputs if task is None else task.batch("test", 0, 1000).inputs
        chance = None if task is None else task.chance.metric
        return density(flow, points, chance=chance, seed=probe.seed, name=probe.name)

    @property
    def sentence(self) -> str:
        """How well the data are met, and whether the density adds up."""
        beside = "" if self.chance is None else f" ({self.chance:.3f} for a normal distribution)"
        met = f"The data cost {self.nll:.3f} nats a point{beside}"
        if self.size > 2:
            return f"{met}; the first two of {self.size} features are drawn."
        return f"{met}; over the picture the density adds up to {self.mass:.3f}."

    @property
    def layout(self) -> Layout:
        """The plane of the first two features."""
        return Layout(
            "Learned density",
            "first feature",
            "second feature",
            "Bright where the flow expects points; grey dots are data, orange ones its samples.",
            equal=True,
        )

    def traces(self, style: Style) -> list[Trace]:
        """The density under the points, of the first model alone."""
        if style.index:
            return []
        data = {"color": "#9aa4b5", "size": 3, "opacity": 0.7, "symbol": "circle"}
        own = {"color": "#ff9e4a", "size": 3, "opacity": 0.7, "symbol": "circle"}
        low, high = (
            np.array([side[end] for side in (self.across, self.upwards)]) for end in (0, -1)
        )
        seen = self.samples[((self.samples >= low) & (self.samples <= high)).all(1)]
        return [
            {
                "type": "heatmap",
                "x": numbers(self.across),
                "y": numbers(self.upwards),
                "z": [numbers(row) for row in self.density],
                "colorscale": "Cividis",
                # A single peak would leave everything else in the dark.
                "zmin": 0,
                "zmax": max(float(np.quantile(self.density, 0.99)), 1e-12),
                "colorbar": {"title": {"text": "density"}},
                "name": "density",
                "hoverinfo": "skip",
                "meta": style.index,
            },
            style.points(self.points[:, 0], self.points[:, 1], "data", marker=data),
            style.points(seen[:, 0], seen[:, 1], "its samples", 1, marker=own),
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
    """Ask a flow for its density around some points.

    Args:
        model: A flow, such as `FFJORD`.
        points: Data, (points, features).
        resolution: Places along each side at which the density is asked for.
        chance: What a normal distribution costs in nats a point, to stand beside.
        seed: Seed of the samples.
        name: What to call it.
    """
    flow: Any = model
    generator = torch.Generator().manual_seed(seed)
    drawn = SHOWN if flow.size == 2 else 8 * resolution**2
    with evaluating(flow), torch.no_grad():
        like = flow.root_end
        samples = flow.sample(drawn, generator=generator)[0].double().cpu()
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
            places = torch.cartesian_prod(upwards, across).flip(1)
            found = _log_density(flow, places.to(like)).double().exp().cpu()
            values = found.view(resolution, resolution).numpy()
        else:
            values = _counted(samples.numpy(), across.numpy(), upwards.numpy()) / (drawn * cell)
    return Density(
        across.numpy(),
        upwards.numpy(),
        values,
        points[:SHOWN, :2].detach().double().cpu().numpy(),
        samples[:SHOWN, :2].numpy(),
        nll,
        float(values.sum() * cell),
        flow.size,
        chance,
        name,
    )


def _log_density(flow: Any, places: Tensor) -> Tensor:
    return torch.cat([flow.log_prob(part) for part in places.split(BLOCK)])


def _counted(samples: Array, across: Array, upwards: Array) -> Array:
    """Return how many samples fall around every place of a grid, by their first two features."""

    def edges(side: Array) -> Array:
        half = (side[1] - side[0]) / 2
        return np.append(side - half, side[-1] + half)

    found, _, _ = np.histogram2d(samples[:, 1], samples[:, 0], [edges(upwards), edges(across)])
    return found
