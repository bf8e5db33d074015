"""Reading trajectories of one's own: states over time, from a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import DataError, explain
from undamped._base.options import Default, PositiveFloat
from undamped.lab.data.recordings.read import read_recordings
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.tasks.physics.own_columns import Columns, check_angles, choose_columns

_STRAY = 100.0
"""Sizes of coordinates that differ by more than this factor are worth a word."""


class OwnColumns(TypedDict, total=False):
    """Which column is what."""

    positions: Annotated[
        Sequence[str] | None, Default(None, "Columns of positions; the first half if none is said.")
    ]
    momenta: Annotated[
        Sequence[str] | None,
        Default(None, "Columns of momenta, in the order of positions; the second half likewise."),
    ]
    velocities: Annotated[
        Sequence[str] | None, Default(None, "Columns of velocities, in place of momenta.")
    ]
    inputs: Annotated[Sequence[str] | None, Default(None, "Columns of inputs: forces and so on.")]
    angles: Annotated[
        Sequence[str] | None, Default(None, "Which of the positions are angles, in radians.")
    ]
    differences: Annotated[
        bool, Default(False, "Whether velocities are made of positions, by central differences.")
    ]
    id: Annotated[str | None, Default(None, "Column that says to which recording a row belongs.")]
    time: Annotated[str | None, Default(None, "Column of times.")]
    step: Annotated[
        PositiveFloat | None, Default(None, "Time between two rows, where no column says it.")
    ]


@dataclass(frozen=True)
class OwnTrajectories:
    """Recordings of a system that moves.

    Args:
        columns: Which column is what.
        states: States (time, size) of every recording.
        inputs: Inputs (time, inputs) of every recording.
        times: Times (time,) of every recording, from zero on.
        ids: What the recordings are called.
        said: What was taken for what, in sentences.
    """

    columns: Columns
    states: list[Tensor]
    inputs: list[Tensor]
    times: list[np.ndarray]
    ids: list[str]
    said: list[str]

    def __len__(self) -> int:
        return len(self.states)

    def given(self, recording: int, row: int) -> Tensor:
        """Return a state with its inputs behind it."""
        return torch.cat((self.states[recording][row], self.inputs[recording][row]))

    def following(self, places: Sequence[tuple[int, int]], steps: int) -> tuple[Tensor, Tensor]:
        """Return the states after some places (steps, places, size), and how much later they are.

        Args:
            places: Recordings and rows.
            steps: How many states after each.
        """
        ahead = [self.states[i][k + 1 : k + 1 + steps] for i, k in places]
        later = [self.times[i][k + 1 : k + 1 + steps] - self.times[i][k] for i, k in places]
        return torch.stack(ahead, dim=1), torch.from_numpy(_even(np.stack(later, axis=1)))


def read_trajectories(file: str, asked: dict[str, Any]) -> OwnTrajectories:
    """Read a file, sort its columns and look whether angles are angles.

    Args:
        file: The file or folder.
        asked: See `OwnColumns`; complete.
    """
    series_set = read_recordings(
        file, needs_target=False, forecast=True, id=asked["id"], time=asked["time"]
    )
    source = Path(file).name
    names = ("positions", "momenta", "velocities", "inputs", "angles", "differences")
    columns = choose_columns(
        series_set.channels, source=source, **{name: asked[name] for name in names}
    )
    if any(np.isnan(one).any() for one in series_set.series):
        raise DataError(
            explain(
                source,
                expected="a number in every row and column",
                got="gaps",
                remedy="Fill them, or cut the recordings there.",
            )
        )
    series_set, about_angles = check_angles(columns, series_set)
    times, about_times = _times(series_set, asked["step"], source)
    states, inputs = _states(series_set, columns, times)
    said = [f"{source}: {series_set.describe()}.", columns.said, *about_angles, *about_times]
    said += _sizes(states, columns)
    return OwnTrajectories(columns, states, inputs, times, series_set.ids, said)


def _times(
    series_set: SeriesSet, step: float | None, source: str
) -> tuple[list[np.ndarray], list[str]]:
    if series_set.times is None:
        said = ["No column of times: rows are taken to be 1 apart; say step= or time=."]
        times = [(step or 1.0) * np.arange(len(one)) for one in series_set.series]
        return times, [] if step else said
    for name, times in zip(series_set.ids, series_set.times, strict=True):
        if (np.diff(times) <= 0).any():
            raise DataError(
                explain(
                    f"{source}: times of '{name}'",
                    expected="times that rise from row to row",
                    got="some that do not",
                    remedy="Sort the rows, or name the column that tells recordings apart with "
                    "id=.",
                )
            )
    return [times - times[0] for times in series_set.times], []


def _states(
    series_set: SeriesSet, columns: Columns, times: list[np.ndarray]
) -> tuple[list[Tensor], list[Tensor]]:
    def chosen(names: Sequence[str], one: np.ndarray) -> np.ndarray:
        return one[:, [series_set.channels.index(name) for name in names]]

    states, inputs = [], []
    for one, when in zip(series_set.series, times, strict=True):
        place = chosen(columns.positions, one)
        known = columns.partners[0] in series_set.channels
        partner = chosen(columns.partners, one) if known else differences(place, when)
        states.append(torch.from_numpy(np.concatenate((place, partner), axis=1)))
        inputs.append(torch.from_numpy(chosen(columns.inputs, one)))
    return states, inputs


def _sizes(states: list[Tensor], columns: Columns) -> list[str]:
    sizes = torch.cat(states).std(0)
    low, high = float(sizes.min()), float(sizes.max())
    if low and high / low < _STRAY and 1 / _STRAY < high < _STRAY:
        return []
    pairs = zip(columns.space.names, sizes.tolist(), strict=True)
    told = ", ".join(f"{name} {size:.2g}" for name, size in pairs)
    return [
        f"Spreads of the coordinates: {told}. Networks learn best where they are about 1; other "
        "units may help."
    ]


def differences(values: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return rates of change (time, …) by central differences; one-sided at the ends."""
    return np.gradient(values, times, axis=0, edge_order=2 if len(times) > 2 else 1)


def _even(times: np.ndarray) -> np.ndarray:
    """Return times (readings, places) that differ by rounding alone as the same."""
    mean = times.mean(axis=1, keepdims=True)
    same = np.abs(times - mean) <= 1e-6 * np.abs(mean)
    return np.where(same.all(axis=1, keepdims=True), np.broadcast_to(mean, times.shape), times)
