"""HNN beside a plain network: spring, pendulum and two bodies, as in the paper.

Noise is on states and not on rates, so that it sets a floor of about 0.036 to the test loss of the
spring and the pendulum, below which no model comes: the test loss cannot tell the two apart there,
and energy can. Energies are looked at along trajectories from where the authors start them, up to
radius 1.4, while the data of the spring end at radius 1. The authors' "energy" of the pendulum is
q² + p², which no pendulum keeps; it is printed beside the true one, 3(1 − cos q) + p².

    undamped reproduce hnn --out pictures/
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from undamped._base.options import NonNegativeInt, PositiveInt, unknown_name
from undamped._base.registry import experiments
from undamped.lab.papers.physics.goals import Goal, short, table
from undamped.lab.papers.physics.trained import trained

MODELS = ("hnn", "plain-ode")
PRINTED: dict[str, dict[str, tuple[float, float]]] = {
    "spring": {"plain-ode": (3.67e-2, 1.71e-1), "hnn": (3.59e-2, 3.84e-4)},
    "pendulum": {"plain-ode": (3.53e-2, 4.15e-2), "hnn": (3.56e-2, 2.49e-2)},
    "two-body": {"plain-ode": (2.96e-5, 6.33e-2), "hnn": (2.82e-6, 3.88e-5)},
}
"""Test loss and energy error of the authors' README, by system and model."""
ENDS = {"spring": 50.0, "pendulum": 20.0, "two-body": 25.0}
"""When trajectories end; those of the authors' spring end between 22 and 79."""
STARTS = 15
INNER, OUTER = 0.2, 1.0
"""|q| and |p| of the authors' starts on spring and pendulum; some lie outside of the data."""
READINGS = 30
"""States a unit of time that energies are looked at."""


@dataclass(frozen=True)
class Outcome:
    """One model on one system, from one seed.

    Args:
        system: The system.
        model: The model.
        seed: The seed.
        loss: Mean squared error of rates on the test part.
        energy: Mean squared error of the energy along trajectories of unseen starts.
        authors_energy: The same of q² + p², for the pendulum.
        drift: Energy of the first trajectory over time, true and predicted, (times, 2).
        seconds: Of training.
    """

    system: str
    model: str
    seed: int
    loss: float
    energy: float
    authors_energy: float | None
    drift: Tensor
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers for JSON."""
        return {name: value for name, value in vars(self).items() if name != "drift"}


@dataclass(frozen=True)
class HNNExperiment:
    """All models on all systems."""

    settings: dict[str, Any]
    outcomes: tuple[Outcome, ...]

    def of(self, system: str, model: str) -> list[Outcome]:
        """Return what a model did on a system, seed by seed."""
        return [one for one in self.outcomes if (one.system, one.model) == (system, model)]

    @property
    def goals(self) -> list[Goal]:
        """What was to be reached, on the systems that were looked at."""
        found = []
        if springs := self.of("spring", "hnn"):
            plain = self.of("spring", "plain-ode")
            ratios = [a.energy / b.energy for a, b in zip(springs, plain, strict=True)]
            worst = max(one.energy for one in springs)
            found.append(Goal("spring, energy error of HNN, worst seed", worst, 1e-3))
            found.append(Goal("spring, energy error over the plain one's", max(ratios), 1e-2))
        if bodies := self.of("two-body", "hnn"):
            energy, loss = (mean(getattr(b, name) for b in bodies) for name in ("energy", "loss"))
            found.append(Goal("two bodies, energy error of HNN", energy, 1e-4))
            found.append(Goal("two bodies, test loss of HNN", loss, 5e-6))
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return everything but curves for JSON."""
        return {
            "settings": self.settings,
            "outcomes": [one.to_dict() for one in self.outcomes],
            "printed": PRINTED,
            "goals": [goal.to_dict() for goal in self.goals],
        }

    def markdown(self) -> str:
        """Return the table beside the authors' numbers, and what was to be reached."""
        rows = []
        for system in dict.fromkeys(one.system for one in self.outcomes):
            for model in dict.fromkeys(one.model for one in self.outcomes):
                own = self.of(system, model)
                loss, energy = PRINTED[system][model]
                theirs = [one.authors_energy for one in own if one.authors_energy is not None]
                rows.append(
                    (
                        f"{system}, {model}",
                        short(mean(one.loss for one in own)),
                        short(loss),
                        short(mean(one.energy for one in own)),
                        short(mean(theirs)) if theirs else short(mean(o.energy for o in own)),
                        short(energy),
                        f"{mean(one.seconds for one in own):.0f}",
                    )
                )
        heads = ("", "test loss", "authors", "energy error", "as authors", "authors", "s")
        seeds = len(self.settings["seeds"])
        text = (
            f"Means over {seeds} seed{'s' if seeds > 1 else ''}. Energies along trajectories of "
            f'{STARTS} unseen starts; "as authors" takes q² + p² for the pendulum, which is not '
            "its energy."
        )
        return "\n\n".join([table(heads, rows), text, "\n".join(g.line() for g in self.goals)])

    def figures(self) -> dict[str, Any]:
        """Return a picture: energy over time, true, HNN, plain."""
        from matplotlib.figure import Figure

        from undamped.analysis.core.figures import PALETTE

        systems = list(dict.fromkeys(one.system for one in self.outcomes))
        figure = Figure(figsize=(4.2 * len(systems), 3.4), layout="constrained")
        for axes, system in zip(
            figure.subplots(1, len(systems), squeeze=False)[0], systems, strict=True
        ):
            for k, model in enumerate(MODELS):
                for one in self.of(system, model)[:1]:
                    time = torch.linspace(0, ENDS[system], len(one.drift)).numpy()
                    axes.plot(time, one.drift[:, 1].numpy(), color=PALETTE[k], label=model)
                    if k == 0:
                        true = one.drift[:, 0].numpy()
                        axes.plot(time, true, color="black", linestyle=":", label="true")
            axes.set_title(system, fontsize=10)
            axes.set_xlabel("time")
            axes.set_ylabel("true energy of the predicted state")
            axes.legend(fontsize="x-small")
        return {"hnn_energy": figure}


