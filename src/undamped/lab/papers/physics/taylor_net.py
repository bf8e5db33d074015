"""Taylor-net from a small number of pairs of states: pendulum and Hénon–Heiles.

The loss is the mean absolute error of the state 0.01 later. The error of a constant state is
printed beside it; the energy over a thousand steps shows the quality of the step.

    undamped reproduce taylor-net --out figures/
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from statistics import mean
from typing import Any, Unpack

import torch
from torch import Tensor

from undamped._base.options import PositiveInt
from undamped.lab.papers.physics.experiment import Goal, goal_report, scientific, train_model
from undamped.lab.papers.runs import RunOptions, check_names, experiment, unique
from undamped.lab.report.charts import colour, label, panels
from undamped.lab.report.table import Report

AUTHORS = {"pendulum": 1.39e-4, "henon-heiles": 9.44e-6}
LIMITS = {"pendulum": 2e-4, "henon-heiles": 2e-5}
SYSTEMS: dict[str, dict[str, Any]] = {
    "pendulum": {"kinetic": 0.5, "gravity": 1.0},
    "henon-heiles": {},
}
STEP = 0.01


@dataclass(frozen=True)
class StepErrors:
    """One system with one seed.

    Args:
        system: The system.
        seed: The seed.
        loss: Mean absolute error of the next state, on new pairs.
        constant: The same for a state that does not change.
        energy: Largest error of the true energy over a thousand steps, relative to its standard
            deviation; infinite where a trajectory could not be followed.
        path: Energies of a few new starts over time, (times, starts).
        seconds: Duration of training.
    """

    system: str
    seed: int
    loss: float
    constant: float
    energy: float
    path: Tensor
    seconds: float


@experiment("taylor-net")
def run(
    *,
    systems: Sequence[str] = tuple(SYSTEMS),
    seeds: Sequence[int] = (0, 1, 2),
    pairs: PositiveInt = 25,
    steps: PositiveInt = 2000,
    later: PositiveInt = 1000,
    **options: Unpack[RunOptions],
) -> Report:
    """Taylor-net from a small number of pairs: pendulum and Hénon–Heiles.

    Args:
        systems: Names of systems: pendulum, henon-heiles.
        seeds: Seeds of weights and data.
        pairs: Training pairs of states 0.01 apart.
        steps: Updates, with all pairs in every batch.
        later: Number of predicted steps over which energies are compared.
        options: Folder and progress; see `RunOptions`.

    Example:
        >>> result = run(systems=("pendulum",), seeds=(0,))

    Reference:
        Y. Tong and others. Symplectic neural networks in Taylor series form for Hamiltonian
        systems. Journal of Computational Physics, 2021.
    """
    check_names("system of this experiment", systems, list(SYSTEMS))
    records: list[StepErrors] = []
    for name, seed in product(systems, seeds):
        records.append(_train(name, seed, pairs, steps, later, options["out"]))
        options["progress"](f"{name}, seed {seed}")
    groups = {name: [r for r in records if r.system == name] for name in unique(systems)}
    losses = {name: mean(record.loss for record in group) for name, group in groups.items()}
    rows = [
        (
            name,
            scientific(losses[name]),
            scientific(AUTHORS[name]),
            scientific(group[0].constant),
            scientific(max(record.energy for record in group)),
            f"{mean(record.seconds for record in group):.0f}",
        )
        for name, group in groups.items()
    ]
    return goal_report(
        records,
        ("", "test error", "authors", "constant state", f"energy error, {later} steps", "s"),
        rows,
        [Goal(f"{name}, test error", loss, LIMITS[name]) for name, loss in losses.items()],
        {"taylor_net_energy": lambda: _figure({n: group[0].path for n, group in groups.items()})},
        printed=AUTHORS,
    )


def _train(name: str, seed: int, pairs: int, steps: int, later: int, out: str) -> StepErrors:
    data = {"readings": 2, "span": STEP, "window": 1, "horizon": 100.0, "data_seed": seed}
    trained = train_model(
        "taylor-net",
        name,
        model_options={"step_size": STEP},
        task_options={**SYSTEMS[name], "trajectories": pairs, **data},
        train={"steps": steps, "batch_size": pairs, "learning_rate": 3e-3},
        seed=seed,
        out=out,
    )
    # More new pairs than the test set of the task has, for a precise mean.
    system = trained.task.system
    starts = system.starts(1000, torch.Generator().manual_seed(1000 + seed))
    times = STEP * torch.arange(later + 1).double()
    true = system.simulate(starts, times[:2])[1]
    with torch.no_grad():
        predicted = trained.model.trajectory(starts.float(), [STEP])[0].double()
        path = trained.model.trajectory(starts[:8].float(), times, on_failure="return").double()
    energy = system.energy(path)
    deviation = system.energy(starts).std()
    return StepErrors(
        name,
        seed,
        (predicted - true).abs().mean().item(),
        (starts - true).abs().mean().item(),
        ((energy - energy[:1]).abs().nan_to_num(nan=torch.inf).max() / deviation).item(),
        energy,
        trained.seconds,
    )


def _figure(energies: dict[str, Tensor]) -> Any:
    figure, all_axes = panels(4.2 * len(energies), 3.2, columns=len(energies))
    for axes, (name, paths) in zip(all_axes, energies.items(), strict=True):
        times = STEP * torch.arange(len(paths)).numpy()
        for k in range(paths.shape[1]):
            axes.plot(times, paths[:, k].numpy(), color=colour(k))
        label(axes, "time", "true energy of the predicted state", name)
    return figure
