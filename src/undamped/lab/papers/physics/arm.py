"""An arm with two motors, learned by DeLaN and by LNN, then swung up by energy shaping.

Motions under torques teach both models; what they learned of the potential is cancelled by the
controller, which puts a bowl around upright in its place. The true arm is what it acts on. With a
motor in the elbow alone the same is refused: energy shaping needs an input for every freedom.

    undamped reproduce arm --out pictures/
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped._base.options import NonNegativeInt, PositiveInt
from undamped._base.registry import experiments, models
from undamped.lab.papers.physics.goals import Goal, short, table
from undamped.lab.papers.physics.trained import trained
from undamped.models.physics.energy_shaping import EnergyShaping, control_loop

MODELS: dict[str, dict[str, Any]] = {
    "delan": {"activation": "tanh"},
    "lnn": {},
}
UPRIGHT = (math.pi, 0.0)
POINT = (math.pi / 2, math.pi / 4)
"""A place to be held against gravity: the upper arm level, the elbow bent."""
TARGETS = {"upright": UPRIGHT, "bent": POINT}
STEP, LOOKS = 0.05, 200


@dataclass(frozen=True)
class Outcome:
    """One model.

    Args:
        model: Its name.
        loss: Mean squared error of rates on the test part.
        paths: The arm under control for every target, (looks + 1, 4).
        seconds: Of training.
    """

    model: str
    loss: float
    paths: dict[str, Tensor]
    seconds: float

    def away(self, target: str) -> Tensor:
        """Return how far both angles are from a target over time, the larger one."""
        apart = self.paths[target][:, :2] - torch.tensor(TARGETS[target]).double()
        return torch.atan2(apart.sin(), apart.cos()).abs().amax(1)

    def left(self, target: str) -> float:
        """Return the largest distance over the last two of ten seconds."""
        return self.away(target)[-round(2 / STEP) :].max().item()


@dataclass(frozen=True)
class ArmExperiment:
    """Both models.

    Args:
        settings: How it was made.
        outcomes: Of every model.
        refused: What a controller of an arm with one motor says.
    """

    settings: dict[str, Any]
    outcomes: tuple[Outcome, ...]
    refused: str

    @property
    def goals(self) -> list[Goal]:
        """What was to be reached: both angles near both targets."""
        when = "angles off over the last 2 of 10 s"
        return [
            Goal(f"{one.model}, {target}: {when}", one.left(target), 0.05)
            for one in self.outcomes
            for target in TARGETS
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            "settings": self.settings,
            "outcomes": [
                {
                    "model": one.model,
                    "loss": one.loss,
                    "seconds": one.seconds,
                    "away": {target: one.away(target).tolist() for target in TARGETS},
                }
                for one in self.outcomes
            ],
            "refused": self.refused,
            "goals": [goal.to_dict() for goal in self.goals],
        }

    def markdown(self) -> str:
        """Return the table, and what a controller of an acrobot says."""
        rows = [
            (one.model, short(one.loss), *(short(one.left(target)) for target in TARGETS),
             f"{one.seconds:.0f}")
            for one in self.outcomes
        ]  # fmt: skip
        heads = ("", "test loss", *(f"off from {target}, radians" for target in TARGETS), "s")
        goals = "\n".join(goal.line() for goal in self.goals)
        refused = f"With one motor: *{self.refused}*"
        return "\n\n".join([table(heads, rows), goals, refused])

    def figures(self) -> dict[str, Any]:
        """Return a picture: how far the angles are from their targets, over time."""
        from matplotlib.figure import Figure

        from undamped.analysis.core.figures import PALETTE

        figure = Figure(figsize=(7, 3), layout="constrained")
        panels = figure.subplots(1, len(TARGETS), sharey=True)
        for panel, target in zip(panels, TARGETS, strict=True):
            for colour, one in zip(PALETTE, self.outcomes, strict=False):
                away = one.away(target).clamp_min(1e-5).numpy()
                time = STEP * torch.arange(len(away)).numpy()
                panel.plot(time, away, color=colour, label=one.model)
            panel.set_yscale("log")
            panel.set_title(f"to {target}", fontsize=9)
            panel.set_xlabel("time (s)")
        panels[0].set_ylabel("angles off (radians)")
        panels[0].legend(fontsize=8)
        return {"arm_control": figure}


@experiments.register("arm")
def run(
    *,
    steps: PositiveInt = 6000,
    trajectories: PositiveInt = 400,
    hidden_size: PositiveInt = 64,
    seed: NonNegativeInt = 0,
    out: str = "runs",
    tick: Callable[[str], None] | None = None,
) -> ArmExperiment:
    """An arm with two motors, swung up by energy shaping with what DeLaN and LNN learned.

    Args:
        steps: Updates of 256 states each.
        trajectories: Training trajectories of 20 states, each with two torques.
        hidden_size: Width of the perceptrons.
        seed: Where random numbers come from.
        out: The folder for the runs.
        tick: Called with a name after every training, for a progress bar.

    Example:
        >>> result = run(steps=500)

    Reference:
        M. Lutter, J. Peters. Deep Lagrangian networks for end-to-end learning of energy-based
        control for under-actuated systems. IROS, 2019, for systems with all motors.
    """
    outcomes = []
    for model, own in MODELS.items():
        found = trained(
            model,
            "acrobot",
            model_options={"hidden_size": hidden_size, **own},
            task_options={
                "shoulder": True,
                "torque": 10.0,
                "trajectories": trajectories,
                "form": "derivative",
                "horizon": 1.0,
            },
            train={
                "steps": steps,
                "batch_size": 256,
                "learning_rate": 1e-2,
                "schedule": "cosine",
                "validate_every": max(1, steps // 20),
            },
            seed=seed,
            out=out,
        )
        hanging = torch.zeros(1, 4).double()
        paths = {}
        for target, place in TARGETS.items():
            control = EnergyShaping(
                found.model, target=place, position_gain=30.0, damping_gain=15.0
            )
            states, _ = control_loop(found.task.system.field, control, hanging, STEP, LOOKS)
            paths[target] = states[:, 0]
        outcomes.append(Outcome(model, found.result["test"]["loss"], paths, found.seconds))
        if tick is not None:
            tick(model)
    settings = {
        "steps": steps,
        "trajectories": trajectories,
        "hidden_size": hidden_size,
        "seed": seed,
        "torques": "five levels from −10 to 10 in each motor",
    }
    return ArmExperiment(settings, tuple(outcomes), _refused())


def _refused() -> str:
    """Return what energy shaping says to an arm that has a motor in the elbow alone."""
    from undamped.lab.tasks.physics.acrobot import AcrobotSystem

    model = models["delan"](AcrobotSystem().space, hidden_size=4)
    try:
        EnergyShaping(model, target=UPRIGHT)
    except OptionError as error:
        return str(error)
    raise AssertionError("an acrobot has an input too few")
