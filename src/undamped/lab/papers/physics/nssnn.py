"""NSSNN on ½(q² + 1)(p² + 1): conservation of the true energy over 10,000 steps.

Both networks learn from the same pairs of states. NSSNN learns through Tao's steps; HNN learns
rates from differences of the pairs and is solved by Runge–Kutta steps of the same size. The step is
ten times that of the data: at the step of the data either method is nearly exact, and only the
learned energy matters.

    undamped reproduce nssnn --out figures/
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Unpack

import torch
from torch import Tensor

from undamped._base.options import PositiveFloat, PositiveInt
from undamped.lab.papers.physics.experiment import Goal, goal_report, scientific, train_model
from undamped.lab.papers.runs import RunOptions, experiment
from undamped.lab.report.charts import BLACK_LINE, colour, label, panels
from undamped.lab.report.table import Report
from undamped.models.physics.base import MotionModel

START = (0.0, -3.0)
MODELS = {"nssnn": "nssnn, tao", "hnn": "hnn, rk4"}
"""Both models, and their names in the figure."""


@dataclass(frozen=True)
class EnergyDrift:
    """One model with one seed.

    Args:
        model: Its name.
        seed: The seed.
        drift: Distance of the mean energy of the last tenth of the steps from that of the first.
        amplitude: Half the difference of the largest and the smallest energy.
        seconds: Duration of training.
        energy: True energy of the predicted states, (steps + 1,).
    """

    model: str
    seed: int
    drift: float
    amplitude: float
    seconds: float
    energy: Tensor


@experiment("nssnn")
def run(
    *,
    seeds: Sequence[int] = (0, 1),
    pairs: PositiveInt = 1280,
    steps: PositiveInt = 4000,
    step_size: PositiveFloat = 0.1,
    predicted: PositiveInt = 10_000,
    **options: Unpack[RunOptions],
) -> Report:
    """NSSNN beside HNN on a non-separable energy: 10,000 steps from (0, −3).

    Args:
        seeds: Seeds of weights and data.
        pairs: Pairs of states 0.01 apart, from [−4, 4]².
        steps: Updates.
        step_size: Of the predicted steps.
        predicted: Number of predicted steps.
        options: Folder and progress; see `RunOptions`.

    Example:
        >>> result = run(seeds=(0,))

    Reference:
        S. Xiong and others. Nonseparable symplectic neural networks. ICLR, 2021.
    """
    records: list[EnergyDrift] = []
    for seed, model in product(seeds, MODELS):
        records.append(_train(model, seed, pairs, steps, step_size, predicted, options["out"]))
        options["progress"](f"{model}, seed {seed}")
    nssnn, hnn = ([r for r in records if r.model == model] for model in MODELS)
    trend = max(record.drift / record.amplitude for record in nssnn)
    ratio = max(ours.drift / theirs.drift for ours, theirs in zip(nssnn, hnn, strict=True))
    goals = [
        Goal("NSSNN: drift over amplitude, worst seed (no trend)", trend, 0.1),
        Goal("NSSNN: drift over that of HNN with rk4, worst seed", ratio, 0.1),
    ]
    rows = [
        (
            f"{record.model}, seed {record.seed}",
            scientific(record.drift),
            scientific(record.amplitude),
            f"{record.seconds:.0f}",
        )
        for record in records
    ]
    note = (
        f"True energy (5 at the start) of {predicted:,} predicted steps of {step_size:g} from "
        "(0, −3); drift: mean of the last tenth minus mean of the first."
    )
    plots = {"nssnn_energy": lambda: _figure([nssnn[0], hnn[0]])}
    header = ("", "drift", "amplitude", "s")
    return goal_report(records, header, rows, goals, plots, note)


def _train(
    model: str, seed: int, pairs: int, steps: int, step_size: float, predicted: int, out: str
) -> EnergyDrift:
    options: dict[str, Any] = {"hidden_size": 64, "hidden_layers": 3, "gradient": "backprop"}
    if model == "hnn":
        options |= {"method": "rk4", "step_size": 0.01}
    trained = train_model(
        model,
        "nonseparable",
        model_options=options,
        # Both learn from pairs alone: HNN by one step of rk4, whose error is comparatively small.
        task_options={
            "form": "trajectory",
            "error": "absolute",
            "width": 4.0,
            "trajectories": pairs,
            "readings": 2,
            "span": 0.01,
            "window": 1,
            "horizon": 10.0,
            "data_seed": seed,
        },
        train={"steps": steps, "batch_size": 512, "learning_rate": 3e-3},
        seed=seed,
        out=out,
    )
    assert isinstance(trained.model, MotionModel)
    trained.model.flow.step_size = step_size
    times = step_size * torch.arange(1, predicted + 1).double()
    start = torch.tensor([START])
    with torch.no_grad():
        path = trained.model.trajectory(start, times, on_failure="return")
    states = torch.cat((start.unsqueeze(0), path)).double()[:, 0]
    energy = trained.task.system.energy(states)
    tenth = len(energy) // 10
    drift = (energy[-tenth:].mean() - energy[:tenth].mean()).abs()
    amplitude = (energy.max() - energy.min()) / 2
    drift, amplitude = (v.nan_to_num(nan=torch.inf).item() for v in (drift, amplitude))
    return EnergyDrift(model, seed, drift, amplitude, trained.seconds, energy)


def _figure(records: Sequence[EnergyDrift]) -> Any:
    figure, (axes,) = panels(7, 3.2)
    for index, record in enumerate(records):
        name = MODELS[record.model]
        axes.plot(record.energy.numpy(), color=colour(index), linewidth=0.6, label=name)
    axes.axhline(5.0, label="true", **BLACK_LINE)
    label(axes, "step", "true energy of the predicted state")
    return figure
