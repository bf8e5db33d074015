"""HBNODE beside NODE, ANODE and SONODE on annuli: accuracy, evaluations, seconds.

The annuli are the function a flow in their own space cannot represent; how many evaluations the
attempt costs, and how that grows while training, is what the heavy ball is about.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.registry import experiments, models
from undamped.lab.tasks.continuous_data import annuli

CONTESTANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "NODE": ("node", {}),
    "ANODE": ("node", {"augmented_size": 2}),
    "SONODE": ("sonode", {}),
    "HBNODE": ("hbnode", {}),
    "GHBNODE": ("ghbnode", {}),
}
COLOURS = {
    "NODE": "#D55E00",
    "ANODE": "#E69F00",
    "SONODE": "#009E73",
    "HBNODE": "#0072B2",
    "GHBNODE": "#56B4E9",
}


@dataclass(frozen=True)
class AnnuliRun:
    """One model, one seed.

    Args:
        model: Its name.
        seed: Its seed.
        parameters: Trained numbers.
        accuracy: On fresh points, at the end.
        forward: Mean evaluations of a forward pass, for every epoch.
        backward: And of a backward pass.
        loss: Mean training loss, for every epoch.
        seconds: Of training.
        paths: Trajectories of some test points, (times, points, 2), and their classes.
    """

    model: str
    seed: int
    parameters: int
    accuracy: float
    forward: tuple[float, ...]
    backward: tuple[float, ...]
    loss: tuple[float, ...]
    seconds: float
    paths: tuple[Tensor, Tensor]


@dataclass(frozen=True)
class AnnuliResult:
    """All runs, with the settings that made them."""

    runs: tuple[AnnuliRun, ...]
    settings: dict[str, Any]

    def of(self, model: str) -> list[AnnuliRun]:
        """Return the runs of a model."""
        return [run for run in self.runs if run.model == model]

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the trajectories for JSON."""
        rows = [{k: v for k, v in vars(run).items() if k != "paths"} for run in self.runs]
        return {"settings": self.settings, "runs": rows}

    def markdown(self) -> str:
        """Return a table: means over seeds, evaluations of the last epoch."""
        lines = [
            "| model | parameters | test accuracy % | worst seed % | forward NFE | backward NFE "
            "| s |",
            "|---|---|---|---|---|---|---|",
        ]
        for name in dict.fromkeys(run.model for run in self.runs):
            runs = self.of(name)
            lines.append(
                f"| {name} | {runs[0].parameters} | {100 * mean(r.accuracy for r in runs):.1f} | "
                f"{100 * min(r.accuracy for r in runs):.1f} | "
                f"{mean(r.forward[-1] for r in runs):.0f} | "
                f"{mean(r.backward[-1] for r in runs):.0f} | "
                f"{mean(r.seconds for r in runs):.0f} |"
            )
        return "\n".join(lines)

    def figures(self) -> dict[str, Any]:
        """Return pictures: evaluations over training, and flows as trajectories."""
        from matplotlib.figure import Figure

        growth = Figure(figsize=(8, 3.2), layout="constrained")
        left, right = growth.subplots(1, 2)
        flows = Figure(figsize=(9, 2.2), layout="constrained")
        names = list(dict.fromkeys(run.model for run in self.runs))
        panels = flows.subplots(1, len(names), squeeze=False)[0]
        for name, panel in zip(names, panels, strict=True):
            runs = self.of(name)
            for axis, which in ((left, "forward"), (right, "backward")):
                curves = torch.tensor([getattr(run, which) for run in runs], dtype=torch.float64)
                axis.plot(curves.mean(0).numpy(), color=COLOURS[name], label=name)
                axis.set_xlabel("epoch")
                axis.set_ylabel(f"{which} evaluations")
            path, label = (part.numpy() for part in runs[0].paths)
            for k in range(path.shape[1]):
                colour = "#0072B2" if label[k] else "#D55E00"
                panel.plot(path[:, k, 0], path[:, k, 1], color=colour, linewidth=0.5, alpha=0.7)
                panel.plot(path[-1, k, 0], path[-1, k, 1], ".", color=colour, markersize=3)
            panel.set_title(f"{name}, {100 * runs[0].accuracy:.0f} %", fontsize=8)
            panel.set_xticks([])
            panel.set_yticks([])
        left.legend(fontsize=7)
        return {"annuli_evaluations": growth, "annuli_flows": flows}


@experiments.register("annuli")
def run(
    *,
    epochs: int = 60,
    seeds: tuple[int, ...] = (0, 1),
    dimension: int = 2,
    points: int = 512,
    hidden_size: int = 16,
    tick: Callable[[str], None] | None = None,
) -> AnnuliResult:
    """HBNODE beside NODE, ANODE and SONODE on annuli: accuracy, evaluations, seconds.

    Args:
        epochs: Budget: passes over the training points.
        seeds: Seeds of data and models.
        dimension: Of the annuli.
        points: Training points; as many test points.
        hidden_size: Width of every field.
        tick: Called with a name after every training.

    Example:
        >>> result = run(epochs=60)

    Reference:
        H. Xia and others. Heavy ball neural ordinary differential equations. NeurIPS, 2021.
    """
    settings = {
        "epochs": epochs,
        "seeds": list(seeds),
        "dimension": dimension,
        "points": points,
        "hidden_size": hidden_size,
        "batch": 128,
        "optimiser": "Adam, 5e-3",
        "solver": "dopri5, tolerance 1e-3, gradient adjoint",
    }
    runs = []
    for name in CONTESTANTS:
        for seed in seeds:
            runs.append(_train(name, seed, epochs, dimension, points, hidden_size))
            if tick is not None:
                tick(f"{name} seed {seed}")
    return AnnuliResult(tuple(runs), settings)


def _train(
    name: str, seed: int, epochs: int, dimension: int, points: int, hidden_size: int
) -> AnnuliRun:
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    x, y = annuli(points, dimension, generator)
    registered, options = CONTESTANTS[name]
    # The adjoint, because its evaluations backwards are what the paper counts.
    model = models.build(
        registered,
        input_size=dimension,
        output_size=2,
        hidden_size=hidden_size,
        gradient="adjoint",
        **options,
    )
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    forward, backward, losses = [], [], []
    began = time.perf_counter()
    for _ in range(epochs):
        order = torch.randperm(points, generator=generator)
        counts = []
        for batch in order.split(128):
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            loss.backward()
            optimiser.step()
            counts.append((model.evaluations, model.evaluations_backward, float(loss.detach())))
        forward.append(mean(c[0] for c in counts))
        backward.append(mean(c[1] for c in counts))
        losses.append(mean(c[2] for c in counts))
    seconds = time.perf_counter() - began
    fresh, label = annuli(points, dimension, generator)
    with torch.no_grad():
        accuracy = float((model(fresh).argmax(1) == label).float().mean())
        path = model.flow.trajectory(model.start(fresh[:60]), [k / 20 for k in range(21)])
    return AnnuliRun(
        model=name,
        seed=seed,
        parameters=sum(p.numel() for p in model.parameters()),
        accuracy=accuracy,
        forward=tuple(forward),
        backward=tuple(backward),
        loss=tuple(losses),
        seconds=seconds,
        paths=(path[..., :2], label[:60]),
    )
