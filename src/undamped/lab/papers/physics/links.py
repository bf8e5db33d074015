"""A pendulum of two links: the value of structure, in the protocol of the CHNN paper.

Every model learns from 800 windows of five readings 0.03 apart, and predicts three units of time
from new starts. Errors are |a − b| / |a + b| in the plane, positions and velocities together, and
their geometric mean over times and trajectories, as in the paper.

    undamped reproduce links --out figures/
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any, Unpack

import torch
from torch import Tensor

from undamped._base.options import PositiveInt
from undamped.lab.papers.physics.experiment import Goal, goal_report, scientific, train_model
from undamped.lab.papers.runs import RunOptions, check_names, experiment, unique
from undamped.lab.report.charts import BLACK_LINE, colour, label, panels
from undamped.lab.report.table import Report
from undamped.lab.tasks.physics.links import plane_of

STEP = 0.03
MODELS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "NODE": ("plain-ode", {"angles": "embedded", "activation": "silu"}, {}),
    "HNN with masses": ("symoden", {"activation": "silu"}, {}),
    "DeLaN": ("delan", {"activation": "silu"}, {}),
    "CHNN": ("chnn", {}, {"coordinates": "plane"}),
}
"""By the name in the paper: model, its options, and options of the task."""
RATES = {"NODE": 1e-2, "HNN with masses": 1e-2, "DeLaN": 1e-2, "CHNN": 3e-3}
"""Learning rates. With tanh and 3e-3, the authors' choice for 8,000 updates, NODE and DeLaN have
three times the validation error after a few hundred updates."""
AUTHORS: dict[int, dict[str, float]] = {
    1: {"NODE": 3.8e-4, "HNN with masses": 1.2e-4, "DeLaN": 2.5e-4, "CHNN": 6.1e-5},
    2: {"NODE": 6.5e-2, "HNN with masses": 1.9e-3, "DeLaN": 1.3e-3, "CHNN": 1.2e-4},
    3: {"NODE": 0.27, "HNN with masses": 4.7e-2, "DeLaN": 4.1e-2, "CHNN": 3.4e-4},
}
"""Errors of the authors' table, with networks of 3 × 256, by links and model."""
GOAL = 5e-3


@dataclass(frozen=True)
class LinkErrors:
    """One model with one seed.

    Args:
        model: Its name in the paper.
        seed: The seed.
        error: Geometric mean of relative errors over three units of time.
        curve: The same at every time, (times,).
        parameters: Number of parameters.
        seconds: Duration of training.
    """

    model: str
    seed: int
    error: float
    curve: tuple[float, ...]
    parameters: int
    seconds: float


@experiment("links")
def run(
    *,
    models: Sequence[str] = tuple(MODELS),
    links: PositiveInt = 2,
    seeds: tuple[int, ...] = (0,),
    steps: PositiveInt = 8000,
    windows: PositiveInt = 800,
    hidden_size: PositiveInt = 64,
    hidden_layers: PositiveInt = 3,
    **options: Unpack[RunOptions],
) -> Report:
    """A pendulum of two links: NODE, HNN with masses, DeLaN and CHNN in the protocol of CHNN.

    Args:
        models: Names of models: NODE, HNN with masses, DeLaN, CHNN.
        links: Number of links.
        seeds: Seeds of the weights.
        steps: Updates of 200 windows each, as many as in the paper; all four models take half an
            hour on one core.
        windows: Training windows of five readings.
        hidden_size: Width of all networks; the authors have 256.
        hidden_layers: Their hidden layers.
        options: Folder and progress; see `RunOptions`.

    Example:
        >>> result = run(models=("DeLaN", "CHNN"), steps=1000)

    Reference:
        M. Finzi, K. A. Wang, A. G. Wilson. Simplifying Hamiltonian and Lagrangian neural networks
        via explicit constraints. NeurIPS, 2020, and the authors' tables.
    """
    check_names("model of this experiment", models, list(MODELS))
    size = {"hidden_size": hidden_size, "hidden_layers": hidden_layers}
    records: list[LinkErrors] = []
    for model in models:
        for seed in seeds:
            records.append(_train(model, links, seed, steps, windows, size, options["out"]))
            options["progress"](f"{model}, seed {seed}")
    settings = {
        "data": "windows of 5 readings 0.03 apart",
        "rates": RATES,
        "training": "Adam, cosine, 200 windows a batch, L1, RK4 with steps of 0.03",
    }
    groups = {name: [r for r in records if r.model == name] for name in unique(models)}
    errors = {name: geometric_mean(r.error for r in group) for name, group in groups.items()}
    authors = AUTHORS.get(links, {})
    rows = [
        (
            name,
            f"{group[0].parameters:,}",
            scientific(errors[name]),
            scientific(authors.get(name)),
            f"{sum(r.seconds for r in group) / len(group):.0f}",
        )
        for name, group in groups.items()
    ]
    header = ("", "parameters", "relative error", "authors, 3 × 256", "s")
    goals = _goals(errors) if links == 2 else []
    plots = {"links_errors": lambda: _figure(groups)}
    return goal_report(records, header, rows, goals, plots, printed=authors, settings=settings)


