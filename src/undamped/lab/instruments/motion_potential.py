"""The learned potential beside the true one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from undamped._base.registry import instruments
from undamped.analysis.core.layout import Layout, reference
from undamped.analysis.core.probe import InapplicableError, Probe
from undamped.analysis.core.result import Result
from undamped.analysis.core.style import Style, Trace
from undamped.lab.instruments.motion import Motion, at_rest, follow, motion_of, pairs
from undamped.lab.tasks.task import Task
from undamped.models.physics.state_model import StateModel


@instruments.register("motion_potential")
@dataclass(frozen=True)
class MotionPotential(Result):
    """The energy of states at rest, learned and true, at the places of true trajectories.

    Motion says a potential up to a constant; where neither momenta nor forces are given, only up
    to a `factor` as well. Constant and, there, factor are fitted: `learned` is what is left to
    compare with `true`. `position` are values of the only position, None where there are more.
    """

    true: np.ndarray
    learned: np.ndarray
    position: np.ndarray | None
    coordinate: str
    factor: float
    fitted: bool
    name: str = ""

    question = "Is the learned potential the true one?"
    place = 14
    of_motion = True
    columns = ("places", "largest error", "of the true range", "factor")

    @classmethod
    def measure(cls, probe: Probe) -> MotionPotential:
        """Look at the places of the longest test."""
        return _potential(motion_of(probe), probe.name)

    @property
    def worst(self) -> float:
        """The largest error."""
        return float(np.abs(self.learned - self.true).max())

    @property
    def sentence(self) -> str:
        """How far apart they are, and up to what."""
        upto = f"a constant and a factor of {self.factor:.3g}" if self.fitted else "a constant"
        share = self.worst / max(float(np.ptp(self.true)), 1e-300)
        return f"Up to {upto} it is the true one to {100 * share:.2g} % of the range it goes over."

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The largest error."""
        share = self.worst / max(float(np.ptp(self.true)), 1e-300)
        factor = f"{self.factor:.3g}" if self.fitted else "1, known"
        return [(f"{len(self.true):,}", f"{self.worst:.2g}", f"{100 * share:.2g} %", factor)]

    @property
    def layout(self) -> Layout:
        """Over the only position; or learned over true, where there are several."""
        if self.position is not None:
            line = reference(self.position, self.true, "true potential")
            return Layout(
                "Potential",
                self.coordinate,
                "energy at rest",
                "Grey: the true one. A constant, which no motion tells, is taken out.",
                background=(line,),
            )
        ends = [float(self.true.min()), float(self.true.max())]
        return Layout(
            "Potential",
            "true potential",
            "learned potential",
            "Places on the grey line are right. A constant, which no motion tells, is taken out.",
            background=(reference(ends, ends, "true"),),
        )

    def traces(self, style: Style) -> list[Trace]:
        """A curve, or a point for every place."""
        if self.position is not None:
            return [style.line(self.position, self.learned, "learned potential")]
        return [style.points(self.true, self.learned, "places", marker={"size": 4})]


def motion_potential(
    model: StateModel, task: Task, *, count: int = 6, name: str = ""
) -> MotionPotential:
    """Compare the learned potential with the true one, at places of true trajectories.

    Args:
        model: A model of a moving system, with an energy.
        task: Its task, of a simulated system.
        count: How many trajectories.
        name: What to call the model.

    Example:
        >>> motion_potential(model, task).sentence
    """
    return _potential(follow(model, task, count), name)


def _potential(motion: Motion, name: str) -> MotionPotential:
    if motion.energy is None:
        raise InapplicableError("nobody knows the true potential")
    space = motion.space
    still = at_rest(space, motion.true.flatten(0, 1))
    like = next(motion.model.parameters())
    with torch.no_grad():
        found = motion.model.energy(still.to(like)).double().cpu()
    true = motion.energy(still)
    if float(true.max() - true.min()) < 1e-9:
        raise InapplicableError("the true potential is the same everywhere")
    fitted = "velocity" in space.kinds and not space.inputs
    factor = 1.0
    if fitted:
        away, wanted = found - found.mean(), true - true.mean()
        factor = ((away * wanted).sum() / wanted.square().sum()).item()
        if not factor:
            raise InapplicableError("the learned potential is the same everywhere")
    found = found / factor
    found = found - (found - true).mean()
    position = _only_position(motion, still)
    if position is not None:
        order = torch.argsort(position)
        position, found, true = position[order], found[order], true[order]
    return MotionPotential(
        true.numpy(),
        found.numpy(),
        None if position is None else position.numpy(),
        space.names[pairs(space)[0][0]],
        factor,
        fitted,
        name,
    )


def _only_position(motion: Motion, states: Tensor) -> Tensor | None:
    """Return the values of the only position, angles by −π to π; None where there are several."""
    places = pairs(motion.space)
    if len(places) > 1:
        return None
    kind, place = motion.space.kinds[places[0][0]], states[:, places[0][0]]
    if kind == "cosine":
        return torch.atan2(states[:, motion.space.indices("sine")[0]], place)
    return torch.atan2(place.sin(), place.cos()) if kind == "angle" else place
