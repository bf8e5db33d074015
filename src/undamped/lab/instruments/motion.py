"""A learned motion and the true one, for the instruments of dynamical systems."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from undamped._base.contract import StateSpace
from undamped._base.errors import OptionError
from undamped.analysis.core import InapplicableError, Probe, Result
from undamped.analysis.core.unrolled import evaluating
from undamped.lab.tasks.physics.scores import RolloutScores, relative_error
from undamped.lab.tasks.physics.system import System
from undamped.lab.tasks.task import Task
from undamped.models.physics.fields.coordinates import split_inputs
from undamped.models.physics.state_model import StateModel

STARTS = 6
"""Number of trajectories."""


def percent(fraction: float) -> str:
    """Return a fraction as a percentage, with two digits below ten percent."""
    value = 100 * fraction
    return f"{value:.2g} %" if abs(value) < 10 else f"{value:,.0f} %"


class MotionResult(Result):
    """Base class of instruments of a learned motion."""

    of_motion = True

    @classmethod
    @abstractmethod
    def of(cls, motion: Motion, name: str) -> Self:
        """Measure a motion.

        Args:
            motion: The motion.
            name: Name of the model in figures.
        """

    @classmethod
    def measure(cls, probe: Probe) -> Self:
        """Measure the longest test split of the task."""
        return cls.of(motion_of(probe), probe.name)


@dataclass(frozen=True)
class Motion:
    """Trajectories of a task's longest test split, and those of a model from the same states.

    Args:
        model: The model.
        space: The coordinates.
        times: Times from zero on, (times,).
        true: True or measured states, (times, batch, size).
        learned: States of the model, (times, batch, size); NaN after an integration failed.
        inputs: Inputs (batch, inputs), or None.
        energy: The true energy of states, or None if it is unknown.
        system: The system, if it is simulated.
    """

    model: StateModel
    space: StateSpace
    times: Tensor
    true: Tensor
    learned: Tensor
    inputs: Tensor | None
    energy: Callable[[Tensor], Tensor] | None
    system: System[Any] | None

    @property
    def errors(self) -> Tensor:
        """Relative errors, (times, batch)."""
        return relative_error(self.learned, self.true, self.space)

    def pair(self, dof: int) -> tuple[int, int]:
        """Return the indices of a position and its momentum or velocity in a state."""
        return pairs(self.space)[dof]


def motion_of(probe: Probe) -> Motion:
    """Return the motion of a probe's model, computed once for all instruments."""
    cache = vars(probe)
    if "motion" not in cache:
        if not isinstance(probe.network, StateModel):
            raise InapplicableError("it is not a model of a dynamical system")
        if probe.task is None:
            raise InapplicableError("there is no task with the true motion")
        cache["motion"] = follow(probe.network, probe.task)
    return cache["motion"]


def follow(model: StateModel, task: Task, count: int = STARTS) -> Motion:
    """Integrate a model from the initial states of a task's longest test split; see `Motion`."""
    splits = [split for split in task.test_tasks().values() if isinstance(split, RolloutScores)]
    if not splits:
        raise InapplicableError("its task has no trajectories")
    split = splits[-1]
    batch = split.batch("test", 0, count)
    assert batch.target_times is not None
    start, u = split_inputs(model.space, batch.inputs)
    like = next(model.parameters())
    when = batch.target_times[:, 0].double()
    with evaluating(model), torch.no_grad():
        inputs = None if u is None else u.to(like)
        path = model.trajectory(start.to(like), when, inputs, on_failure="return").double().cpu()
    first = start.double().unsqueeze(0)
    energy = torch.no_grad()(split.energy)
    return Motion(
        model,
        model.space,
        torch.cat((torch.zeros(1).double(), when)),
        torch.cat((first, batch.targets.double())),
        torch.cat((first, path)),
        u,
        None if energy(first) is None else energy,  # type: ignore[arg-type]
        getattr(split, "system", None),
    )


def pairs(space: StateSpace) -> list[tuple[int, int]]:
    """Return the indices of every position (or cosine) and its momentum or velocity."""
    positions = space.indices("position", "angle", "cosine")
    partners = space.indices("momentum", "velocity")
    if len(positions) != len(partners) or not positions:
        raise OptionError("its coordinates are not pairs of positions and momenta or velocities")
    return list(zip(positions, partners, strict=True))


def at_rest(space: StateSpace, states: Tensor) -> Tensor:
    """Return states with zero momenta or velocities."""
    resting = states.clone()
    resting[..., [partner for _, partner in pairs(space)]] = 0
    return resting


def joined(paths: np.ndarray) -> tuple[list[Any], list[Any]]:
    """Return paths (times, bodies, 2) as one line, with gaps between the bodies."""
    x: list[Any] = []
    y: list[Any] = []
    for path in paths.transpose(1, 0, 2):
        x += [*path[:, 0].tolist(), None]
        y += [*path[:, 1].tolist(), None]
    return x, y
