"""An arm with two motors, learned by DeLaN and by LNN, then swung up by energy shaping.

Both models learn from motions under torques. The controller cancels the learned potential energy
and replaces it by a bowl around the target; it acts on the true arm. With a motor in the elbow
alone energy shaping is refused: it needs an input for every degree of freedom.

    undamped reproduce arm --out figures/
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped._base.options import PositiveInt
from undamped._base.registry import models
from undamped.lab.papers.physics.experiment import Goal, goal_report, scientific, train_model
from undamped.lab.papers.runs import SeedOptions, experiment
from undamped.lab.report.charts import colour, label, panels
from undamped.lab.report.table import Report
from undamped.models.physics.energy_shaping import EnergyShaping, control_loop

MODELS: dict[str, dict[str, Any]] = {"delan": {"activation": "tanh"}, "lnn": {}}
UPRIGHT = (math.pi, 0.0)
BENT = (math.pi / 2, math.pi / 4)
"""A position that has to be held against gravity: the upper arm level, the elbow bent."""
TARGETS = {"upright": UPRIGHT, "bent": BENT}
STEP = 0.05


@dataclass(frozen=True)
class ArmControl:
    """One model.

    Args:
        model: Its name.
        loss: Mean squared error of rates on the test set.
        distances: The larger distance of the two angles from the target over time, by target.
        seconds: Duration of training.
    """

    model: str
    loss: float
    distances: dict[str, list[float]]
    seconds: float

    def final_distance(self, target: str) -> float:
        """Return the largest distance over the last two of ten seconds."""
        return max(self.distances[target][-round(2 / STEP) :])


@experiment("arm")
def run(
    *,
    steps: PositiveInt = 6000,
    trajectories: PositiveInt = 400,
    hidden_size: PositiveInt = 64,
    control_steps: PositiveInt = 200,
    **options: Unpack[SeedOptions],
) -> Report:
    """An arm with two motors, swung up by energy shaping with learned DeLaN and LNN models.

    Args:
        steps: Updates of 256 states each.
        trajectories: Training trajectories of 20 states, each with two torques.
        hidden_size: Width of the perceptrons.
        control_steps: Steps of 0.05 s under control.
        options: Seed, folder and progress; see `SeedOptions`.

    Example:
        >>> result = run(steps=500)

    Reference:
        M. Lutter, J. Peters. Deep Lagrangian networks for end-to-end learning of energy-based
        control for under-actuated systems. IROS, 2019, for systems with all motors.
    """
    controls = []
    for name, model_options in MODELS.items():
        trained = train_model(
            name,
            "acrobot",
            model_options={"hidden_size": hidden_size, **model_options},
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
            seed=options["seed"],
            out=options["out"],
        )
        hanging = torch.zeros(1, 4).double()
        distances = {}
        for target, angles in TARGETS.items():
            control = EnergyShaping(
                trained.model, target=angles, position_gain=30.0, damping_gain=15.0
            )
            field = trained.task.system.field
            states, _ = control_loop(field, control, hanging, STEP, control_steps)
            distances[target] = _distance(states[:, 0], angles).tolist()
        controls.append(
            ArmControl(name, trained.result["test"]["loss"], distances, trained.seconds)
        )
        options["progress"](name)
    settings = {"torques": "five levels from −10 to 10 in each motor"}
    goals = [
        Goal(
            f"{control.model}, {target}: angles off over the last 2 of 10 s",
            control.final_distance(target),
            0.05,
        )
        for control in controls
        for target in TARGETS
    ]
    rows = [
        (
            control.model,
            scientific(control.loss),
            *(scientific(control.final_distance(target)) for target in TARGETS),
            f"{control.seconds:.0f}",
        )
        for control in controls
    ]
    header = ("", "test loss", *(f"off from {target}, radians" for target in TARGETS), "s")
    refusal = _underactuated_error()
    plots = {"arm_control": lambda: _figure(controls)}
    note = f"With one motor: *{refusal}*"
    further = {"numbers": {"refused": refusal}, "settings": settings}
    return goal_report(controls, header, rows, goals, plots, note, **further)


def _distance(states: Tensor, target: tuple[float, float]) -> Tensor:
    """Return the larger distance of both angles from a target, for every state."""
    difference = states[:, :2] - torch.tensor(target).double()
    return torch.atan2(difference.sin(), difference.cos()).abs().amax(1)


def _underactuated_error() -> str:
    """Return the error message of energy shaping for an arm with a motor in the elbow alone."""
    from undamped.lab.tasks.physics.classic_control import AcrobotSystem

    model = models["delan"](AcrobotSystem().space, hidden_size=4)
    try:
        EnergyShaping(model, target=UPRIGHT)
    except OptionError as error:
        return str(error)
    raise AssertionError("an acrobot has fewer inputs than degrees of freedom")


def _figure(controls: Sequence[ArmControl]) -> Any:
    figure, all_axes = panels(7, 3, columns=len(TARGETS), sharey=True)
    for axes, target in zip(all_axes, TARGETS, strict=True):
        for index, control in enumerate(controls):
            distances = [max(value, 1e-5) for value in control.distances[target]]
            times = [STEP * k for k in range(len(distances))]
            axes.plot(times, distances, color=colour(index), label=control.model)
        first = axes is all_axes[0]
        unit = "angles off (radians)" if first else ""
        label(axes, "time (s)", unit, f"to {target}", log="y", legend=first)
    return figure
