"""HNN beside a plain network: spring, pendulum and two bodies, as in the paper.

The noise is on states and not on rates, so that the test loss of the spring and the pendulum is at
least about 0.036 for every model: the test loss cannot distinguish the two there, and energy can.
Energies are computed along trajectories from the authors' starts, up to radius 1.4, while the data
of the spring end at radius 1. The authors' "energy" of the pendulum is q² + p², which no pendulum
conserves; it is printed beside the true one, 3(1 − cos q) + p².

    undamped reproduce hnn --out figures/
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from statistics import mean
from typing import Any, Unpack

import torch
from torch import Tensor

from undamped._base.options import NonNegativeInt, PositiveFloat, PositiveInt
from undamped.lab.papers.physics.experiment import Goal, goal_report, scientific, train_model
from undamped.lab.papers.runs import RunOptions, check_names, experiment, unique
from undamped.lab.report.charts import BLACK_LINE, colour, label, panels
from undamped.lab.report.table import Report

MODELS = ("hnn", "plain-ode")
AUTHORS: dict[str, dict[str, tuple[float, float]]] = {
    "spring": {"plain-ode": (3.67e-2, 1.71e-1), "hnn": (3.59e-2, 3.84e-4)},
    "pendulum": {"plain-ode": (3.53e-2, 4.15e-2), "hnn": (3.56e-2, 2.49e-2)},
    "two-body": {"plain-ode": (2.96e-5, 6.33e-2), "hnn": (2.82e-6, 3.88e-5)},
}
"""Test loss and energy error of the authors' README, by system and model."""
ENDS = {"spring": 50.0, "pendulum": 20.0, "two-body": 25.0}
"""The end of trajectories; those of the authors' spring end between 22 and 79."""
STARTS = 15
INNER, OUTER = 0.2, 1.0
"""Range of |q| and |p| of the authors' starts; some lie outside of the training data."""
READINGS = 30
"""Energies per unit of time."""


@dataclass(frozen=True)
class EnergyRun:
    """One model on one system with one seed.

    Args:
        system: The system.
        model: The model.
        seed: The seed.
        loss: Mean squared error of rates on the test set.
        energy: Mean squared error of the energy along trajectories of new starts.
        authors_energy: The same of q² + p², for the pendulum.
        drift: Energy of the first trajectory over time, true and predicted, (times, 2).
        seconds: Duration of training.
    """

    system: str
    model: str
    seed: int
    loss: float
    energy: float
    authors_energy: float | None
    drift: Tensor
    seconds: float


Groups = dict[tuple[str, str], list[EnergyRun]]
"""Runs that differ only in their seed, by system and model."""


@experiment("hnn")
def run(
    *,
    systems: Sequence[str] = tuple(AUTHORS),
    seeds: Sequence[int] = (0, 1, 2),
    steps: PositiveInt = 2000,
    body_steps: PositiveInt = 10_000,
    body_seeds: PositiveInt = 1,
    trajectories: PositiveInt = 800,
    hidden_size: PositiveInt = 200,
    data_seed: NonNegativeInt = 0,
    end: PositiveFloat | None = None,
    **options: Unpack[RunOptions],
) -> Report:
    """HNN beside a plain network: energy conservation of spring, pendulum, two bodies.

    Args:
        systems: Names of systems: spring, pendulum, two-body.
        seeds: Seeds of the weights.
        steps: Updates on spring and pendulum, with all data in every batch.
        body_steps: Updates on two bodies, with 200 states in a batch.
        body_seeds: Number of the seeds that two bodies are trained with.
        trajectories: Training trajectories of two bodies.
        hidden_size: Width of all networks.
        data_seed: Seed of the data.
        end: Duration of predicted trajectories; by default that of the authors.
        options: Folder and progress; see `RunOptions`.

    Example:
        >>> result = run(systems=("spring",), seeds=(0,))

    Reference:
        S. Greydanus, M. Dzamba, J. Yosinski. Hamiltonian neural networks. NeurIPS, 2019, and the
        authors' README.
    """
    check_names("system of this experiment", systems, list(AUTHORS))
    records: list[EnergyRun] = []
    for system in systems:
        bodies = system == "two-body"
        budget = {"steps": body_steps, "batch_size": 200} if bodies else {"steps": steps}
        data = {"trajectories": trajectories} if bodies else {"noise": 0.1}
        data["data_seed"] = data_seed
        for seed, model in product(seeds[:body_seeds] if bodies else seeds, MODELS):
            records.append(
                _train(model, system, seed, budget, data, hidden_size, end, options["out"])
            )
            options["progress"](f"{model} on {system}, seed {seed}")
    groups: Groups = {
        key: [record for record in records if (record.system, record.model) == key]
        for key in product(unique(systems), MODELS)
    }
    note = (
        f"Means over {len(seeds)} seed{'s' if len(seeds) > 1 else ''}. Energies along trajectories "
        f'of {STARTS} new starts; "as authors" takes q² + p² for the pendulum, which is not its '
        "energy."
    )
    return goal_report(
        records,
        ("", "test loss", "authors", "energy error", "as authors", "authors", "s"),
        [_row(system, model, group) for (system, model), group in groups.items()],
        _goals(groups),
        {"hnn_energy": lambda: _figure(groups)},
        note,
        printed=AUTHORS,
    )


