"""Phase portraits: where a learned motion goes, over where the true one goes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import OptionError, explain
from undamped._base.registry import instruments
from undamped.analysis.core.layout import Layout, reference
from undamped.analysis.core.probe import Probe
from undamped.analysis.core.result import Result
from undamped.analysis.core.style import Style, Trace
from undamped.lab.instruments.motion import Motion, follow, joined, motion_of
from undamped.lab.tasks.physics.scores import valid_time
from undamped.lab.tasks.task import Task
from undamped.models.physics.state_model import StateModel


@instruments.register("motion_portrait")
@dataclass(frozen=True)
class MotionPortrait(Result):
    """A position and its partner along some trajectories, learned and true.

    `learned` and `true` hold the two coordinates, (times, trajectories, 2), whose names are
    `coordinates`; `errors` relative errors of whole states (times, trajectories).
    """

    coordinates: tuple[str, str]
    times: np.ndarray
    true: np.ndarray
    learned: np.ndarray
    errors: np.ndarray
    valid: float
    name: str = ""

    question = "Does the learned flow go where the true one goes?"
    place = 10
    of_motion = True
    columns = ("over time", "relative error", "valid until", "of")

    @classmethod
    def measure(cls, probe: Probe) -> MotionPortrait:
        """Look at the first freedom."""
        return _portrait(motion_of(probe), 0, probe.name)

    @property
    def sentence(self) -> str:
        """How far off it is, and for how long it is right."""
        error = np.exp(np.log(self.errors[1:]).mean())
        return (
            f"Relative error {error:.2g} over a time of {self.times[-1]:g} (geometric mean); "
            f"within a tenth until {self.valid:.3g} on average."
        )

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The error of the first half of the time, and of all of it."""
        rows = []
        for part in (len(self.times) // 2, len(self.times)):
            error = np.exp(np.log(self.errors[1:part]).mean()) if part > 1 else 0.0
            end = f"{self.times[max(1, part) - 1]:g}"
            rows.append((end, f"{error:.2g}", f"{self.valid:.3g}", f"{self.times[-1]:g}"))
        return rows

    @property
    def layout(self) -> Layout:
        """Position across, partner upwards."""
        across, up = self.coordinates
        return Layout(
            "Phase portrait",
            across,
            up,
            "Grey: the true motion from the same starts. A learned flow that lies on it is right.",
            background=(reference(*joined(self.true), "true motion"),),
        )

    def traces(self, style: Style) -> list[Trace]:
        """All learned trajectories as one line with gaps, and where they start."""
        x, y = joined(self.learned)
        line = style.line(x, y, "learned motion", line={"width": 1.5})
        if not style.alone:
            return [line]
        first = self.learned[0]
        return [line, style.points(first[:, 0], first[:, 1], "starts", part=1)]


def motion_portrait(
    model: StateModel, task: Task, *, freedom: int = 0, count: int = 6, name: str = ""
) -> MotionPortrait:
    """Draw the learned motion over the true one, in the plane of a position and its partner.

    Args:
        model: A model of a moving system.
        task: Its task, whose longest test has the true motion.
        freedom: Which position.
        count: How many trajectories.
        name: What to call the model.

    Example:
        >>> motion_portrait(model, task).plot()
    """
    return _portrait(follow(model, task, count), freedom, name)


def _portrait(motion: Motion, freedom: int, name: str) -> MotionPortrait:
    known = len(motion.space.indices("momentum", "velocity"))
    if not 0 <= freedom < known:
        raise OptionError(
            explain(
                "freedom",
                expected=f"a number from 0 to {known - 1}",
                got=freedom,
                remedy="Count positions from zero.",
            )
        )
    position, partner = motion.pair(freedom)
    names = motion.space.names
    of = names[position]
    if motion.space.kinds[position] == "cosine":
        of = "angle"
    chosen = [_plane(states, motion, position, partner) for states in (motion.true, motion.learned)]
    errors = motion.errors
    times = motion.times[1:].unsqueeze(1).expand(-1, errors.shape[1])
    return MotionPortrait(
        (of, names[partner]),
        motion.times.numpy(),
        *chosen,
        errors=errors.numpy(),
        valid=valid_time(errors[1:], times).mean().item(),
        name=name,
    )


def _plane(states: Tensor, motion: Motion, position: int, partner: int) -> np.ndarray:
    place = states[..., position]
    if motion.space.kinds[position] == "cosine":
        number = motion.space.indices("cosine").index(position)
        place = torch.atan2(states[..., motion.space.indices("sine")[number]], place)
    return torch.stack((place, states[..., partner]), dim=-1).numpy()
