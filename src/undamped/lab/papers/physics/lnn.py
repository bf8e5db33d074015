"""LNN beside a plain network on a double pendulum: energy conservation.

Both learn from states of any angle and of speeds up to 10, with their accelerations, as in the
authors' notebooks; then both predict ten units of time from starts at rest, and the true energy at
the end is compared with that at the start. The authors learn from 10⁸ states with 3 × 600, compare
at time 100, and select a seed whose trajectories are finite; here every seed counts.

    undamped reproduce lnn --out figures/
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import mean
from typing import Any, Unpack

import torch
from torch import Tensor

from undamped._base.options import PositiveFloat, PositiveInt
from undamped.lab.papers.physics.experiment import Goal, goal_report, scientific, train_model
from undamped.lab.papers.runs import RunOptions, experiment
from undamped.lab.report.charts import colour, label, panels
from undamped.lab.report.table import Report
from undamped.lab.tasks.physics.pendulum import DoublePendulumSystem

MODELS: dict[str, dict[str, Any]] = {
    "lnn": {"activation": "silu", "speed": 6.0, "masses": "learned"},
    "plain-ode": {"second_order": True, "angles": "embedded", "activation": "silu"},
}
RATES = {"lnn": 3e-3, "plain-ode": 1e-2}
"""Learning rates; of 3e-3 and 1e-2 the one with the lower validation loss."""
SPEED = 10.0
"""The largest angular velocity in training, as in the paper."""
AUTHORS = {"lnn": 4.3e-3, "plain-ode": 8.0e-2}
"""The authors' energy error at time 100, as a fraction of the largest potential energy."""
SCALE = 3 * 9.8
"""Potential energy of both links upright, relative to horizontal ones."""
STARTS = 40
READINGS = 10
"""Energies per unit of time."""


@dataclass(frozen=True)
class EnergyErrors:
    """One model with one seed.

    Args:
        model: Its name.
        seed: The seed.
        loss: Mean absolute error of rates on the test set.
        energy: Mean error of the energy at the end, as a fraction of the largest potential energy.
        finite: Whether every trajectory was finite.
        drift: Mean error of the energy over time, (times,).
        seconds: Duration of training.
    """

    model: str
    seed: int
    loss: float
    energy: float
    finite: bool
    drift: tuple[float, ...]
    seconds: float


@experiment("lnn")
def run(
    *,
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4),
    steps: PositiveInt = 3000,
    states: PositiveInt = 100_000,
    hidden_size: PositiveInt = 64,
    hidden_layers: PositiveInt = 3,
    end: PositiveFloat = 10.0,
    **options: Unpack[RunOptions],
) -> Report:
    """LNN beside a plain network on a double pendulum: energy conservation.

    Args:
        seeds: Seeds of the weights.
        steps: Updates of 256 states each.
        states: Training states, in pairs a hundredth of a unit of time apart.
        hidden_size: Width of both networks.
        hidden_layers: Their hidden layers.
        end: The time at which energies are compared.
        options: Folder and progress; see `RunOptions`.

    Example:
        >>> result = run(seeds=(0,), steps=500)

    Reference:
        M. Cranmer, S. Greydanus, S. Hoyer, P. Battaglia, D. Spergel, S. Ho. Lagrangian neural
        networks. ICLR workshop, 2020, and the authors' notebooks.
    """
    size = {"hidden_size": hidden_size, "hidden_layers": hidden_layers}
    groups: dict[str, list[EnergyErrors]] = {name: [] for name in MODELS}
    for name, group in groups.items():
        for seed in seeds:
            group.append(_train(name, seed, steps, states, size, end, options["out"]))
            options["progress"](f"{name}, seed {seed}")
    training = "Adam, cosine, L1, 256 states a batch"
    settings = {"starts": STARTS, "rates": RATES, "training": training}
    energies = {name: mean(r.energy for r in group) for name, group in groups.items()}
    failed = sum(not record.finite for record in groups["lnn"])
    ratio = energies["lnn"] / energies["plain-ode"]
    goals = [
        Goal(f"seeds of {len(seeds)} with a NaN", float(failed), 0.0),
        Goal("energy error at the end over the plain network's", ratio, 0.2),
    ]
    rows = [
        (
            name,
            scientific(mean(record.loss for record in group)),
            scientific(energies[name]),
            scientific(max(record.energy for record in group)),
            scientific(AUTHORS[name]),
            f"{mean(record.seconds for record in group):.0f}",
        )
        for name, group in groups.items()
    ]
    records = [record for group in groups.values() for record in group]
    header = ("", "test loss", "energy error", "worst seed", "authors, at time 100", "s")
    plots = {"lnn_energy": lambda: _figure(groups)}
    return goal_report(records, header, rows, goals, plots, printed=AUTHORS, settings=settings)


def _train(
    model: str, seed: int, steps: int, states: int, size: dict[str, Any], end: float, out: str
) -> EnergyErrors:
    trained = train_model(
        model,
        "double-pendulum",
        model_options={**size, **MODELS[model]},
        task_options={
            "form": "derivative",
            "partners": "velocities",
            "error": "absolute",
            "swing": math.pi,
            "speed": SPEED,
            "trajectories": max(1, states // 2),
            "readings": 2,
            "span": 0.01,
            "horizon": 1.0,
        },
        train={
            "steps": steps,
            "batch_size": 256,
            "learning_rate": RATES[model],
            "schedule": "cosine",
            "validate_every": max(1, steps // 20),
        },
        seed=seed,
        out=out,
    )
    system, network = trained.task.system, trained.model.double()
    starts = DoublePendulumSystem().starts(STARTS, torch.Generator().manual_seed(STARTS))
    times = torch.linspace(0, end, round(end * READINGS) + 1).double()
    with torch.no_grad():
        path = network.trajectory(starts, times, on_failure="return")
    drift = _drift(system.energy(path))
    return EnergyErrors(
        model,
        seed,
        trained.result["test"]["loss"],
        drift[-1],
        bool(path.isfinite().all()),
        tuple(drift),
        trained.seconds,
    )


def _drift(energy: Tensor) -> list[float]:
    """Return the mean error at every time; infinite where a trajectory could not be followed."""
    error = (energy - energy[:1]).abs().nan_to_num(nan=torch.inf) / SCALE
    return error.mean(1).tolist()


def _figure(groups: dict[str, list[EnergyErrors]]) -> Any:
    figure, (axes,) = panels(6, 3.2)
    for index, (name, group) in enumerate(groups.items()):
        for number, record in enumerate(group):
            times = [k / READINGS for k in range(1, len(record.drift))]
            legend = name if number == 0 else None
            axes.plot(times, record.drift[1:], color=colour(index), alpha=0.7, label=legend)
    label(axes, "time", "error of the energy", log="y")
    return figure
