"""SymODEN on a pendulum with a torque, its angle by cosine and sine; then a controller from it.

The error is the authors': squared, summed over 40 readings and all features, the mean over
trajectories without torque. Theirs start from training starts; these start from unseen ones. Then
energy shaping with the learned potential brings the true pendulum from hanging to upright.

    undamped reproduce symoden --out pictures/
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undamped._base.options import NonNegativeInt, PositiveInt
from undamped._base.registry import experiments
from undamped.lab.instruments.motion_picture import MotionPicture
from undamped.lab.papers.physics.goals import Goal, short, table
from undamped.lab.papers.physics.trained import trained
from undamped.models.physics.energy_shaping import EnergyShaping, control_loop

MODELS = ("symoden", "plain-ode")
PRINTED = {"symoden": 0.0948, "plain-ode": 221.0}
"""The authors' prediction error with windows of 5, and that of their naive baseline."""
READINGS = 40
STEP = 0.05
STARTS = 64
POSITION_GAIN, DAMPING_GAIN = 5.0, 2.0
LOOKS = 200
"""Looks of the controller, so that it acts for ten seconds."""


@dataclass(frozen=True)
class Outcome:
    """One model.

    Args:
        model: Its name.
        error: Summed squared error over 40 readings.
        seconds: Of training.
    """

    model: str
    error: float
    seconds: float


@dataclass(frozen=True)
class SymODENExperiment:
    """Predictions of all models, and the pendulum under control.

    Args:
        settings: How it was made.
        outcomes: Of every model.
        states: The pendulum under control, (looks + 1, 3).
        torques: What the controller did, (looks,).
        picture: The pendulum under control, beside one whose controller knows the true potential.
    """

    settings: dict[str, Any]
    outcomes: tuple[Outcome, ...]
    states: Tensor
    torques: Tensor
    picture: MotionPicture

    @property
    def tilt(self) -> Tensor:
        """The angle from upright, (looks + 1,)."""
        angle = torch.atan2(self.states[:, 1], self.states[:, 0]) - math.pi
        return torch.atan2(angle.sin(), angle.cos())

    @property
    def goals(self) -> list[Goal]:
        """What was to be reached."""
        at_the_end = self.tilt[-round(2 / STEP) :].abs().max().item()
        return [
            Goal("summed error over 40 readings", self.outcomes[0].error, 1.0),
            Goal("|angle from upright| over the last 2 of 10 s", at_the_end, 0.05),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            "settings": self.settings,
            "outcomes": [vars(one) for one in self.outcomes],
            "printed": PRINTED,
            "tilt": self.tilt.tolist(),
            "torques": self.torques.tolist(),
            "goals": [goal.to_dict() for goal in self.goals],
        }

    def markdown(self) -> str:
        """Return the table beside the authors' numbers."""
        rows = [
            (one.model, short(one.error), short(PRINTED[one.model]), f"{one.seconds:.0f}")
            for one in self.outcomes
        ]
        heads = ("", "summed error", "authors", "s")
        return "\n\n".join([table(heads, rows), "\n".join(g.line() for g in self.goals)])

    def figures(self) -> dict[str, Any]:
        """Return a picture: the angle and the torque under control."""
        from matplotlib.figure import Figure

        from undamped.analysis.core.figures import PALETTE

        figure = Figure(figsize=(6, 3.6), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True)
        time = STEP * torch.arange(len(self.states)).numpy()
        above.plot(time, self.tilt.numpy(), color=PALETTE[0])
        above.axhline(0, color="black", linestyle=":")
        above.set_ylabel("angle from upright")
        below.step(time[:-1], self.torques.numpy(), color=PALETTE[1], where="post")
        below.set_ylabel("torque")
        below.set_xlabel("time (s)")
        return {"symoden_control": figure}

    def animations(self) -> dict[str, dict[str, MotionPicture]]:
        """Return what moves: the pendulum, its controller one that knows it or one that learned."""
        return {"symoden_control": {"learned": self.picture}}


