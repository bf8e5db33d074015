"""Bodies in the plane, true beside learned: a picture of their paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
from undamped.lab.tasks.physics.drawing import Drawing, in_phase_plane
from undamped.lab.tasks.task import Task
from undamped.models.physics.state_model import StateModel

Rods = tuple[tuple[int, int], ...]


@instruments.register("motion_picture")
@dataclass(frozen=True)
class MotionPicture(Result):
    """Where bodies go from one start: `true` and `learned`, (times, bodies, 2).

    `rods` are pairs of bodies with a line between them, numbered from 1; 0 is the origin.
    `axes` names both directions; `equal` says whether they have the same scale. The function
    `undamped.lab.report.animate` and the command `undamped animate` let it move.
    """

    times: np.ndarray
    true: np.ndarray
    learned: np.ndarray
    rods: Rods
    axes: tuple[str, str]
    equal: bool
    name: str = ""

    question = "What does the learned motion look like beside the true one?"
    place = 8
    of_motion = True
    columns = ("body", "apart in the middle", "apart at the end")

    @classmethod
    def measure(cls, probe: Probe) -> MotionPicture:
        """Draw the first start of the longest test."""
        return picture_of(motion_of(probe), 0, probe.name)

    @property
    def apart(self) -> np.ndarray:
        """How far each learned body is from the true one, (times, bodies)."""
        return np.linalg.norm(self.learned - self.true, axis=-1)

    @property
    def sentence(self) -> str:
        """How far apart they are at the end."""
        worst = float(self.apart[-1].max())
        told = f"{worst:.2g} apart" if np.isfinite(worst) else "lost"
        return f"At time {self.times[-1]:g} the bodies are up to {told}."

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Every body."""
        middle = len(self.times) // 2
        return [
            (str(k + 1), f"{self.apart[middle, k]:.2g}", f"{self.apart[-1, k]:.2g}")
            for k in range(self.true.shape[1])
        ]

    @property
    def layout(self) -> Layout:
        """The plane, with the true paths in grey."""
        return Layout(
            "Bodies in motion",
            *self.axes,
            "Grey: the true paths. 'undamped animate RUN --out motion.html' lets them move.",
            equal=self.equal,
            background=(reference(*joined(self.true), "true paths"),),
        )

    def traces(self, style: Style) -> list[Trace]:
        """The learned paths; alone, the rods at the end too."""
        x, y = joined(self.learned)
        found = [style.line(x, y, "learned paths", line={"width": 1.5})]
        if style.alone and self.rods:
            both = (("learned", self.learned), ("true", self.true))
            for part, (title, bodies) in enumerate(both, start=1):
                x, y = _rods(bodies[-1], self.rods)
                found.append(
                    style.line(x, y, f"{title} at the end", part=part, mode="lines+markers")
                )
        return found


def motion_picture(
    model: StateModel, task: Task, *, start: int = 0, name: str = ""
) -> MotionPicture:
    """Draw where the bodies of a system go, learned and true.

    Args:
        model: A model of a moving system.
        task: Its task, whose longest test has the true motion.
        start: Which of its starts.
        name: What to call the model.

    Example:
        >>> motion_picture(model, task).picture("paths.png")
    """
    return picture_of(follow(model, task, start + 1), start, name)


def picture_of(motion: Motion, start: int, name: str) -> MotionPicture:
    """Draw one of the starts of a motion."""
    if not 0 <= start < motion.true.shape[1]:
        raise OptionError(
            explain(
                "start",
                expected=f"a number from 0 to {motion.true.shape[1] - 1}",
                got=start,
                remedy="Count the test's starts from zero.",
            )
        )
    true, learned = (_drawn(motion, states[:, start]) for states in (motion.true, motion.learned))
    return MotionPicture(
        motion.times.numpy(),
        true.bodies.numpy(),
        learned.bodies.numpy(),
        true.rods,
        (true.x, true.y),
        true.equal,
        name,
    )


def _drawn(motion: Motion, states: Tensor) -> Drawing:
    if motion.system is None:
        return in_phase_plane(states, motion.space.names)
    known = states.isfinite().all(-1)
    drawn = motion.system.picture(states.nan_to_num())
    bodies = torch.where(known[:, None, None], drawn.bodies, torch.nan)
    return Drawing(bodies, drawn.rods, drawn.x, drawn.y, drawn.equal)


def _rods(bodies: np.ndarray, rods: Rods) -> tuple[list[Any], list[Any]]:
    points = np.concatenate((np.zeros((1, 2)), bodies))
    x: list[Any] = []
    y: list[Any] = []
    for pair in rods:
        x += [*points[list(pair), 0].tolist(), None]
        y += [*points[list(pair), 1].tolist(), None]
    return x, y
