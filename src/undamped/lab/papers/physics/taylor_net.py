"""Taylor-net from a handful of pairs of states: pendulum and Hénon–Heiles.

The loss is the mean absolute error of the state 0.01 later. A state that stays where it is errs by
what is printed beside it; energies over a thousand steps say what the step is worth.

    undamped reproduce taylor-net --out pictures/
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from undamped._base.options import PositiveInt, unknown_name
from undamped._base.registry import experiments
from undamped.lab.papers.physics.goals import Goal, short, table
from undamped.lab.papers.physics.trained import trained

PRINTED = {"pendulum": 1.39e-4, "henon-heiles": 9.44e-6}
LIMITS = {"pendulum": 2e-4, "henon-heiles": 2e-5}
SYSTEMS: dict[str, dict[str, Any]] = {
    "pendulum": {"kinetic": 0.5, "gravity": 1.0},
    "henon-heiles": {},
}
STEP = 0.01


@dataclass(frozen=True)
class Outcome:
    """One system, one seed.

    Args:
        system: The system.
        seed: The seed.
        loss: Mean absolute error of the next state, on unseen pairs.
        still: The same for a state that stays where it is.
        energy: Largest error of the true energy over a thousand steps, as a share of its spread;
            infinite where a trajectory could not be followed.
        path: Energies of a few unseen starts over time, (times, starts).
        seconds: Of training.
    """

    system: str
    seed: int
    loss: float
    still: float
    energy: float
    path: Tensor
    seconds: float


@dataclass(frozen=True)
class TaylorExperiment:
    """All systems, all seeds."""

    settings: dict[str, Any]
    outcomes: tuple[Outcome, ...]

    def of(self, system: str) -> list[Outcome]:
        """Return the outcomes of a system."""
        return [one for one in self.outcomes if one.system == system]

    @property
    def goals(self) -> list[Goal]:
        """What was to be reached."""
        systems = dict.fromkeys(one.system for one in self.outcomes)
        return [
            Goal(f"{name}, test error", mean(o.loss for o in self.of(name)), LIMITS[name])
            for name in systems
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return everything but curves for JSON."""
        rows = [{k: v for k, v in vars(one).items() if k != "path"} for one in self.outcomes]
        goals = [goal.to_dict() for goal in self.goals]
        return {"settings": self.settings, "outcomes": rows, "printed": PRINTED, "goals": goals}

    def markdown(self) -> str:
        """Return the table beside the authors' numbers."""
        rows = []
        for name in dict.fromkeys(one.system for one in self.outcomes):
            own = self.of(name)
            rows.append(
                (
                    name,
                    short(mean(o.loss for o in own)),
                    short(PRINTED[name]),
                    short(own[0].still),
                    short(max(o.energy for o in own)),
                    f"{mean(o.seconds for o in own):.0f}",
                )
            )
        heads = (
            "",
            "test error",
            "authors",
            "stays",
            f"energy error, {self.settings['later']} steps",
            "s",
        )
        return "\n\n".join([table(heads, rows), "\n".join(g.line() for g in self.goals)])

    def figures(self) -> dict[str, Any]:
        """Return a picture: true energies of predicted trajectories."""
        from matplotlib.figure import Figure

        from undamped.analysis.core.figures import PALETTE

        names = list(dict.fromkeys(one.system for one in self.outcomes))
        figure = Figure(figsize=(4.2 * len(names), 3.2), layout="constrained")
        for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
            energies = self.of(name)[0].path
            time = STEP * torch.arange(len(energies)).numpy()
            for k in range(energies.shape[1]):
                axes.plot(time, energies[:, k].numpy(), color=PALETTE[k % len(PALETTE)])
            axes.set_title(name, fontsize=10)
            axes.set_xlabel("time")
            axes.set_ylabel("true energy of the predicted state")
        return {"taylor_net_energy": figure}


@experiments.register("taylor-net")
def run(
    *,
    systems: Sequence[str] = tuple(SYSTEMS),
    seeds: Sequence[int] = (0, 1, 2),
    pairs: PositiveInt = 25,
    steps: PositiveInt = 2000,
    later: PositiveInt = 1000,
    out: str = "runs",
    tick: Callable[[str], None] | None = None,
) -> TaylorExperiment:
    """Taylor-net from a handful of pairs: pendulum and Hénon–Heiles.

    Args:
        systems: Which, of pendulum and henon-heiles.
        seeds: Seeds of weights and data.
        pairs: Pairs of states 0.01 apart to learn from.
        steps: Updates, with all pairs in every batch.
        later: Steps over which energy is looked at.
        out: The folder for the runs.
        tick: Called with a name after every training, for a progress bar.

    Example:
        >>> result = run(systems=("pendulum",), seeds=(0,))

    Reference:
        Y. Tong and others. Symplectic neural networks in Taylor series form for Hamiltonian
        systems. Journal of Computational Physics, 2021.
    """
    for name in systems:
        if name not in SYSTEMS:
            raise unknown_name("system of this experiment", name, list(SYSTEMS))
    outcomes = []
    for name in systems:
        for seed in seeds:
            outcomes.append(_learn(name, seed, pairs, steps, later, out))
            if tick is not None:
                tick(f"{name}, seed {seed}")
    settings = {"seeds": list(seeds), "pairs": pairs, "steps": steps, "later": later}
    return TaylorExperiment(settings, tuple(outcomes))


def _learn(name: str, seed: int, pairs: int, steps: int, later: int, out: str) -> Outcome:
    data = {"readings": 2, "span": STEP, "window": 1, "horizon": 100.0, "data_seed": seed}
    found = trained(
        "taylor-net",
        name,
        model_options={"step_size": STEP},
        task_options={**SYSTEMS[name], "trajectories": pairs, **data},
        train={"steps": steps, "batch_size": pairs, "learning_rate": 3e-3},
        seed=seed,
        out=out,
    )
    # More unseen pairs than the task holds back, so that the number is one.
    task = found.task
    starts = task.system.starts(1000, torch.Generator().manual_seed(1000 + seed))
    times = STEP * torch.arange(later + 1).double()
    true = task.system.simulate(starts, times[:2])[1]
    with torch.no_grad():
        after = found.model.trajectory(starts.float(), [STEP])[0].double()
        path = found.model.trajectory(starts[:8].float(), times, on_failure="return").double()
    energy = task.system.energy(path)
    spread = task.system.energy(starts).std()
    return Outcome(
        name,
        seed,
        (after - true).abs().mean().item(),
        (starts - true).abs().mean().item(),
        ((energy - energy[:1]).abs().nan_to_num(nan=torch.inf).max() / spread).item(),
        energy,
        found.seconds,
    )
