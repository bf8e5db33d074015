"""Which numbers of a state are positions, and which go with them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from undamped._base.contract import StateSpace
from undamped._base.errors import OptionError, explain


@dataclass(frozen=True)
class Coordinates:
    """A state space sorted into positions and what goes with them: momenta or velocities.

    Args:
        space: The state space.
        order: Where the positions stand, then their partners.
        freedoms: Number of positions.
        angles: Which positions are angles.
    """

    space: StateSpace
    order: tuple[int, ...]
    freedoms: int
    angles: tuple[int, ...]

    @classmethod
    def of(cls, space: StateSpace, owner: str) -> Coordinates:
        """Sort a state space, or say why it has no such form.

        Args:
            space: The state space.
            owner: Who asks, for the message.
        """
        positions = space.indices("position", "angle")
        partners = space.indices("momentum", "velocity")
        if len(positions) != len(partners) or len(positions) + len(partners) != space.size:
            raise OptionError(
                explain(
                    f"states of {owner}",
                    expected="positions or angles, and a momentum or velocity for each",
                    got=_described(space),
                    remedy="Name one partner for every position, or choose 'plain-ode', which "
                    "takes any state.",
                )
            )
        angles = [i for i, place in enumerate(positions) if space.kinds[place] == "angle"]
        return cls(space, (*positions, *partners), len(positions), tuple(angles))

    @property
    def sorted(self) -> bool:
        """Whether states already hold positions first."""
        return self.order == tuple(range(len(self.order)))

    @property
    def moving(self) -> bool:
        """Whether the partners are velocities, not momenta."""
        return "velocity" in self.space.kinds

    def sort(self, states: Tensor) -> Tensor:
        """Return states with positions first and partners second."""
        return states if self.sorted else states[..., list(self.order)]

    def unsort(self, states: Tensor) -> Tensor:
        """Return sorted states as the space has them."""
        if self.sorted:
            return states
        return states[..., torch.argsort(torch.tensor(self.order)).tolist()]


def split_inputs(space: StateSpace, given: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the coordinates of states, and the inputs that stand behind them."""
    if not space.inputs:
        return given, None
    return given[..., : space.size], given[..., space.size :]


def _described(space: StateSpace) -> str:
    pairs = zip(space.names, space.kinds, strict=True)
    return ", ".join(f"{name} ({kind})" for name, kind in pairs)
