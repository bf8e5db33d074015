"""FFJORD on planar densities: negative log-likelihood and pictures."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from undamped._base.options import PositiveFloat
from undamped._base.registry import experiments
from undamped.lab.tasks.continuous_data import density
from undamped.ode.fields.concat_squash import ConcatSquashField
from undamped.ode.flows.continuous_flow import ContinuousFlow


@dataclass(frozen=True)
class DensityRun:
    """One density.

    Args:
        name: Of the density.
        nll: Negative log-likelihood of fresh points, nats, by the exact trace.
        normal_nll: What a normal distribution with the data's own covariance would score.
        evaluations: Evaluations of a forward pass while training, iteration by iteration.
        seconds: Of training.
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


@dataclass(frozen=True)
class DensityResult:
    """All densities, with the settings that made them."""

    runs: tuple[DensityRun, ...]
    settings: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers for JSON."""
        keys = ("name", "nll", "normal_nll", "evaluations", "seconds")
        rows = [{key: getattr(run, key) for key in keys} for run in self.runs]
        return {"settings": self.settings, "runs": rows}

    def markdown(self) -> str:
        """Return a table."""
        lines = [
            "| density | test NLL, nats | a normal distribution | forward NFE, last | s |",
            "|---|---|---|---|---|",
        ]
        lines += [
            f"| {run.name} | {run.nll:.3f} | {run.normal_nll:.3f} | {run.evaluations[-1]} | "
            f"{run.seconds:.0f} |"
            for run in self.runs
        ]
        return "\n".join(lines)

    def figures(self) -> dict[str, Any]:
        """Return a picture: data, learned density and samples."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 2 * len(self.runs)), layout="constrained")
        rows = figure.subplots(len(self.runs), 3, squeeze=False)
        for run, axes in zip(self.runs, rows, strict=True):
            axes[0].plot(*run.truth.T.numpy(), ".", markersize=1, color="#444444")
            axes[1].imshow(run.image.T.numpy(), origin="lower", extent=(-3.5, 3.5, -3.5, 3.5))
            axes[2].plot(*run.samples.T.numpy(), ".", markersize=1, color="#0072B2")
            for axis, title in zip(axes, (run.name, "learned density", "samples"), strict=True):
                axis.set_title(title, fontsize=8)
                axis.set_xlim(-3.5, 3.5)
                axis.set_ylim(-3.5, 3.5)
                axis.set_aspect("equal")
                axis.set_xticks([])
                axis.set_yticks([])
        return {"densities": figure}


@experiments.register("densities")
def run(
    *,
    names: tuple[str, ...] = ("moons", "checkerboard", "rings"),
    iterations: int = 600,
    batch: int = 256,
    hidden_size: int = 64,
    detail: PositiveFloat = 6.0,
    learning_rate: PositiveFloat = 1e-2,
    seed: int = 0,
    tick: Callable[[str], None] | None = None,
) -> DensityResult:
    """FFJORD on planar densities: negative log-likelihood and pictures.

    Args:
        names: Densities.
        iterations: Budget: steps of Adam for each.
        batch: Points a step.
        hidden_size: Width of the field.
        detail: Factor on the first layer's weights at the start.
        learning_rate: Of Adam at the start; it falls to nothing along a cosine.
        seed: Of data and models.
        tick: Called with a name after every training.

    Example:
        >>> result = run(names=("moons",), iterations=600)

    Reference:
        W. Grathwohl and others. FFJORD. ICLR, 2019.
    """
    settings = {
        "iterations": iterations,
        "batch": batch,
        "hidden_size": hidden_size,
        "detail": detail,
        "seed": seed,
        "optimiser": f"Adam, {learning_rate:g}, cosine",
        "solver": "dopri5, tolerance 1e-3 in training and 1e-5 in the test, T = 1",
        "trace": "exact",
    }
    runs = []
    for name in names:
        runs.append(_train(name, iterations, batch, hidden_size, detail, learning_rate, seed))
        if tick is not None:
            tick(name)
    return DensityResult(tuple(runs), settings)


def _train(
    name: str,
    iterations: int,
    batch: int,
    hidden_size: int,
    detail: float,
    learning_rate: float,
    seed: int,
) -> DensityRun:
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    # In the plane the exact trace costs two products, hardly more than the estimate of it.
    flow = ContinuousFlow(
        ConcatSquashField(2, hidden_size, detail=detail),
        2,
        trace="exact",
        end=1.0,
        rtol=1e-3,
        atol=1e-3,
    )
    optimiser = torch.optim.Adam(flow.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, iterations)
    counts = []
    began = time.perf_counter()
    for _ in range(iterations):
        optimiser.zero_grad()
        result = flow(density(name, batch, generator), generator=generator)
        (-result.log_prob.mean()).backward()
        optimiser.step()
        schedule.step()
        counts.append(flow.evaluations)
    seconds = time.perf_counter() - began
    flow.eval()
    flow.rtol = flow.atol = 1e-5
    truth = density(name, 2000, generator)
    grid = torch.linspace(-3.5, 3.5, 70)
    with torch.no_grad():
        nll = -float(flow.log_prob(truth).mean())
        samples, _ = flow.sample(1500, generator=generator)
        image = flow.log_prob(torch.cartesian_prod(grid, grid)).exp().view(70, 70)
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
