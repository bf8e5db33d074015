"""Which columns of a file are positions, and which go with them; and what is odd about them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from undamped._base.contract import Coordinate, StateSpace
from undamped._base.errors import DataError, OptionError, explain
from undamped.lab.data.recordings.series import SeriesSet

FULL_TURN = 2 * math.pi
_NEAR = 0.15
"""How far from a full turn, as a share of it, a jump may be and still count as one."""


@dataclass(frozen=True)
class Columns:
    """What the columns are.

    Args:
        positions: Names of the positions, angles among them.
        partners: Names of the momenta or velocities that go with them.
        partner: Which of the two they are.
        inputs: Names of the inputs.
        angles: Names of those positions that are angles.
        said: What was taken for what, for the person who trains.
    """

    positions: tuple[str, ...]
    partners: tuple[str, ...]
    partner: Coordinate
    inputs: tuple[str, ...] = ()
    angles: tuple[str, ...] = ()
    said: str = ""

    @property
    def space(self) -> StateSpace:
        """The state space."""
        kinds: tuple[Coordinate, ...] = (
            *(_kind(name, self.angles) for name in self.positions),
            *(self.partner for _ in self.partners),
        )
        return StateSpace((*self.positions, *self.partners), kinds, self.inputs)


def _kind(name: str, angles: Sequence[str]) -> Coordinate:
    return "angle" if name in angles else "position"


def choose_columns(
    channels: Sequence[str],
    *,
    positions: Sequence[str] | None,
    momenta: Sequence[str] | None,
    velocities: Sequence[str] | None,
    inputs: Sequence[str] | None,
    angles: Sequence[str] | None,
    differences: bool,
    source: str,
) -> Columns:
    """Say which column is what, from what was said and from the names.

    Args:
        channels: Names of the columns.
        positions: Positions, if they were said.
        momenta: Momenta, if they were said.
        velocities: Velocities, if they were said.
        inputs: Inputs, if there are any.
        angles: Positions that are angles.
        differences: Whether velocities are to be had as differences of the positions.
        source: Where the data came from, for messages.
    """
    given = (*(positions or ()), *(momenta or ()), *(velocities or ()), *(inputs or ()))
    for name in (*given, *(angles or ())):
        if name not in channels:
            raise DataError(
                explain(
                    f"{source}: column '{name}'",
                    expected=f"one of {', '.join(channels)}",
                    got="another name",
                    remedy="Check the names of the columns.",
                )
            )
    free = [name for name in channels if name not in (inputs or ())]
    if differences:
        if momenta or velocities:
            raise OptionError(
                explain(
                    "task.differences",
                    expected="false where momenta or velocities are named",
                    got="true",
                    remedy="Leave one of them out.",
                )
            )
        named = tuple(positions or free)
        partners, partner = tuple(f"d{name}/dt" for name in named), "velocity"
        said = f"Positions: {', '.join(named)}; velocities are their differences."
    else:
        named, partners, partner = _halves(free, positions, momenta, velocities, source)
        said = f"Positions: {', '.join(named)}; {_plural(partner)}: {', '.join(partners)}."
    if inputs:
        said += f" Inputs: {', '.join(inputs)}."
    turning = tuple(angles or ())
    if stray := [name for name in turning if name not in named]:
        raise OptionError(
            explain(
                "task.angles",
                expected=f"some of the positions {', '.join(named)}",
                got=", ".join(stray),
                remedy="Angles are positions; their momenta are not.",
            )
        )
    return Columns(named, partners, partner, tuple(inputs or ()), turning, said)


def _plural(kind: str) -> str:
    return {"momentum": "momenta", "velocity": "velocities"}[kind]


def _halves(
    free: Sequence[str],
    positions: Sequence[str] | None,
    momenta: Sequence[str] | None,
    velocities: Sequence[str] | None,
    source: str,
) -> tuple[tuple[str, ...], tuple[str, ...], Coordinate]:
    if momenta and velocities:
        raise OptionError(
            explain(
                "task.velocities",
                expected="none where momenta are named",
                got=", ".join(velocities),
                remedy="Give one of the two.",
            )
        )
    partners = tuple(momenta or velocities or ())
    partner: Coordinate = "velocity" if velocities else "momentum"
    if not partners and not positions:
        by_name = _by_name(free)
        if by_name is not None:
            return by_name
    rest = [name for name in free if name not in (*(positions or ()), *partners)]
    if not partners and not positions:
        _refuse_odd(rest, source)
        rest, partners = rest[: len(rest) // 2], tuple(rest[len(rest) // 2 :])
    named = tuple(positions or rest)
    partners = partners or tuple(rest)
    if len(named) != len(partners):
        raise DataError(
            explain(
                f"{source}: columns of a state",
                expected="a momentum or velocity for every position",
                got=f"positions {', '.join(named)} and partners {', '.join(partners) or 'none'}",
                remedy="Name them with positions= and momenta= or velocities=, or give "
                "differences=true to have velocities made of positions.",
            )
        )
    return named, partners, partner


def _refuse_odd(names: Sequence[str], source: str) -> None:
    if len(names) % 2 or not names:
        raise DataError(
            explain(
                f"{source}: columns of a state",
                expected="an even number: positions, and a momentum or velocity for each",
                got=f"{len(names)} ({', '.join(names)})",
                remedy="Name them with positions= and momenta= or velocities=, inputs with "
                "inputs=, or give differences=true where all are positions.",
            )
        )


def _by_name(names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...], Coordinate] | None:
    """Return positions and partners where names are q… and p… (or v…) with equal endings."""
    for letter, kind in (("p", "momentum"), ("v", "velocity")):
        first = [n for n in names if re.fullmatch(r"q\w*", n)]
        second = [letter + n[1:] for n in first]
        if first and set(names) == {*first, *second}:
            return tuple(first), tuple(second), kind  # type: ignore[return-value]
    return None


def check_angles(columns: Columns, series_set: SeriesSet) -> tuple[SeriesSet, list[str]]:
    """Unroll angles that jump by a full turn, and refuse degrees and angles nobody declared.

    Args:
        columns: What the columns are.
        series_set: The recordings.

    Returns:
        The recordings, with angles unrolled, and what was done in sentences.
    """
    said, series = [], [np.array(one, dtype=np.float64) for one in series_set.series]
    for name in columns.positions:
        place = series_set.channels.index(name)
        jumps = np.concatenate([np.abs(np.diff(one[:, place])) for one in series])
        by_degrees = _count_near(jumps, 360.0)
        by_turns = _count_near(jumps, FULL_TURN) if not by_degrees else 0
        if by_degrees and jumps.max() < 500:
            raise DataError(
                explain(
                    f"{series_set.source}: column '{name}'",
                    expected="angles in radians",
                    got=f"{by_degrees} jumps of about 360, as degrees have",
                    remedy="Convert it with numpy.radians, velocities and momenta too.",
                )
            )
        if name in columns.angles:
            if by_turns:
                for one in series:
                    one[:, place] = np.unwrap(one[:, place])
                said.append(f"'{name}' jumps by a full turn {by_turns} times: unrolled.")
            largest = max(float(np.nanmax(np.abs(one[:, place]))) for one in series)
            if largest > 3 * FULL_TURN:
                said.append(
                    f"'{name}' reaches {largest:.4g} radians, {largest / FULL_TURN:.1f} turns: if "
                    "these are degrees, convert them with numpy.radians."
                )
        elif by_turns and jumps.max() < 1.3 * FULL_TURN:
            raise DataError(
                explain(
                    f"{series_set.source}: column '{name}'",
                    expected="a position that moves without jumps",
                    got=f"{by_turns} jumps of about 2π, as an angle has that is cut at a turn",
                    remedy=f"Say angles={name}, and it is unrolled.",
                )
            )
    return replace(series_set, series=series), said


def _count_near(jumps: np.ndarray, turn: float) -> int:
    """Return how many jumps are about a full turn, where all others are far smaller."""
    large = jumps[jumps > (1 - _NEAR) * turn]
    rest = jumps[jumps <= (1 - _NEAR) * turn]
    typical = float(np.quantile(rest, 0.99)) if len(rest) else 0.0
    near = large[np.abs(large - turn) < max(_NEAR * turn, 2 * typical)]
    return len(near) if typical < 0.35 * turn else 0
