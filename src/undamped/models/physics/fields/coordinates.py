"""Positions and their partners in a state, and the features that perceptrons read of positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from undamped._base.contract import StateSpace, TaskShape
from undamped._base.errors import OptionError, ShapeError


def space_of(shape: TaskShape | StateSpace | int, owner: str) -> StateSpace:
    """Return the state space of a task, or one of that many positions and momenta, for `owner`."""
    if isinstance(shape, StateSpace):
        return shape
    if isinstance(shape, int):
        return StateSpace.canonical(shape)
    if shape.state_space is None:
        raise ShapeError(
            f"{owner} needs a task with a state_space, which names the coordinates of its states."
        )
    return shape.state_space


@dataclass(frozen=True)
class Coordinates:
    """A state space sorted into positions and their partners: momenta or velocities.

    Args:
        space: The state space.
        order: Indices of the positions, then of their partners.
        dof: Number of positions.
        angles: Which positions are angles; of those that are not given by cosine and sine.
        turning: Number of angles that are given by cosine and sine, the last of the positions.
    """

    space: StateSpace
    order: tuple[int, ...]
    dof: int
    angles: tuple[int, ...]
    turning: int = 0

    @classmethod
    def of(cls, shape: TaskShape | StateSpace | int, owner: str) -> Coordinates:
        """Return sorted coordinates for the model `owner`; raise an error if there are none."""
        space = space_of(shape, owner)
        positions = space.indices("position", "angle")
        partners = space.indices("momentum", "velocity")
        if len(positions) != len(partners) or len(positions) + len(partners) != space.size:
            raise OptionError(
                f"{owner} needs states of positions or angles with one momentum or velocity each, "
                f"got {_described(space)}. 'plain-ode' accepts any state."
            )
        angles = [i for i, index in enumerate(positions) if space.kinds[index] == "angle"]
        return cls(space, (*positions, *partners), len(positions), tuple(angles))

    @classmethod
    def with_velocities(cls, space: StateSpace, owner: str) -> Coordinates:
        """Sort a state space with velocities, whose angles may be given by cosine and sine.

        The order is: other positions, cosines, sines, velocities of other positions, velocities of
        these angles. Velocities belong to positions and angles in the order in which these appear.

        Args:
            space: The state space.
            owner: Name of the model, for the error message.
        """
        straight = space.indices("position", "angle")
        cosines, sines = space.indices("cosine"), space.indices("sine")
        velocities = space.indices("velocity")
        dof = len(straight) + len(cosines)
        paired = len(cosines) == len(sines) and len(velocities) == dof
        if not paired or dof + len(cosines) + len(velocities) != space.size:
            raise OptionError(
                f"{owner} needs states of positions, or angles by cosine and sine, with one "
                f"velocity each, got {_described(space)}. 'plain-ode' accepts any state."
            )
        starts = sorted((*straight, *cosines))  # index of the first feature of each position
        velocity_of = dict(zip(starts, velocities, strict=True))
        moving = [velocity_of[index] for index in (*straight, *cosines)]
        angles = [k for k, index in enumerate(straight) if space.kinds[index] == "angle"]
        order = (*straight, *cosines, *sines, *moving)
        return cls(space, order, dof, tuple(angles), len(cosines))

    @property
    def sorted(self) -> bool:
        """Whether states hold positions first already."""
        return self.order == tuple(range(len(self.order)))

    @property
    def moving(self) -> bool:
        """Whether the partners are velocities, not momenta."""
        return "velocity" in self.space.kinds

    def sort(self, states: Tensor) -> Tensor:
        """Return states with positions first and partners second."""
        return states if self.sorted else states[..., list(self.order)]

    def unsort(self, states: Tensor) -> Tensor:
        """Return sorted states in the order of the space."""
        if self.sorted:
            return states
        return states[..., torch.argsort(torch.tensor(self.order)).tolist()]


class PositionFeatures(nn.Module):
    """Features of positions for a perceptron: angles by cosine and sine, so that 2π is no edge.

    Equation:
        φ(q) = [positions, cos angles, sin angles]

    Args:
        dof: Number of positions.
        angles: Which of them are replaced by cosine and sine.

    Example:
        >>> PositionFeatures(2, [1])(torch.zeros(1, 2))
        tensor([[0., 1., 0.]])
    """

    straight: Tensor
    turning: Tensor

    def __init__(self, dof: int, angles: Sequence[int] = ()) -> None:
        super().__init__()
        straight = [k for k in range(dof) if k not in angles]
        self.register_buffer("straight", torch.tensor(straight, dtype=torch.long), persistent=False)
        turning = torch.tensor(sorted(angles), dtype=torch.long)
        self.register_buffer("turning", turning, persistent=False)
        self.size = dof + len(angles)
        self.plain = not angles

    def forward(self, q: Tensor) -> Tensor:
        """Return φ(q), (…, size)."""
        if self.plain:
            return q
        angle = q[..., self.turning]
        return torch.cat((q[..., self.straight], torch.cos(angle), torch.sin(angle)), dim=-1)

    def vjp(self, features: Tensor, cotangent: Tensor) -> Tensor:
        """Return cotangent · ∂φ/∂q, (…, dof), for features φ(q) and a cotangent (…, size)."""
        if self.plain:
            return cotangent
        _, cosine, sine = self._parts(features)
        straight, by_cosine, by_sine = self._parts(cotangent)
        merged = torch.cat((straight, cosine * by_sine - sine * by_cosine), dim=-1)
        return merged[..., torch.argsort(torch.cat((self.straight, self.turning)))]

    def jvp(self, features: Tensor, velocity: Tensor) -> Tensor:
        """Return ∂φ/∂q · velocity, (…, size), for features φ(q) and a velocity (…, dof)."""
        if self.plain:
            return velocity
        _, cosine, sine = self._parts(features)
        rate = velocity[..., self.turning]
        return torch.cat((velocity[..., self.straight], -sine * rate, cosine * rate), dim=-1)

    def _parts(self, features: Tensor) -> tuple[Tensor, ...]:
        straight, turning = len(self.straight), len(self.turning)
        return features.split((straight, turning, turning), dim=-1)


def split_inputs(space: StateSpace, values: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the coordinates of states, and the inputs that follow them (None without inputs)."""
    if not space.inputs:
        return values, None
    return values[..., : space.size], values[..., space.size :]


def _described(space: StateSpace) -> str:
    pairs = zip(space.names, space.kinds, strict=True)
    return ", ".join(f"{name} ({kind})" for name, kind in pairs)
