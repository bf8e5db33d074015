"""SymODEN on a pendulum with a torque, its angle by cosine and sine; then a controller from it.

The error is that of the authors: squared, summed over 40 readings and all features, averaged over
trajectories without torque. The authors start from training states; here starts are new. Then
energy shaping with the learned potential brings the true pendulum from hanging to upright.

    undamped reproduce symoden --out figures/
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from undamped._base.options import PositiveInt
from undamped.lab.instruments.motion_paths import MotionPaths
from undamped.lab.papers.physics.experiment import (
    Goal,
    TrainedModel,
    goal_report,
    scientific,
    train_model,
)
from undamped.lab.papers.runs import SeedOptions, experiment
from undamped.lab.report.charts import BLACK_LINE, colour, label, panels
from undamped.lab.report.table import Report
from undamped.models.physics.energy_shaping import EnergyShaping, control_loop

MODELS = ("symoden", "plain-ode")
AUTHORS = {"symoden": 0.0948, "plain-ode": 221.0}
"""The authors' prediction error with windows of 5, and that of their naive baseline."""
READINGS = 40
STEP = 0.05
STARTS = 64
POSITION_GAIN, DAMPING_GAIN = 5.0, 2.0
CONTROL_STEPS = 200
"""The controller acts for ten seconds."""


@dataclass(frozen=True)
class PredictionError:
    """One model.

    Args:
        model: Its name.
        error: Summed squared error over 40 readings.
        seconds: Duration of training.
    """

    model: str
    error: float
    seconds: float


@experiment("symoden")
def run(
    *,
    steps: PositiveInt = 1200,
    trajectories: PositiveInt = 320,
    window: PositiveInt = 5,
    hidden_size: PositiveInt = 64,
    baseline: bool = True,
    **options: Unpack[SeedOptions],
) -> Report:
    """SymODEN on an embedded pendulum with torque; then upright by energy shaping.

    Args:
        steps: Updates.
        trajectories: Training trajectories of 20 readings, each with a torque of −2, …, 2.
        window: Readings of a training window, including its start.
        hidden_size: Width of all perceptrons.
        baseline: Whether to train the plain network too.
        options: Seed, folder and progress; see `SeedOptions`.

    Example:
        >>> result = run(steps=500, baseline=False)

    Reference:
        Y. D. Zhong, B. Dey, A. Chakraborty. Symplectic ODE-net: learning Hamiltonian dynamics with
        control. ICLR, 2020, and the authors' notebooks.
    """
    errors, first, seed = [], None, options["seed"]
    for name in MODELS if baseline else MODELS[:1]:
        trained = _train(name, steps, trajectories, window, hidden_size, seed, options["out"])
        errors.append(PredictionError(name, _summed_error(trained, seed), trained.seconds))
        first = first or trained
        options["progress"](name)
    assert first is not None
    system = first.task.system
    control = EnergyShaping(
        first.model, target=[math.pi], position_gain=POSITION_GAIN, damping_gain=DAMPING_GAIN
    )
    hanging = torch.tensor([[1.0, 0.0, 0.0]]).double()
    states, torques = control_loop(system.field, control, hanging, STEP, CONTROL_STEPS)
    tilt, torques = _tilt(states[:, 0]), torques[:, 0, 0]
    reference = _exact_control(system.field.b)
    exact, _ = control_loop(system.field, reference, hanging, STEP, CONTROL_STEPS)
    goals = [
        Goal("summed error over 40 readings", errors[0].error, 1.0),
        Goal(
            "|angle from upright| over the last 2 of 10 s",
            tilt[-round(2 / STEP) :].abs().max().item(),
            0.05,
        ),
    ]
    rows = [
        (e.model, scientific(e.error), scientific(AUTHORS[e.model]), f"{e.seconds:.0f}")
        for e in errors
    ]
    return goal_report(
        errors,
        ("", "summed error", "authors", "s"),
        rows,
        goals,
        {"symoden_control": lambda: _figure(tilt, torques)},
        printed=AUTHORS,
        numbers={"tilt": tilt.tolist(), "torques": torques.tolist()},
        motions={"symoden_control": {"learned": _motion(system, exact, states)}},
    )


def _train(
    name: str, steps: int, trajectories: int, window: int, hidden_size: int, seed: int, out: str
) -> TrainedModel:
    return train_model(
        name,
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


def _summed_error(trained: TrainedModel, seed: int) -> float:
    """Return the error over 40 readings from new starts without torque."""
    system = trained.task.system
    starts = system.starts(STARTS, torch.Generator().manual_seed(1000 + seed))
    starts[:, -1] = 0.0
    times = STEP * torch.arange(READINGS).double()
    true = system.simulate(starts, times)
    states, torques = starts.float()[:, :3], starts.float()[:, 3:]
    with torch.no_grad():
        path = trained.model.trajectory(states, times, torques, on_failure="return")
    error = (path.double() - true).square().sum((0, 2)).nan_to_num(nan=torch.inf)
    return error.mean().item()


def _tilt(states: Tensor) -> Tensor:
    """Return the angle from upright of every state."""
    angle = torch.atan2(states[:, 1], states[:, 0]) - math.pi
    return torch.atan2(angle.sin(), angle.cos())


def _exact_control(gravity: float) -> Callable[[float, Tensor], Tensor]:
    """Return the same controller with the true potential energy."""

    def control(t: float, states: Tensor) -> Tensor:
        cosine, sine, speed = states.unbind(-1)
        angle = torch.atan2(-sine, -cosine)  # from upright, in (−π, π]
        return (gravity * sine - POSITION_GAIN * angle - DAMPING_GAIN * speed).unsqueeze(-1)

    return control


def _motion(system: Any, exact: Tensor, learned: Tensor) -> MotionPaths:
    """Return both controlled pendulums for an animation."""
    true, predicted = (system.drawing(path[:, 0]) for path in (exact, learned))
    return MotionPaths(
        STEP * np.arange(CONTROL_STEPS + 1),
        true.bodies.numpy(),
        predicted.bodies.numpy(),
        true.rods,
        (true.x, true.y),
        true.equal,
    )


def _figure(tilt: Tensor, torques: Tensor) -> Any:
    figure, (upper, lower) = panels(6, 3.6, rows=2, sharex=True)
    times = STEP * torch.arange(len(tilt)).numpy()
    upper.plot(times, tilt.numpy(), color=colour(0))
    upper.axhline(0, **BLACK_LINE)
    label(upper, "", "angle from upright")
    lower.step(times[:-1], torques.numpy(), color=colour(1), where="post")
    label(lower, "time (s)", "torque")
    return figure