def _goals(errors: dict[str, float]) -> list[Goal]:
    structured = [name for name in errors if name != "NODE"]
    goals = [Goal(f"error of {name}", errors[name], GOAL) for name in structured]
    if "NODE" in errors:
        ratios = {name: errors[name] / errors["NODE"] for name in structured}
        goals += [Goal(f"error of {name} over NODE's", r, 0.1) for name, r in ratios.items()]
    return goals


def _train(
    model: str, links: int, seed: int, steps: int, windows: int, size: dict[str, Any], out: str
) -> LinkErrors:
    name, model_options, task_options = MODELS[model]
    solver = {"method": "rk4", "step_size": STEP, "gradient": "backprop"}
    trained = train_model(
        name,
        "links",
        model_options={**size, **model_options, **solver},
        task_options={
            "links": links,
            "trajectories": windows,
            "form": "trajectory",
            "error": "absolute",
            "horizon": 1.0,
            **task_options,
        },
        train={
            "steps": steps,
            "batch_size": min(200, windows),
            "learning_rate": RATES[model],
            "schedule": "cosine",
            "validate_every": max(1, steps // 20),
        },
        seed=seed,
        out=out,
    )
    task, network = trained.task, trained.model.double()
    starts = task.data("test")[0][:100]
    times = STEP * torch.arange(1, 101).double()
    true = task.system.simulate(starts, torch.cat((torch.zeros(1).double(), times)))[1:]
    network.flow.method, network.flow.step_size = "dopri5", None  # type: ignore[union-attr]
    network.flow.rtol = network.flow.atol = 1e-7  # type: ignore[union-attr]
    with torch.no_grad():
        path = network.trajectory(starts, times, on_failure="return")
    if not task_options:
        path, true = plane_of(path), plane_of(true)
    errors = _relative_error(path, true)
    return LinkErrors(
        model,
        seed,
        errors.log().mean().exp().item(),
        tuple(errors.log().mean(1).exp().tolist()),
        sum(p.numel() for p in network.parameters()),
        trained.seconds,
    )


def _relative_error(predicted: Tensor, true: Tensor) -> Tensor:
    """Return |a − b| / |a + b|, (times, batch); 1 where a trajectory could not be followed."""
    error = (predicted - true).norm(dim=-1) / (predicted + true).norm(dim=-1)
    return error.nan_to_num(nan=1.0, posinf=1.0) + 1e-8


def _figure(groups: dict[str, list[LinkErrors]]) -> Any:
    figure, (axes,) = panels(6, 3.4)
    for index, (name, group) in enumerate(groups.items()):
        curves = torch.tensor([record.curve for record in group], dtype=torch.float64)
        mean = curves.log().mean(0).exp().numpy()
        times = STEP * torch.arange(1, len(mean) + 1).numpy()
        axes.plot(times, mean, color=colour(index), label=name)
    axes.axvline(4 * STEP, **BLACK_LINE)
    label(axes, "time; training windows end at the dotted line", "relative error", log="y")
    return figure