@experiments.register("symoden")
def run(
    *,
    steps: PositiveInt = 1200,
    trajectories: PositiveInt = 320,
    window: PositiveInt = 5,
    hidden_size: PositiveInt = 64,
    baseline: bool = True,
    seed: NonNegativeInt = 0,
    out: str = "runs",
    tick: Callable[[str], None] | None = None,
) -> SymODENExperiment:
    """SymODEN on an embedded pendulum with torque; then upright by energy shaping.

    Args:
        steps: Updates.
        trajectories: Training trajectories of 20 readings, each with a torque of −2, …, 2.
        window: Readings of a training window, its start among them.
        hidden_size: Width of all perceptrons.
        baseline: Whether to train the plain network too.
        seed: Where random numbers come from.
        out: The folder for the runs.
        tick: Called with a name after every training, for a progress bar.

    Example:
        >>> result = run(steps=500, baseline=False)

    Reference:
        Y. D. Zhong, B. Dey, A. Chakraborty. Symplectic ODE-net: learning Hamiltonian dynamics with
        control. ICLR, 2020, and the authors' notebooks.
    """
    outcomes, shaped = [], None
    for model in MODELS if baseline else MODELS[:1]:
        found = trained(
            model,
            "pendulum",
            model_options={
                "hidden_size": hidden_size,
                "method": "rk4",
                "step_size": STEP,
                "gradient": "backprop",
            },
            task_options={
                "coordinates": "embedded",
                "torques": (-2.0, -1.0, 0.0, 1.0, 2.0),
                "kinetic": 1.5,
                "gravity": 5.0,
                "form": "trajectory",
                "trajectories": trajectories,
                "readings": 20,
                "span": 19 * STEP,
                "window": window - 1,
                "horizon": 1.0,
            },
            train={"steps": steps, "batch_size": 256, "learning_rate": 3e-3},
            seed=seed,
            out=out,
        )
        system = found.task.system
        starts = system.starts(STARTS, torch.Generator().manual_seed(1000 + seed))
        starts[:, -1] = 0.0
        times = STEP * torch.arange(READINGS).double()
        true = system.simulate(starts, times)
        with torch.no_grad():
            given = starts.float()
            path = found.model.trajectory(given[:, :3], times, given[:, 3:], on_failure="return")
        error = (path.double() - true).square().sum((0, 2)).nan_to_num(nan=torch.inf)
        outcomes.append(Outcome(model, error.mean().item(), found.seconds))
        shaped = shaped or (found.model, system)
        if tick is not None:
            tick(model)
    assert shaped is not None
    model, system = shaped
    control = EnergyShaping(
        model, target=[math.pi], position_gain=POSITION_GAIN, damping_gain=DAMPING_GAIN
    )
    hanging = torch.tensor([[1.0, 0.0, 0.0]]).double()
    states, torques = control_loop(system.field, control, hanging, STEP, LOOKS)
    known, _ = control_loop(system.field, _knowing(system.field.b), hanging, STEP, LOOKS)
    true, learned = (system.picture(path[:, 0]) for path in (known, states))
    picture = MotionPicture(
        STEP * np.arange(LOOKS + 1),
        true.bodies.numpy(),
        learned.bodies.numpy(),
        true.rods,
        (true.x, true.y),
        true.equal,
    )
    settings = {
        "steps": steps,
        "trajectories": trajectories,
        "window": window,
        "hidden_size": hidden_size,
        "seed": seed,
    }
    return SymODENExperiment(settings, tuple(outcomes), states[:, 0], torques[:, 0, 0], picture)


def _knowing(gravity: float) -> Callable[[float, Tensor], Tensor]:
    """Return the same controller for a pendulum whose potential is known."""

    def control(t: float, states: Tensor) -> Tensor:
        cosine, sine, speed = states.unbind(-1)
        away = torch.atan2(-sine, -cosine)  # from upright, by the shorter way
        return (gravity * sine - POSITION_GAIN * away - DAMPING_GAIN * speed).unsqueeze(-1)

    return control
