"""State spaces of positions, angles and velocities, where an angle may come by cosine and sine."""

from __future__ import annotations

from dataclasses import dataclass

from undamped._base.contract import StateSpace
from undamped._base.errors import OptionError, explain


@dataclass(frozen=True)
class EmbeddedSpace:
    """A state space with velocities, sorted.

    Args:
        space: The state space.
        order: Where the features of positions stand, straight ones first, then cosines, then
            sines; then the velocities, straight ones first, then those of angles.
        straight: Number of positions that are not given by cosine and sine.
        turning: Number of angles that are.
        angles: Which of the straight positions are angles.
    """

    space: StateSpace
    order: tuple[int, ...]
    straight: int
    turning: int
    angles: tuple[int, ...]

    @property
    def freedoms(self) -> int:
        """Number of velocities."""
        return self.straight + self.turning

    @classmethod
    def of(cls, space: StateSpace, owner: str) -> EmbeddedSpace:
        """Sort a state space, or say why it has no such form.

        Velocities belong to positions and angles in the order in which these stand.

        Args:
            space: The state space.
            owner: Who asks, for the message.
        """
        straight = space.indices("position", "angle")
        cosines, sines = space.indices("cosine"), space.indices("sine")
        velocities = space.indices("velocity")
        whole = len(straight) + 2 * len(cosines) + len(velocities)
        paired = len(cosines) == len(sines) and len(velocities) == len(straight) + len(cosines)
        if not paired or whole != space.size:
            pairs = zip(space.names, space.kinds, strict=True)
            raise OptionError(
                explain(
                    f"states of {owner}",
                    expected="positions, or angles by cosine and sine, and a velocity for each",
                    got=", ".join(f"{name} ({kind})" for name, kind in pairs),
                    remedy="Name the kinds of all coordinates, or choose 'plain-ode', which takes "
                    "any state.",
                )
            )
        standing = sorted((*straight, *cosines))  # where each freedom begins
        of = {place: velocities[number] for number, place in enumerate(standing)}
        moving = [of[place] for place in (*straight, *cosines)]
        angles = [k for k, place in enumerate(straight) if space.kinds[place] == "angle"]
        order = (*straight, *cosines, *sines, *moving)
        return cls(space, order, len(straight), len(cosines), tuple(angles))
