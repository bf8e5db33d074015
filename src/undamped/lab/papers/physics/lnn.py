"""LNN beside a plain network on a double pendulum: does the energy stay?

States of any angle and of speeds up to 10, with their accelerations, teach both, as in the authors'
notebooks; then both are followed for ten units of time from starts at rest, and the true energy at
the end is compared with that at the start. The authors learn from 10⁸ states with 3 × 600, look at
time 100, and choose a seed that did not end in infinities; here every seed counts.

    undamped reproduce lnn --out pictures/
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from undamped._base.options import PositiveFloat, PositiveInt
from undamped._base.registry import experiments
from undamped.lab.papers.physics.goals import Goal, short, table
from undamped.lab.papers.physics.trained import trained
from undamped.lab.tasks.physics.double_pendulum import DoublePendulumSystem

MODELS: dict[str, dict[str, Any]] = {
    "lnn": {"activation": "silu", "speed": 6.0, "masses": "learned"},
    "plain-ode": {"second_order": True, "angles": "embedded", "activation": "silu"},
}
RATES = {"lnn": 3e-3, "plain-ode": 1e-2}
"""Learning rates; of 3e-3 and 1e-2 the one with the lower loss in validation."""
SPEED = 10.0
"""The largest rate of an angle in training, as the authors have it."""
PRINTED = {"lnn": 4.3e-3, "plain-ode": 8.0e-2}
"""The authors' energy error at time 100, as a share of the largest potential energy."""
SCALE = 3 * 9.8
"""Potential energy of both links upright, where level ones have none."""
STARTS = 40
READINGS = 10
"""States a unit of time that energies are looked at."""


@dataclass(frozen=True)
class Outcome:
    """One model from one seed.

    Args:
        model: Its name.
        seed: The seed.
        loss: Mean absolute error of rates on the test part.
        energy: Mean error of the energy at the end, as a share of the largest potential energy.
        finite: Whether every loss and every trajectory was finite.
        drift: Mean error of the energy over time, (times,).
        seconds: Of training.
    """

    model: str
    seed: int
    loss: float
    energy: float
    finite: bool
    drift: tuple[float, ...]
    seconds: float


@dataclass(frozen=True)
class LNNExperiment:
    """Both models, all seeds."""

    settings: dict[str, Any]
    outcomes: tuple[Outcome, ...]

    def of(self, model: str) -> list[Outcome]:
        """Return what a model did, seed by seed."""
        return [one for one in self.outcomes if one.model == model]

    @property
    def goals(self) -> list[Goal]:
        """What was to be reached."""
        ours, plain = (self.of(model) for model in MODELS)
        lost = sum(not one.finite for one in ours)
        ratio = mean(one.energy for one in ours) / mean(one.energy for one in plain)
        return [
            Goal(f"seeds of {len(ours)} with a NaN", float(lost), 0.0),
            Goal("energy error at the end over the plain network's", ratio, 0.2),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            "settings": self.settings,
            "outcomes": [vars(one) for one in self.outcomes],
            "printed": PRINTED,
            "goals": [goal.to_dict() for goal in self.goals],
        }

    def markdown(self) -> str:
        """Return the table beside the authors' numbers, and what was to be reached."""
        rows = []
        for model in MODELS:
            runs = self.of(model)
            worst = max(one.energy for one in runs)
            rows.append(
                (model, short(mean(r.loss for r in runs)), short(mean(r.energy for r in runs)),
                 short(worst), short(PRINTED[model]), f"{mean(r.seconds for r in runs):.0f}")
            )  # fmt: skip
        heads = ("", "test loss", "energy error", "worst seed", "authors, at time 100", "s")
        return "\n\n".join([table(heads, rows), "\n".join(g.line() for g in self.goals)])

    def figures(self) -> dict[str, Any]:
        """Return a picture: the error of the energy over time, a line a seed."""
        from matplotlib.figure import Figure

        from undamped.analysis.core.figures import PALETTE

        figure = Figure(figsize=(6, 3.2), layout="constrained")
        axis = figure.subplots()
        for colour, model in zip(PALETTE, MODELS, strict=False):
            for number, one in enumerate(self.of(model)):
                times = torch.arange(len(one.drift)).numpy() / READINGS
                label = model if number == 0 else None
                axis.plot(times[1:], one.drift[1:], color=colour, alpha=0.7, label=label)
        axis.set_yscale("log")
        axis.set_xlabel("time")
        axis.set_ylabel("error of the energy")
        axis.legend(fontsize=8)
        return {"lnn_energy": figure}


@experiments.register("lnn")
def run(
    *,
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4),
    steps: PositiveInt = 3000,
    states: PositiveInt = 100_000,
    hidden_size: PositiveInt = 64,
    hidden_layers: PositiveInt = 3,
    end: PositiveFloat = 10.0,
    out: str = "runs",
    tick: Callable[[str], None] | None = None,
) -> LNNExperiment:
    """LNN beside a plain network on a double pendulum: does the energy stay?

    Args:
        seeds: Seeds of the weights.
        steps: Updates of 256 states each.
        states: Training states, by twos a hundredth of a unit of time apart.
        hidden_size: Width of both networks.
        hidden_layers: Their hidden layers.
        end: When energies are compared.
        out: The folder for the runs.
        tick: Called with a name after every training, for a progress bar.

    Example:
        >>> result = run(seeds=(0,), steps=500)

    Reference:
        M. Cranmer, S. Greydanus, S. Hoyer, P. Battaglia, D. Spergel, S. Ho. Lagrangian neural
        networks. ICLR workshop, 2020, and the authors' notebooks.
    """
    net = {"hidden_size": hidden_size, "hidden_layers": hidden_layers}
    outcomes = []
    for model in MODELS:
        for seed in seeds:
            outcomes.append(_train(model, seed, steps, states, net, end, out))
            if tick is not None:
                tick(f"{model}, seed {seed}")
    settings = {
        "seeds": list(seeds),
        "steps": steps,
        "states": states,
        **net,
        "end": end,
        "starts": STARTS,
        "rates": RATES,
        "training": "Adam, cosine, L1, 256 states a batch",
    }
    return LNNExperiment(settings, tuple(outcomes))


def _train(
    model: str, seed: int, steps: int, states: int, net: dict[str, Any], end: float, out: str
) -> Outcome:
    found = trained(
        model,
        "double-pendulum",
        model_options={**net, **MODELS[model]},
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
    system, network = found.task.system, found.model.double()
    starts = DoublePendulumSystem().starts(STARTS, torch.Generator().manual_seed(STARTS))
    times = torch.linspace(0, end, round(end * READINGS) + 1).double()
    with torch.no_grad():
        path = network.trajectory(starts, times, on_failure="return")
    drift = _drift(system.energy(path))
    return Outcome(
        model,
        seed,
        found.result["test"]["loss"],
        drift[-1],
        bool(path.isfinite().all()),
        tuple(drift),
        found.seconds,
    )


def _drift(energy: Tensor) -> Sequence[float]:
    """Return the mean error at every time; infinite where something could not be followed."""
    error = (energy - energy[:1]).abs().nan_to_num(nan=torch.inf) / SCALE
    return error.mean(1).tolist()