@experiments.register("hnn")
def run(
    *,
    systems: Sequence[str] = tuple(PRINTED),
    seeds: Sequence[int] = (0, 1, 2),
    steps: PositiveInt = 2000,
    body_steps: PositiveInt = 10_000,
    body_seeds: PositiveInt = 1,
    trajectories: PositiveInt = 800,
    hidden_size: PositiveInt = 200,
    data_seed: NonNegativeInt = 0,
    out: str = "runs",
    tick: Callable[[str], None] | None = None,
) -> HNNExperiment:
    """HNN beside a plain network: does the energy stay? Spring, pendulum, two bodies.

    Args:
        systems: Which, of spring, pendulum and two-body.
        seeds: Seeds of the weights.
        steps: Updates on spring and pendulum, with all data in every batch.
        body_steps: Updates on two bodies, with 200 states in a batch.
        body_seeds: How many of the seeds two bodies are trained with.
        trajectories: Training trajectories of two bodies.
        hidden_size: Width of all networks.
        data_seed: Seed of the data.
        out: The folder for the runs.
        tick: Called with a name after every training, for a progress bar.

    Example:
        >>> result = run(systems=("spring",), seeds=(0,))

    Reference:
        S. Greydanus, M. Dzamba, J. Yosinski. Hamiltonian neural networks. NeurIPS, 2019, and the
        authors' README.
    """
    for system in systems:
        if system not in PRINTED:
            raise unknown_name("system of this experiment", system, list(PRINTED))
    outcomes = []
    for system in systems:
        bodies = system == "two-body"
        for seed in seeds[:body_seeds] if bodies else seeds:
            for model in MODELS:
                budget = {"steps": body_steps, "batch_size": 200} if bodies else {"steps": steps}
                more = {"trajectories": trajectories} if bodies else {"noise": 0.1}
                found = _train(model, system, seed, budget, {**more, "data_seed": data_seed},
                               hidden_size, out)  # fmt: skip
                outcomes.append(found)
                if tick is not None:
                    tick(f"{model} on {system}, seed {seed}")
    settings = {
        "seeds": list(seeds),
        "steps": steps,
        "body_steps": body_steps,
        "trajectories": trajectories,
        "hidden_size": hidden_size,
        "data_seed": data_seed,
    }
    return HNNExperiment(settings, tuple(outcomes))


def _train(
    model: str,
    system: str,
    seed: int,
    budget: dict[str, int],
    data: dict[str, Any],
    hidden_size: int,
    out: str,
) -> Outcome:
    everything = {} if system == "two-body" else {"batch_size": 10_000, "weight_decay": 1e-4}
    found = trained(
        model,
        system,
        model_options={"hidden_size": hidden_size},
        task_options={"form": "derivative", "horizon": 1.0, **data},
        train={"learning_rate": 1e-3, "schedule": "constant", **everything, **budget},
        seed=seed,
        out=out,
    )
    task = found.task
    starts = task.data("test")[0][:STARTS] if system == "two-body" else _around(seed)
    times = torch.linspace(0, ENDS[system], int(READINGS * ENDS[system]) + 1).double()
    true = task.system.simulate(starts, times)
    with torch.no_grad():
        path = found.model.trajectory(starts.float(), times, on_failure="return").double()
    predicted, wanted = task.system.energy(path), task.system.energy(true)
    circles = None
    if system == "pendulum":
        circles = _squared(path.square().sum(-1), true.square().sum(-1))
    return Outcome(
        system,
        model,
        seed,
        found.result["test"]["loss"],
        _squared(predicted, wanted),
        circles,
        torch.stack((wanted[:, 0], predicted[:, 0]), dim=1),
        found.seconds,
    )


def _around(seed: int) -> Tensor:
    """Draw starts of one position and one momentum as the authors do, (STARTS, 2)."""
    drawn = torch.rand(STARTS, 2, generator=torch.Generator().manual_seed(1000 + seed)).double()
    sides = 2 * drawn - 1
    return sides.sign() * (INNER + (OUTER - INNER) * sides.abs())


def _squared(found: Tensor, true: Tensor) -> float:
    """Return the mean squared error; infinite where something could not be followed."""
    return (found - true).square().nan_to_num(nan=torch.inf).mean().item()
