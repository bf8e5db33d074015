"""What the numbers of a state are, for tasks about systems that move."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from undamped._base.errors import OptionError

Coordinate = Literal["position", "velocity", "momentum", "angle", "cosine", "sine", "other"]


@dataclass(frozen=True)
class StateSpace:
    """The coordinates of a state, in the order of its features, and the inputs behind them.

    A batch of states holds the coordinates and then the inputs u, side by side. A model that
    wants to know what is a position and what a momentum reads it here.

    Args:
        names: What the coordinates are called, for pictures and tables.
        kinds: What each of them is; an angle is a position that comes round again after 2π, and
            may be given by its cosine and its sine instead.
        inputs: What the inputs u are called: forces and the like, given and not predicted.
        rods: Pairs of bodies that are kept at a distance, where positions are places of bodies
            in the plane one after the other: numbers count from 1, and 0 is the origin.

    Example:
        >>> pendulum = StateSpace(("θ", "p"), ("angle", "momentum"))
        >>> pendulum.indices("angle", "position")
        (0,)
    """

    names: tuple[str, ...]
    kinds: tuple[Coordinate, ...]
    inputs: tuple[str, ...] = ()
    rods: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if len(self.names) != len(self.kinds) or not self.names:
            raise OptionError(
                f"StateSpace needs one kind for each coordinate, got {len(self.names)} names and "
                f"{len(self.kinds)} kinds."
            )

    @classmethod
    def canonical(cls, dof: int, inputs: int = 0) -> StateSpace:
        """Return the space of positions q and momenta p, and of some inputs u.

        Args:
            freedoms: Positions; as many momenta.
            inputs: Inputs.
        """
        names = tuple(f"{letter}{k + 1}" for letter in "qp" for k in range(dof))
        kinds: tuple[Coordinate, ...] = ("position",) * dof + ("momentum",) * dof
        return cls(names, kinds, tuple(f"u{k + 1}" for k in range(inputs)))

    @classmethod
    def moving(cls, dof: int, inputs: int = 0) -> StateSpace:
        """Return the space of positions q and velocities v, and of some inputs u.

        Args:
            freedoms: Positions; as many velocities.
            inputs: Inputs.
        """
        names = tuple(f"{letter}{k + 1}" for letter in "qv" for k in range(dof))
        kinds: tuple[Coordinate, ...] = ("position",) * dof + ("velocity",) * dof
        return cls(names, kinds, tuple(f"u{k + 1}" for k in range(inputs)))

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return len(self.names)

    def indices(self, *kinds: Coordinate) -> tuple[int, ...]:
        """Return where coordinates of these kinds stand."""
        return tuple(i for i, kind in enumerate(self.kinds) if kind in kinds)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for run.json; rods are left out where there are none."""
        plain = asdict(self)
        if not self.rods:
            del plain["rods"]
        return plain

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> StateSpace:
        """Read what `to_dict` wrote."""
        values = {name: tuple(value) for name, value in stored.items()}
        values["rods"] = tuple((a, b) for a, b in values.get("rods", ()))
        return cls(**values)
