"""Reading recorded trajectories from a file: states over time, and the roles of its columns."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypedDict

import numpy as np
import torch
from torch import Tensor

from undamped._base.contract import Coordinate, StateSpace
from undamped._base.errors import DataError, OptionError, shortened
from undamped._base.options import Default, PositiveFloat
from undamped.lab.data.recordings.read import read_recordings
from undamped.lab.data.recordings.series import SeriesSet

FULL_TURN = 2 * math.pi
_NEAR = 0.15
"""The largest relative difference of a jump from a full turn."""
_PLURALS = {"momentum": "momenta", "velocity": "velocities"}

_LARGEST_RATIO = 100.0
"""The ratio of the scales of two coordinates above which a note is added."""


class TrajectoryColumns(TypedDict, total=False):
    """The roles of the columns of a file of trajectories."""

    positions: Annotated[
        Sequence[str] | None, Default(None, "Columns of positions; by default the first half.")
    ]
    momenta: Annotated[
        Sequence[str] | None,
        Default(None, "Columns of momenta, in the order of positions; by default the second half."),
    ]
    velocities: Annotated[
        Sequence[str] | None, Default(None, "Columns of velocities instead of momenta.")
    ]
    inputs: Annotated[Sequence[str] | None, Default(None, "Columns of inputs, such as forces.")]
    angles: Annotated[
        Sequence[str] | None, Default(None, "Which of the positions are angles, in radians.")
    ]
    differences: Annotated[
        bool, Default(False, "Whether velocities are central differences of the positions.")
    ]
    id: Annotated[str | None, Default(None, "Column of the recording that a row belongs to.")]
    time: Annotated[str | None, Default(None, "Column of times.")]
    step: Annotated[
        PositiveFloat | None, Default(None, "Time between two rows, without a column of times.")
    ]


@dataclass(frozen=True)
class Columns:
    """The roles of the columns of a file.

    Args:
        positions: Names of the positions, angles included.
        partners: Names of their momenta or velocities.
        partner: Which of the two they are.
        inputs: Names of the inputs.
        angles: Names of the positions that are angles.
        note: The roles in a sentence.
    """

    positions: tuple[str, ...]
    partners: tuple[str, ...]
    partner: Coordinate
    inputs: tuple[str, ...] = ()
    angles: tuple[str, ...] = ()
    note: str = ""

    @property
    def space(self) -> StateSpace:
        """The state space."""

        def kind(name: str) -> Coordinate:
            return "angle" if name in self.angles else "position"

        partners: tuple[Coordinate, ...] = (self.partner,) * len(self.partners)
        kinds = (*map(kind, self.positions), *partners)
        return StateSpace((*self.positions, *self.partners), kinds, self.inputs)


def choose_columns(channels: Sequence[str], roles: Mapping[str, Any], source: str) -> Columns:
    """Return the roles of columns, from the options and from the names.

    Args:
        channels: Names of the columns.
        roles: Complete options; see `TrajectoryColumns`.
        source: The name of the file, for messages.
    """
    inputs, angles = tuple(roles["inputs"] or ()), tuple(roles["angles"] or ())
    _check_names(channels, roles, source)
    names = [name for name in channels if name not in inputs]
    if roles["differences"]:
        if roles["momenta"] or roles["velocities"]:
            raise OptionError(
                "task.differences must be false where momenta or velocities are named. Leave one "
                "of them out."
            )
        positions = tuple(roles["positions"] or names)
        partners, partner = tuple(f"d{name}/dt" for name in positions), "velocity"
        note = f"Positions: {', '.join(positions)}; velocities are their differences."
    else:
        positions, partners, partner = _choose_halves(names, roles, source)
        note = f"Positions: {', '.join(positions)}; {_PLURALS[partner]}: {', '.join(partners)}."
    if inputs:
        note += f" Inputs: {', '.join(inputs)}."
    if wrong := [name for name in angles if name not in positions]:
        raise OptionError(
            f"task.angles must be some of the positions {_listed(positions)}; got "
            f"{_listed(wrong)}. Momenta and velocities of angles are not angles."
        )
    return Columns(positions, partners, partner, inputs, angles, note)


def _listed(names: Sequence[str]) -> str:
    return shortened(", ".join(names))


def _check_names(channels: Sequence[str], roles: Mapping[str, Any], source: str) -> None:
    for role in ("positions", "momenta", "velocities", "inputs", "angles"):
        for name in roles[role] or ():
            if name not in channels:
                raise DataError(
                    f"{source} has no column '{shortened(name)}' ({role}=). Its columns are "
                    f"{_listed(channels)}."
                )


def _choose_halves(
    names: Sequence[str], roles: Mapping[str, Any], source: str
) -> tuple[tuple[str, ...], tuple[str, ...], Coordinate]:
    """Return positions, their partners, and the kind of the partners."""
    positions, momenta, velocities = (roles[k] for k in ("positions", "momenta", "velocities"))
    if momenta and velocities:
        raise OptionError(
            f"task.velocities must be empty where momenta are named, got {_listed(velocities)}. "
            "Give one of the two."
        )
    partners = tuple(momenta or velocities or ())
    partner: Coordinate = "velocity" if velocities else "momentum"
    if not partners and not positions:
        return _halves_by_name(names) or _halves_in_order(names, source)
    remaining = tuple(name for name in names if name not in (*(positions or ()), *partners))
    positions, partners = tuple(positions or remaining), partners or remaining
    if len(positions) != len(partners):
        raise DataError(
            f"{source} must have a momentum or velocity for every position; got positions "
            f"{_listed(positions)} and {_listed(partners) or 'no others'}. Name them with "
            "positions= and momenta= or velocities=, or set differences=true to compute "
            "velocities from positions."
        )
    return positions, partners, partner


def _halves_in_order(
    names: Sequence[str], source: str
) -> tuple[tuple[str, ...], tuple[str, ...], Coordinate]:
    """Return the first half of the columns as positions, the second as their momenta."""
    if len(names) % 2 or not names:
        raise DataError(
            f"{source} must have an even number of columns, positions and a momentum or "
            f"velocity for each; got {len(names)} ({_listed(names)}). Name them with "
            "positions= and momenta= or velocities=, inputs with inputs=, or set "
            "differences=true if all are positions."
        )
    half = len(names) // 2
    return tuple(names[:half]), tuple(names[half:]), "momentum"


def _halves_by_name(
    names: Sequence[str],
) -> tuple[tuple[str, ...], tuple[str, ...], Coordinate] | None:
    """Return positions and partners where names are q… and p… (or v…) with equal endings."""
    first = tuple(name for name in names if re.fullmatch(r"q\w*", name))
    kinds: dict[str, Coordinate] = {"p": "momentum", "v": "velocity"}
    for letter, kind in kinds.items():
        second = tuple(letter + name[1:] for name in first)
        if first and set(names) == {*first, *second}:
            return first, second, kind
    return None


def check_angles(columns: Columns, series_set: SeriesSet) -> tuple[SeriesSet, list[str]]:
    """Unwrap angles that jump by a full turn, and refuse degrees and undeclared angles.

    Args:
        columns: The roles of the columns.
        series_set: The recordings.

    Returns:
        The recordings with unwrapped angles, and notes.
    """
    notes, recordings = [], [np.array(series, dtype=np.float64) for series in series_set.series]
    for name in columns.positions:
        column = series_set.channels.index(name)
        jumps = np.concatenate([np.abs(np.diff(series[:, column])) for series in recordings])
        by_degrees = _count_near(jumps, 360.0)
        by_turns = _count_near(jumps, FULL_TURN) if not by_degrees else 0
        if by_degrees and jumps.max() < 500:
            raise DataError(
                f"{series_set.source}: column '{name}' must have angles in radians, got "
                f"{by_degrees} jumps of about 360, as degrees have. Convert it with "
                "numpy.radians, its velocities and momenta too."
            )
        if name in columns.angles:
            if by_turns:
                for series in recordings:
                    series[:, column] = np.unwrap(series[:, column])
                notes.append(f"'{name}' jumps by a full turn {by_turns} times: unwrapped.")
            largest = max(float(np.nanmax(np.abs(series[:, column]))) for series in recordings)
            if largest > 3 * FULL_TURN:
                notes.append(
                    f"'{name}' reaches {largest:.4g} radians, {largest / FULL_TURN:.1f} turns: if "
                    "these are degrees, convert them with numpy.radians."
                )
        elif by_turns and jumps.max() < 1.3 * FULL_TURN:
            raise DataError(
                f"{series_set.source}: column '{name}' has {by_turns} jumps of about 2π, as a "
                f"wrapped angle has. Set angles={name} to unwrap it."
            )
    return replace(series_set, series=recordings), notes


def _count_near(jumps: np.ndarray, turn: float) -> int:
    """Return how many jumps are about a full turn, if all others are far smaller."""
    large = jumps[jumps > (1 - _NEAR) * turn]
    small = jumps[jumps <= (1 - _NEAR) * turn]
    typical = float(np.quantile(small, 0.99)) if len(small) else 0.0
    near = large[np.abs(large - turn) < max(_NEAR * turn, 2 * typical)]
    return len(near) if typical < 0.35 * turn else 0


@dataclass(frozen=True)
class RecordedTrajectories:
    """Recordings of a system that moves.

    Args:
        columns: The roles of the columns.
        states: States (time, size) of every recording.
        inputs: Inputs (time, inputs) of every recording.
        times: Times (time,) of every recording, from zero.
        ids: Names of the recordings.
        notes: What was inferred and done, in sentences.
    """

    columns: Columns
    states: list[Tensor]
    inputs: list[Tensor]
    times: list[np.ndarray]
    ids: list[str]
    notes: list[str]

    def __len__(self) -> int:
        return len(self.states)

    def state(self, recording: int, row: int) -> Tensor:
        """Return a state, followed by its inputs."""
        return torch.cat((self.states[recording][row], self.inputs[recording][row]))

    def future(self, starts: Sequence[tuple[int, int]], steps: int) -> tuple[Tensor, Tensor]:
        """Return the states after some starts (steps, starts, size), and their times.

        Args:
            starts: Recordings and rows.
            steps: How many states after each; times are counted from the start.
        """
        states = [self.states[i][k + 1 : k + 1 + steps] for i, k in starts]
        times = [self.times[i][k + 1 : k + 1 + steps] - self.times[i][k] for i, k in starts]
        return torch.stack(states, dim=1), torch.from_numpy(_even(np.stack(times, axis=1)))


def read_trajectories(file: str, options: Mapping[str, Any]) -> RecordedTrajectories:
    """Read a file, choose the roles of its columns, and unwrap angles.

    Args:
        file: The file or folder.
        options: Complete options; see `TrajectoryColumns`.
    """
    series_set = read_recordings(
        file, needs_target=False, forecast=True, id=options["id"], time=options["time"]
    )
    source = Path(file).name
    columns = choose_columns(series_set.channels, options, source)
    if any(np.isnan(series).any() for series in series_set.series):
        raise DataError(
            f"{source} has missing values, but every row and column needs a number. Fill them, or "
            "cut the recordings there."
        )
    series_set, angle_notes = check_angles(columns, series_set)
    times, time_notes = _times(series_set, options["step"], source)
    states, inputs = _states(series_set, columns, times)
    notes = [f"{source}: {series_set.describe()}.", columns.note, *angle_notes, *time_notes]
    notes += _scale_notes(states, columns)
    return RecordedTrajectories(columns, states, inputs, times, series_set.ids, notes)


def _times(
    series_set: SeriesSet, step: float | None, source: str
) -> tuple[list[np.ndarray], list[str]]:
    """Return the times of every recording from zero, and notes."""
    if series_set.times is None:
        note = "No column of times: rows are assumed to be 1 apart; set step= or time=."
        times = [(step or 1.0) * np.arange(len(series)) for series in series_set.series]
        return times, [] if step else [note]
    for name, times in zip(series_set.ids, series_set.times, strict=True):
        if (np.diff(times) <= 0).any():
            raise DataError(
                f"{source}: the times of '{name}' must increase from row to row. Sort the rows, or "
                "name the column of recordings with id=."
            )
    return [times - times[0] for times in series_set.times], []


def _states(
    series_set: SeriesSet, columns: Columns, times: list[np.ndarray]
) -> tuple[list[Tensor], list[Tensor]]:
    def select(names: Sequence[str], series: np.ndarray) -> np.ndarray:
        return series[:, [series_set.channels.index(name) for name in names]]

    states, inputs = [], []
    has_partners = columns.partners[0] in series_set.channels
    for series, timestamps in zip(series_set.series, times, strict=True):
        positions = select(columns.positions, series)
        partners = (
            select(columns.partners, series) if has_partners else differences(positions, timestamps)
        )
        states.append(torch.from_numpy(np.concatenate((positions, partners), axis=1)))
        inputs.append(torch.from_numpy(select(columns.inputs, series)))
    return states, inputs


def _scale_notes(states: list[Tensor], columns: Columns) -> list[str]:
    scales = torch.cat(states).std(0)
    low, high = float(scales.min()), float(scales.max())
    if low and high / low < _LARGEST_RATIO and 1 / _LARGEST_RATIO < high < _LARGEST_RATIO:
        return []
    pairs = zip(columns.space.names, scales.tolist(), strict=True)
    listed = ", ".join(f"{name} {scale:.2g}" for name, scale in pairs)
    return [
        f"Standard deviations of the coordinates: {listed}. Networks learn best if they are about "
        "1; other units may help."
    ]


def differences(values: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return rates of change (time, …) by central differences; one-sided at the ends."""
    return np.gradient(values, times, axis=0, edge_order=2 if len(times) > 2 else 1)


def _even(times: np.ndarray) -> np.ndarray:
    """Return times (readings, starts) with differences by rounding removed."""
    mean = times.mean(axis=1, keepdims=True)
    same = np.abs(times - mean) <= 1e-6 * np.abs(mean)
    return np.where(same.all(axis=1, keepdims=True), np.broadcast_to(mean, times.shape), times)
