"""Paths of bodies in the plane, true and learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped._base.registry import instruments
from undamped.analysis.core import Layout, Style, Trace
from undamped.analysis.core.figures import reference
from undamped.lab.instruments.motion import Motion, MotionResult, follow, joined
from undamped.lab.tasks.physics.system import Drawing, in_phase_plane
from undamped.lab.tasks.task import Task
from undamped.models.physics.state_model import StateModel

Rods = tuple[tuple[int, int], ...]


@instruments.register("motion_paths")
@dataclass(frozen=True)
class MotionPaths(MotionResult):
    """Paths of bodies from one initial state: `true` and `learned`, (times, bodies, 2).

    `rods` are pairs of bodies with a line between them, numbered from 1; 0 is the origin.
    `axes` names both axes; `equal` states whether they have the same scale. The function
    `undamped.lab.report.animate` and the command `undamped animate` make an animation.
    """

    times: np.ndarray
    true: np.ndarray
    learned: np.ndarray
    rods: Rods
    axes: tuple[str, str]
    equal: bool
    name: str = ""

    question = "How do the learned paths compare with the true ones?"
    page_order = 8
    columns = ("body", "distance in the middle", "distance at the end")

    @classmethod
    def of(cls, motion: Motion, name: str, start: int = 0) -> Self:
        """Return the paths from one of the initial states of a motion."""
        if not 0 <= start < motion.true.shape[1]:
            raise OptionError(f"start must be from 0 to {motion.true.shape[1] - 1}, got {start}.")
        true, learned = (
            _drawing(motion, states[:, start]) for states in (motion.true, motion.learned)
        )
        return cls(
            motion.times.numpy(),
            true.bodies.numpy(),
            learned.bodies.numpy(),
            true.rods,
            (true.x, true.y),
            true.equal,
            name,
        )

    @property
    def distance(self) -> np.ndarray:
        """The distance between each learned body and the true one, (times, bodies)."""
        return np.linalg.norm(self.learned - self.true, axis=-1)

    @property
    def sentence(self) -> str:
        worst = float(self.distance[-1].max())
        text = f"{worst:.2g}" if np.isfinite(worst) else "infinite, since the integration failed"
        return f"At time {self.times[-1]:g} the largest distance from the true bodies is {text}."

    @property
    def rows(self) -> list[tuple[str, ...]]:
        middle = len(self.times) // 2
        return [
            (str(k + 1), f"{self.distance[middle, k]:.2g}", f"{self.distance[-1, k]:.2g}")
            for k in range(self.true.shape[1])
        ]

    @property
    def layout(self) -> Layout:
        """The plane, with the true paths in grey."""
        return Layout(
            "Bodies in motion",
            *self.axes,
            "Grey: the true paths. 'undamped animate RUN --out motion.html' makes an animation.",
            equal=self.equal,
            background=(reference(*joined(self.true), "true paths"),),
        )

    def traces(self, style: Style) -> list[Trace]:
        """The learned paths; for a single model also the rods at the end."""
        x, y = joined(self.learned)
        lines = [style.line(x, y, "learned paths", line={"width": 1.5})]
        if style.single and self.rods:
            both = (("learned", self.learned), ("true", self.true))
            for color, (title, bodies) in enumerate(both, start=1):
                x, y = _rods(bodies[-1], self.rods)
                lines.append(
                    style.line(x, y, f"{title} at the end", color=color, mode="lines+markers")
                )
        return lines


def motion_paths(model: StateModel, task: Task, *, start: int = 0, name: str = "") -> MotionPaths:
    """Return the learned and true paths of the bodies of a system.

    Args:
        model: A model of a dynamical system.
        task: Its task, whose longest test split has the true motion.
        start: Index of the initial state.
        name: Name of the model in figures.

    Example:
        >>> motion_paths(model, task).save_figure("paths.png")
    """
    return MotionPaths.of(follow(model, task, start + 1), name, start)


def _drawing(motion: Motion, states: Tensor) -> Drawing:
    if motion.system is None:
        return in_phase_plane(states, motion.space.names)
    finite = states.isfinite().all(-1)
    drawing = motion.system.drawing(states.nan_to_num())
    bodies = torch.where(finite[:, None, None], drawing.bodies, torch.nan)
    return Drawing(bodies, drawing.rods, drawing.x, drawing.y, drawing.equal)


def _rods(bodies: np.ndarray, rods: Rods) -> tuple[list[Any], list[Any]]:
    points = np.concatenate((np.zeros((1, 2)), bodies))
    x: list[Any] = []
    y: list[Any] = []
    for pair in rods:
        x += [*points[list(pair), 0].tolist(), None]
        y += [*points[list(pair), 1].tolist(), None]
    return x, y
