"""HBNODE beside NODE, ANODE and SONODE on annuli: accuracy, evaluations, seconds.

A flow in the plane cannot represent the function that separates annuli. How many evaluations the
attempt costs, and how that number grows during training, is what the heavy ball improves.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.registry import models
from undamped.lab.papers.runs import experiment, unique
from undamped.lab.report.charts import label, panels
from undamped.lab.report.table import Progress, Report, Table, silent
from undamped.lab.tasks.points import annuli

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
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
    """One model with one seed.

    Args:
        model: Its name.
        seed: Its seed.
        parameters: Number of parameters.
        accuracy: On new points, after training.
        forward: Mean evaluations of a forward pass, for every epoch.
        backward: Mean evaluations of a backward pass, for every epoch.
        loss: Mean training loss, for every epoch.
        seconds: Duration of training.
        paths: Trajectories of some test points, (times, points, 2).
        labels: The classes of these points.
    """

    model: str
    seed: int
    parameters: int
    accuracy: float
    forward: tuple[float, ...]
    backward: tuple[float, ...]
    loss: tuple[float, ...]
    seconds: float
    paths: Tensor
    labels: Tensor


@experiment("annuli")
def run(
    *,
    epochs: int = 60,
    seeds: tuple[int, ...] = (0, 1),
    dimension: int = 2,
    points: int = 512,
    hidden_size: int = 16,
    progress: Progress = silent,
) -> Report:
    """HBNODE beside NODE, ANODE and SONODE on annuli: accuracy, evaluations, seconds.

    Args:
        epochs: Passes over the training points.
        seeds: Seeds of data and models.
        dimension: Dimension of the annuli.
        points: Number of training points, and of test points.
        hidden_size: Width of every field.
        progress: Called with a name after every training.

    Example:
        >>> result = run(epochs=60)

    Reference:
        H. Xia and others. Heavy ball neural ordinary differential equations. NeurIPS, 2021.
    """
    settings = {
        "batch": 128,
        "optimiser": "Adam, 5e-3",
        "solver": "dopri5, tolerance 1e-3, gradient adjoint",
    }
    runs = []
    for name in MODELS:
        for seed in seeds:
            runs.append(_train(name, seed, epochs, dimension, points, hidden_size))
            progress(f"{name} seed {seed}")
    header = ("model", "parameters", "test accuracy %", "worst seed %", "forward NFE")
    return Report(
        runs,
        [Table((*header, "backward NFE", "s"), [_row(group) for group in _groups(runs).values()])],
        {
            "annuli_evaluations": lambda: _evaluations(_groups(runs)),
            "annuli_flows": lambda: _flows(_groups(runs)),
        },
        settings=settings,
    )


def _groups(runs: Sequence[AnnuliRun]) -> dict[str, list[AnnuliRun]]:
    return {n: [run for run in runs if run.model == n] for n in unique(run.model for run in runs)}


def _row(runs: Sequence[AnnuliRun]) -> tuple[str, ...]:
    """Return means over seeds, with the evaluations of the last epoch."""
    return (
        runs[0].model,
        str(runs[0].parameters),
        f"{100 * mean(run.accuracy for run in runs):.1f}",
        f"{100 * min(run.accuracy for run in runs):.1f}",
        f"{mean(run.forward[-1] for run in runs):.0f}",
        f"{mean(run.backward[-1] for run in runs):.0f}",
        f"{mean(run.seconds for run in runs):.0f}",
    )


def _train(
    name: str, seed: int, epochs: int, dimension: int, points: int, hidden_size: int
) -> AnnuliRun:
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    x, y = annuli(points, dimension, generator)
    registry_name, options = MODELS[name]
    # The adjoint, because the paper counts its backward evaluations.
    model = models.build(
        registry_name,
        input_size=dimension,
        output_size=2,
        hidden_size=hidden_size,
        gradient="adjoint",
        **options,
    )
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    epoch_means = []
    start = time.perf_counter()
    for _ in range(epochs):
        order = torch.randperm(points, generator=generator)
        batches = ((x[batch], y[batch]) for batch in order.split(128))
        epoch_means.append(train_epoch(model, optimiser, batches))
    seconds = time.perf_counter() - start
    forward, backward, losses = zip(*epoch_means, strict=True)
    test_points, labels = annuli(points, dimension, generator)
    with torch.no_grad():
        accuracy = float((model(test_points).argmax(1) == labels).float().mean())
        path = model.flow.trajectory(model.start(test_points[:60]), [k / 20 for k in range(21)])
    return AnnuliRun(
        model=name,
        seed=seed,
        parameters=sum(p.numel() for p in model.parameters()),
        accuracy=accuracy,
        forward=forward,
        backward=backward,
        loss=losses,
        seconds=seconds,
        paths=path[..., :2],
        labels=labels[:60],
    )


def train_epoch(
    model: Any, optimiser: torch.optim.Optimizer, batches: Iterable[tuple[Tensor, Tensor]]
) -> tuple[float, ...]:
    """Train on batches; return mean evaluations, forward and backward, and the mean loss."""
    counts = []
    for inputs, targets in batches:
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimiser.step()
        counts.append((model.evaluations, model.evaluations_backward, float(loss.detach())))
    return tuple(mean(column) for column in zip(*counts, strict=True))


def _evaluations(groups: dict[str, list[AnnuliRun]]) -> Any:
    figure, both = panels(8, 3.2, columns=2)
    for axes, direction in zip(both, ("forward", "backward"), strict=True):
        for name, runs in groups.items():
            curves = torch.tensor([getattr(run, direction) for run in runs], dtype=torch.float64)
            axes.plot(curves.mean(0).numpy(), color=COLOURS[name], label=name)
        label(axes, "epoch", f"{direction} evaluations", legend=direction == "forward")
    return figure


def _flows(groups: dict[str, list[AnnuliRun]]) -> Any:
    figure, all_axes = panels(9, 2.2, columns=len(groups))
    for axes, (name, (run, *_)) in zip(all_axes, groups.items(), strict=True):
        paths, labels = run.paths.numpy(), run.labels.numpy()
        for k in range(paths.shape[1]):
            class_colour = "#0072B2" if labels[k] else "#D55E00"
            axes.plot(*paths[:, k].T, color=class_colour, linewidth=0.5, alpha=0.7)
            axes.plot(*paths[-1, k], ".", color=class_colour, markersize=3)
        label(axes, title=f"{name}, {100 * run.accuracy:.0f} %")
        axes.set_xticks([])
        axes.set_yticks([])
    return figure
