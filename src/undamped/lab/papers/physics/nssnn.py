"""NSSNN on ½(q² + 1)(p² + 1): is the true energy kept over 10,000 steps?

Both networks see the same pairs of states. NSSNN learns through Tao's steps; HNN learns rates, had
as differences of the pairs, and is followed with Runge and Kutta's steps of the same size. The
step is ten times that of the data: at the data's own step either method is near exact, and only
the learned energy is seen.

    undamped reproduce nssnn --out pictures/
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from undamped._base.options import PositiveFloat, PositiveInt
from undamped._base.registry import experiments
from undamped.lab.papers.physics.goals import Goal, table
from undamped.lab.papers.physics.trained import trained
from undamped.models.physics.base import MotionModel

START = (0.0, -3.0)
MODELS = ("nssnn", "hnn")


@dataclass(frozen=True)
class Outcome:
    """One model from one seed.

    Args:
        model: Its name.
        seed: The seed.
        energy: True energy of the predicted states, (steps + 1,).
        seconds: Of training.
    """

    model: str
    seed: int
    energy: Tensor
    seconds: float

    @property
    def drift(self) -> float:
        """How far the mean energy of the last tenth of the steps lies from that of the first."""
        tenth = len(self.energy) // 10
        moved = (self.energy[-tenth:].mean() - self.energy[:tenth].mean()).abs()
        return moved.nan_to_num(nan=torch.inf).item()

    @property
    def amplitude(self) -> float:
        """Half of the way between the largest and the smallest energy."""
        return ((self.energy.max() - self.energy.min()) / 2).nan_to_num(nan=torch.inf).item()

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers for JSON."""
        return {
            "model": self.model,
            "seed": self.seed,
            "drift": self.drift,
            "amplitude": self.amplitude,
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class NSSNNExperiment:
    """Both models, all seeds."""

    settings: dict[str, Any]
    outcomes: tuple[Outcome, ...]

    def of(self, model: str) -> list[Outcome]:
        """Return the outcomes of a model."""
        return [one for one in self.outcomes if one.model == model]

    @property
    def goals(self) -> list[Goal]:
        """What was to be reached."""
        ours, theirs = self.of("nssnn"), self.of("hnn")
        share = max(one.drift / one.amplitude for one in ours)
        ratio = max(a.drift / b.drift for a, b in zip(ours, theirs, strict=True))
        return [
            Goal("NSSNN: drift over amplitude, worst seed (no trend)", share, 0.1),
            Goal("NSSNN: drift over that of HNN with rk4, worst seed", ratio, 0.1),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return everything but curves for JSON."""
        rows = [one.to_dict() for one in self.outcomes]
        goals = [goal.to_dict() for goal in self.goals]
        return {"settings": self.settings, "outcomes": rows, "goals": goals}

    def markdown(self) -> str:
        """Return the table."""
        rows = [
            (f"{one.model}, seed {one.seed}", f"{one.drift:.2e}", f"{one.amplitude:.2e}",
             f"{one.seconds:.0f}")
            for one in self.outcomes
        ]  # fmt: skip
        text = (
            f"True energy (5 at the start) of {self.settings['predicted']:,} predicted steps of "
            f"{self.settings['step_size']:g} from (0, −3); drift: mean of the last tenth less mean "
            "of the first."
        )
        heads = ("", "drift", "amplitude", "s")
        return "\n\n".join([table(heads, rows), text, "\n".join(g.line() for g in self.goals)])

    def figures(self) -> dict[str, Any]:
        """Return a picture: energy over the steps."""
        from matplotlib.figure import Figure

        from undamped.analysis.core.figures import PALETTE

        figure = Figure(figsize=(7, 3.2), layout="constrained")
        axes = figure.add_subplot()
        for k, model in enumerate(MODELS):
            for one in self.of(model)[:1]:
                label = "nssnn, tao" if model == "nssnn" else "hnn, rk4"
                axes.plot(one.energy.numpy(), color=PALETTE[k], linewidth=0.6, label=label)
        axes.axhline(5.0, color="black", linestyle=":", label="true")
        axes.set_xlabel("step")
        axes.set_ylabel("true energy of the predicted state")
        axes.legend(fontsize="x-small")
        return {"nssnn_energy": figure}


@experiments.register("nssnn")
def run(
    *,
    seeds: Sequence[int] = (0, 1),
    pairs: PositiveInt = 1280,
    steps: PositiveInt = 4000,
    step_size: PositiveFloat = 0.1,
    predicted: PositiveInt = 10_000,
    out: str = "runs",
    tick: Callable[[str], None] | None = None,
) -> NSSNNExperiment:
    """NSSNN beside HNN on an energy that does not split: 10,000 steps from (0, −3).

    Args:
        seeds: Seeds of weights and data.
        pairs: Pairs of states 0.01 apart, from [−4, 4]².
        steps: Updates.
        step_size: Of the predicted steps.
        predicted: How many of them.
        out: The folder for the runs.
        tick: Called with a name after every training, for a progress bar.

    Example:
        >>> result = run(seeds=(0,))

    Reference:
        S. Xiong and others. Nonseparable symplectic neural networks. ICLR, 2021.
    """
    outcomes = []
    for seed in seeds:
        for model in MODELS:
            outcomes.append(_learn(model, seed, pairs, steps, (step_size, predicted), out))
            if tick is not None:
                tick(f"{model}, seed {seed}")
    settings = {
        "seeds": list(seeds),
        "pairs": pairs,
        "steps": steps,
        "step_size": step_size,
        "predicted": predicted,
    }
    return NSSNNExperiment(settings, tuple(outcomes))


def _learn(
    model: str, seed: int, pairs: int, steps: int, followed: tuple[float, int], out: str
) -> Outcome:
    options = {"hidden_size": 64, "hidden_layers": 3}
    own = {} if model == "nssnn" else {"method": "rk4", "step_size": 0.01}
    own["gradient"] = "backprop"
    found = trained(
        model,
        "nonseparable",
        model_options={**options, **own},
        # Both learn from pairs alone: HNN by one step of rk4, whose error is far below the rest.
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
    step_size, predicted = followed
    assert isinstance(found.model, MotionModel)
    found.model.flow.step_size = step_size
    times = step_size * torch.arange(1, predicted + 1).double()
    start = torch.tensor([START])
    with torch.no_grad():
        path = found.model.trajectory(start, times, on_failure="return")
    states = torch.cat((start.unsqueeze(0), path)).double()[:, 0]
    return Outcome(model, seed, found.task.system.energy(states), found.seconds)
