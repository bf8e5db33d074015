"""Reading recorded trajectories: states over time, from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import DataError
from undamped.lab.data.recordings.read import read_recordings
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.tasks.physics.trajectory_columns import Columns, check_angles, choose_columns

_LARGEST_RATIO = 100.0
"""The ratio of the scales of two coordinates above which a note is added."""


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
