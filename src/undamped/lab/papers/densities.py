"""FFJORD on planar densities: negative log-likelihood and figures."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from undamped._base.options import PositiveFloat
from undamped.lab.papers.runs import experiment
from undamped.lab.report.charts import label, panels
from undamped.lab.report.table import Progress, Report, Table, silent
from undamped.lab.tasks.points import density
from undamped.ode.fields.perceptron import ConcatSquashField
from undamped.ode.flows.continuous_flow import ContinuousFlow

EXTENT = 3.5
"""Half the side of the square that is drawn."""
CELLS = 70


@dataclass(frozen=True)
class DensityRun:
    """One density.

    Args:
        name: Of the density.
        nll: Negative log-likelihood of new points in nats, by the exact trace.
        normal_nll: The score of a normal distribution with the covariance of the data.
        evaluations: Evaluations of a forward pass in training, iteration by iteration.
        seconds: Duration of training.
        truth: Points of the data, (points, 2).
        samples: Points of the flow.
        image: Density of the flow on a grid, (cells, cells).
    """

    name: str
    nll: float
    normal_nll: float
    evaluations: tuple[int, ...]
    seconds: float
    truth: Tensor
    samples: Tensor
    image: Tensor

    def row(self) -> tuple[str, ...]:
        """Return the row of the table."""
        scores = (f"{self.nll:.3f}", f"{self.normal_nll:.3f}")
        return (self.name, *scores, str(self.evaluations[-1]), f"{self.seconds:.0f}")


@experiment("densities")
def run(
    *,
    names: tuple[str, ...] = ("moons", "checkerboard", "rings"),
    iterations: int = 600,
    batch: int = 256,
    hidden_size: int = 64,
    detail: PositiveFloat = 6.0,
    learning_rate: PositiveFloat = 1e-2,
    seed: int = 0,
    progress: Progress = silent,
) -> Report:
    """FFJORD on planar densities: negative log-likelihood and figures.

    Args:
        names: Densities.
        iterations: Updates of Adam for each.
        batch: Points per update.
        hidden_size: Width of the field.
        detail: Initial factor on the weights of the first layer.
        learning_rate: Initial rate of Adam; it falls to zero along a cosine.
        seed: Seed of data and models.
        progress: Called with a name after every training.

    Example:
        >>> result = run(names=("moons",), iterations=600)

    Reference:
        W. Grathwohl and others. FFJORD. ICLR, 2019.
    """
    settings = {
        "optimiser": f"Adam, {learning_rate:g}, cosine",
        "solver": "dopri5, tolerance 1e-3 in training and 1e-5 in the test, T = 1",
        "trace": "exact",
    }
    runs = []
    for name in names:
        torch.manual_seed(seed)
        # In the plane the exact trace costs two products, hardly more than its estimate.
        flow = ContinuousFlow(
            ConcatSquashField(2, hidden_size, detail=detail),
            2,
            trace="exact",
            end=1.0,
            rtol=1e-3,
            atol=1e-3,
        )
        generator = torch.Generator().manual_seed(seed)
        runs.append(_train(name, flow, iterations, batch, learning_rate, generator))
        progress(name)
    header = ("density", "test NLL, nats", "a normal distribution", "forward NFE, last", "s")
    table = Table(header, [run.row() for run in runs])
    return Report(runs, [table], {"densities": lambda: _figure(runs)}, settings=settings)


def _train(
    name: str,
    flow: ContinuousFlow,
    iterations: int,
    batch: int,
    learning_rate: float,
    generator: torch.Generator,
) -> DensityRun:
    optimiser = torch.optim.Adam(flow.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, iterations)
    counts = []
    start = time.perf_counter()
    for _ in range(iterations):
        optimiser.zero_grad()
        result = flow(density(name, batch, generator), generator=generator)
        (-result.log_prob.mean()).backward()
        optimiser.step()
        schedule.step()
        counts.append(flow.evaluations)
    seconds = time.perf_counter() - start
    flow.eval()
    flow.rtol = flow.atol = 1e-5
    truth = density(name, 2000, generator)
    grid = torch.linspace(-EXTENT, EXTENT, CELLS)
    with torch.no_grad():
        nll = -float(flow.log_prob(truth).mean())
        samples, _ = flow.sample(1500, generator=generator)
        image = flow.log_prob(torch.cartesian_prod(grid, grid)).exp().view(CELLS, CELLS)
    normal = torch.distributions.MultivariateNormal(truth.mean(0), truth.T.cov())
    return DensityRun(
        name=name,
        nll=nll,
        normal_nll=-float(normal.log_prob(truth).mean()),
        evaluations=tuple(counts),
        seconds=seconds,
        truth=truth,
        samples=samples,
        image=image,
    )


def _figure(runs: Sequence[DensityRun]) -> Any:
    figure, all_axes = panels(6, 2 * len(runs), columns=3, rows=len(runs))
    corners = (-EXTENT, EXTENT, -EXTENT, EXTENT)
    for number, run in enumerate(runs):
        data, learned, samples = row = all_axes[3 * number : 3 * number + 3]
        data.plot(*run.truth.T.numpy(), ".", markersize=1, color="#444444")
        learned.imshow(run.image.T.numpy(), origin="lower", extent=corners)
        samples.plot(*run.samples.T.numpy(), ".", markersize=1, color="#0072B2")
        for axes, title in zip(row, (run.name, "learned density", "samples"), strict=True):
            label(axes, title=title)
            axes.set(
                xlim=(-EXTENT, EXTENT), ylim=(-EXTENT, EXTENT), aspect="equal", xticks=[], yticks=[]
            )
    return figure
