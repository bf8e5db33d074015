"""Paths of bodies in the plane, and phase portraits, learned and true."""

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
from undamped.lab.tasks.physics.scores import valid_time
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


@instruments.register("motion_portrait")
@dataclass(frozen=True)
class MotionPortrait(MotionResult):
    """A position and its momentum or velocity along some trajectories, learned and true.

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

    question = "Does the learned flow follow the true one?"
    page_order = 10
    columns = ("over time", "relative error", "valid until", "of")

    @classmethod
    def of(cls, motion: Motion, name: str, dof: int = 0) -> Self:
        """Return the portrait of one degree of freedom of a motion."""
        count = len(motion.space.indices("momentum", "velocity"))
        if not 0 <= dof < count:
            raise OptionError(f"dof must be from 0 to {count - 1}, got {dof}.")
        position, partner = motion.pair(dof)
        names = motion.space.names
        cosine = motion.space.kinds[position] == "cosine"
        planes = [
            _plane(states, motion, position, partner) for states in (motion.true, motion.learned)
        ]
        errors = motion.errors
        times = motion.times[1:].unsqueeze(1).expand(-1, errors.shape[1])
        return cls(
            ("angle" if cosine else names[position], names[partner]),
            motion.times.numpy(),
            *planes,
            errors=errors.numpy(),
            valid=valid_time(errors[1:], times).mean().item(),
            name=name,
        )

    @property
    def sentence(self) -> str:
        error = np.exp(np.log(self.errors[1:]).mean())
        return (
            f"Relative error {error:.2g} over a time of {self.times[-1]:g} (geometric mean); "
            f"the error is below 10 % until time {self.valid:.3g} on average."
        )

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The error of the first half of the time, and of all of it."""
        rows = []
        for stop in (len(self.times) // 2, len(self.times)):
            error = np.exp(np.log(self.errors[1:stop]).mean()) if stop > 1 else 0.0
            end = f"{self.times[max(1, stop) - 1]:.3g}"
            rows.append((end, f"{error:.2g}", f"{self.valid:.3g}", f"{self.times[-1]:g}"))
        return rows

    @property
    def layout(self) -> Layout:
        """Momentum or velocity over position."""
        across, up = self.coordinates
        return Layout(
            "Phase portrait",
            across,
            up,
            "Grey: the true motion from the same initial states; the learned one should lie on it.",
            background=(reference(*joined(self.true), "true motion"),),
        )

    def traces(self, style: Style) -> list[Trace]:
        """All learned trajectories as one line with gaps; for a single model also their starts."""
        x, y = joined(self.learned)
        line = style.line(x, y, "learned motion", line={"width": 1.5})
        if not style.single:
            return [line]
        first = self.learned[0]
        return [line, style.points(first[:, 0], first[:, 1], "starts", color=1)]


def motion_portrait(
    model: StateModel, task: Task, *, dof: int = 0, count: int = 6, name: str = ""
) -> MotionPortrait:
    """Return the learned and true motion in the plane of a position and its momentum or velocity.

    Args:
        model: A model of a dynamical system.
        task: Its task, whose longest test split has the true motion.
        dof: Index of the degree of freedom.
        count: Number of trajectories.
        name: Name of the model in figures.

    Example:
        >>> motion_portrait(model, task).plot()
    """
    return MotionPortrait.of(follow(model, task, count), name, dof)


def _plane(states: Tensor, motion: Motion, position: int, partner: int) -> np.ndarray:
    values = states[..., position]
    if motion.space.kinds[position] == "cosine":
        index = motion.space.indices("cosine").index(position)
        values = torch.atan2(states[..., motion.space.indices("sine")[index]], values)
    return torch.stack((values, states[..., partner]), dim=-1).numpy()
