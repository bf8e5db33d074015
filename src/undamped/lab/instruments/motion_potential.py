"""The learned potential, compared with the true one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from undamped._base.registry import instruments
from undamped.analysis.core import InapplicableError, Layout, Style, Trace
from undamped.analysis.core.figures import reference
from undamped.lab.instruments.motion import Motion, MotionResult, at_rest, follow, pairs
from undamped.lab.tasks.task import Task
from undamped.models.physics.state_model import StateModel


@instruments.register("motion_potential")
@dataclass(frozen=True)
class MotionPotential(MotionResult):
    """The energy of states at rest, learned and true, at the positions of true trajectories.

    A motion determines the potential up to a constant; without momenta and forces, only up to a
    `factor` as well. The constant and this factor are fitted, and removed from `learned`.
    `position` are values of the only position, None where there are several.
    """

    true: np.ndarray
    learned: np.ndarray
    position: np.ndarray | None
    coordinate: str
    factor: float
    fitted: bool
    name: str = ""

    question = "Is the learned potential the true one?"
    page_order = 14
    columns = ("positions", "largest error", "relative to the range", "factor")

    @classmethod
    def of(cls, motion: Motion, name: str) -> Self:
        if motion.energy is None:
            raise InapplicableError("the true potential is unknown")
        space = motion.space
        resting = at_rest(space, motion.true.flatten(0, 1))
        like = next(motion.model.parameters())
        with torch.no_grad():
            learned = motion.model.energy(resting.to(like)).double().cpu()
        true = motion.energy(resting)
        if float(true.max() - true.min()) < 1e-9:
            raise InapplicableError("the true potential is constant")
        fitted = "velocity" in space.kinds and not space.inputs
        factor = 1.0
        if fitted:
            centred, true_centred = learned - learned.mean(), true - true.mean()
            factor = ((centred * true_centred).sum() / true_centred.square().sum()).item()
            if not factor:
                raise InapplicableError("the learned potential is constant")
        learned = learned / factor
        learned = learned - (learned - true).mean()
        position = _only_position(motion, resting)
        if position is not None:
            order = torch.argsort(position)
            position, learned, true = position[order], learned[order], true[order]
        return cls(
            true.numpy(),
            learned.numpy(),
            None if position is None else position.numpy(),
            space.names[pairs(space)[0][0]],
            factor,
            fitted,
            name,
        )

    @property
    def worst(self) -> float:
        """The largest error."""
        return float(np.abs(self.learned - self.true).max())

    @property
    def relative(self) -> float:
        """The largest error relative to the true range."""
        return self.worst / max(float(np.ptp(self.true)), 1e-300)

    @property
    def sentence(self) -> str:
        unknown = f"a constant and a factor of {self.factor:.3g}" if self.fitted else "a constant"
        error = f"{100 * self.relative:.2g} %"
        return f"Up to {unknown} the largest error is {error} of the true range."

    @property
    def rows(self) -> list[tuple[str, ...]]:
        factor = f"{self.factor:.3g}" if self.fitted else "1 (known)"
        errors = (f"{self.worst:.2g}", f"{100 * self.relative:.2g} %")
        return [(f"{len(self.true):,}", *errors, factor)]

    @property
    def layout(self) -> Layout:
        """Over the only position; or learned over true, where there are several."""
        if self.position is not None:
            line = reference(self.position, self.true, "true potential")
            return Layout(
                "Potential",
                self.coordinate,
                "energy at rest",
                "Grey: the true potential. The constant, which no motion determines, is removed.",
                background=(line,),
            )
        ends = [float(self.true.min()), float(self.true.max())]
        return Layout(
            "Potential",
            "true potential",
            "learned potential",
            "Points on the grey line are exact. The undetermined constant is removed.",
            background=(reference(ends, ends, "true"),),
        )

    def traces(self, style: Style) -> list[Trace]:
        """A curve, or a point for every position."""
        if self.position is not None:
            return [style.line(self.position, self.learned, "learned potential")]
        return [style.points(self.true, self.learned, "positions", marker={"size": 4})]


def motion_potential(
    model: StateModel, task: Task, *, count: int = 6, name: str = ""
) -> MotionPotential:
    """Compare the learned potential with the true one, at positions of true trajectories.

    Args:
        model: A model of a dynamical system, with an energy.
        task: Its task, of a simulated system.
        count: Number of trajectories.
        name: Name of the model in figures.

    Example:
        >>> motion_potential(model, task).sentence
    """
    return MotionPotential.of(follow(model, task, count), name)


def _only_position(motion: Motion, states: Tensor) -> Tensor | None:
    """Return the values of the only position, angles by −π to π; None where there are several."""
    coordinates = pairs(motion.space)
    if len(coordinates) > 1:
        return None
    kind, position = motion.space.kinds[coordinates[0][0]], states[:, coordinates[0][0]]
    if kind == "cosine":
        return torch.atan2(states[:, motion.space.indices("sine")[0]], position)
    return torch.atan2(position.sin(), position.cos()) if kind == "angle" else position