def _row(system: str, model: str, runs: Sequence[EnergyRun]) -> tuple[str, ...]:
    """Return means over seeds beside the authors' numbers."""
    loss, energy = AUTHORS[system][model]
    authors = [run.authors_energy for run in runs if run.authors_energy is not None]
    ours = mean(run.energy for run in runs)
    return (
        f"{system}, {model}",
        scientific(mean(run.loss for run in runs)),
        scientific(loss),
        scientific(ours),
        scientific(mean(authors) if authors else ours),
        scientific(energy),
        f"{mean(run.seconds for run in runs):.0f}",
    )


def _goals(groups: Groups) -> list[Goal]:
    goals = []
    if springs := groups.get(("spring", "hnn")):
        pairs = zip(springs, groups["spring", "plain-ode"], strict=True)
        ratio = max(hnn.energy / baseline.energy for hnn, baseline in pairs)
        worst = max(run.energy for run in springs)
        goals.append(Goal("spring, energy error of HNN, worst seed", worst, 1e-3))
        goals.append(Goal("spring, energy error over the plain one's", ratio, 1e-2))
    if bodies := groups.get(("two-body", "hnn")):
        energy, loss = mean(run.energy for run in bodies), mean(run.loss for run in bodies)
        goals.append(Goal("two bodies, energy error of HNN", energy, 1e-4))
        goals.append(Goal("two bodies, test loss of HNN", loss, 5e-6))
    return goals


def _train(
    model: str,
    system: str,
    seed: int,
    budget: dict[str, int],
    data: dict[str, Any],
    hidden_size: int,
    end: float | None,
    out: str,
) -> EnergyRun:
    full_batch = {} if system == "two-body" else {"batch_size": 10_000, "weight_decay": 1e-4}
    trained = train_model(
        model,
        system,
        model_options={"hidden_size": hidden_size},
        task_options={"form": "derivative", "horizon": 1.0, **data},
        train={"learning_rate": 1e-3, "schedule": "constant", **full_batch, **budget},
        seed=seed,
        out=out,
    )
    task = trained.task
    starts = task.data("test")[0][:STARTS] if system == "two-body" else _random_starts(seed)
    end = ENDS[system] if end is None else end
    times = torch.linspace(0, end, int(READINGS * end) + 1).double()
    true = task.system.simulate(starts, times)
    with torch.no_grad():
        path = trained.model.trajectory(starts.float(), times, on_failure="return").double()
    predicted_energy, true_energy = task.system.energy(path), task.system.energy(true)
    authors_energy = None
    if system == "pendulum":
        authors_energy = _squared_error(path.square().sum(-1), true.square().sum(-1))
    return EnergyRun(
        system,
        model,
        seed,
        trained.result["test"]["loss"],
        _squared_error(predicted_energy, true_energy),
        authors_energy,
        torch.stack((true_energy[:, 0], predicted_energy[:, 0]), dim=1),
        trained.seconds,
    )


def _random_starts(seed: int) -> Tensor:
    """Draw starts of one position and one momentum as the authors do, (STARTS, 2)."""
    uniform = torch.rand(STARTS, 2, generator=torch.Generator().manual_seed(1000 + seed)).double()
    signed = 2 * uniform - 1
    return signed.sign() * (INNER + (OUTER - INNER) * signed.abs())


def _squared_error(predicted: Tensor, true: Tensor) -> float:
    """Return the mean squared error; infinite where a trajectory could not be followed."""
    return (predicted - true).square().nan_to_num(nan=torch.inf).mean().item()


def _figure(groups: Groups) -> Any:
    systems = unique(system for system, _ in groups)
    figure, all_axes = panels(4.2 * len(systems), 3.4, columns=len(systems))
    for axes, system in zip(all_axes, systems, strict=True):
        for index, model in enumerate(MODELS):
            drift = groups[system, model][0].drift.numpy()
            times = torch.arange(len(drift)).numpy() / READINGS
            axes.plot(times, drift[:, 1], color=colour(index), label=model)
            if index == 0:
                axes.plot(times, drift[:, 0], label="true", **BLACK_LINE)
        label(axes, "time", "true energy of the predicted state", system)
    return figure
