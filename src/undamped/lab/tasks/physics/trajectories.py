"""Recorded trajectories as a task: learning the motion of the system that they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Unpack, cast

import numpy as np
import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import Batch
from undamped._base.errors import DataError
from undamped._base.options import Default, NonNegativeInt, PositiveInt
from undamped._base.registry import tasks
from undamped.lab.data.recordings import splits
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.data.recordings.splits import DEFAULT_FRACTIONS
from undamped.lab.tasks.physics.motion_task import LearningOptions, StateTask
from undamped.lab.tasks.physics.scores import RolloutScores
from undamped.lab.tasks.physics.trajectory_files import (
    TrajectoryColumns,
    differences,
    read_trajectories,
)
from undamped.lab.tasks.task import Split, Task


class TrajectoryOptions(TrajectoryColumns, LearningOptions, total=False):
    """What is learnt of recorded trajectories, and how they are split."""

    horizon: Annotated[
        PositiveInt | None,
        Default(None, "Readings of a tested trajectory; by default as many as there are."),
    ]
    fractions: Annotated[
        Sequence[float], Default(DEFAULT_FRACTIONS, "Fractions of training, validation and test.")
    ]
    split_seed: Annotated[NonNegativeInt, Default(0, "Seed of the split.")]


@tasks.register("trajectories")
class Trajectories(StateTask):
    """Learn the motion of your own system.

    A file of states over time: by default, the first half of the columns are positions and the
    second half momenta (or velocities); with `differences=true` all are positions. Every recording
    is in one split; one or two recordings are split by time.

    Args:
        file: The file or folder.

    Example:
        >>> build("trajectories", file="flights.csv", id="flight", time="t")  # doctest: +SKIP

    Reference:
        S. Greydanus, M. Dzamba, J. Yosinski. Hamiltonian neural networks. NeurIPS, 2019, who use
        differences for their real pendulum, too.
    """

    @checked
    def __init__(self, file: str, **options: Unpack[TrajectoryOptions]) -> None:
        complete = cast(dict[str, Any], options)  # `checked` fills in the defaults
        super().__init__(complete)
        self.file = file
        self.recordings = read_trajectories(file, complete)
        self.state_space = self.recordings.columns.space
        self.output_size = self.state_space.size
        self.input_size = self.output_size + len(self.state_space.inputs)
        # A rate is a central difference of three readings.
        self.length = 3 if self.form == "derivative" else self.window + 1
        self._split(complete)
        self.horizon = self._check_horizon(complete["horizon"])

    def _split(self, options: Mapping[str, Any]) -> None:
        """Cut recordings into windows, and split those."""
        pairs = zip(self.recordings.states, self.recordings.inputs, strict=True)
        rows = [torch.cat(pair, dim=1).numpy().astype(np.float32) for pair in pairs]
        space, source = self.recordings.columns.space, Path(self.file).name
        names, ids = [*space.names, *space.inputs], self.recordings.ids
        windows = SeriesSet(rows, names, ids=ids, source=source).windows(self.length, 1)
        by, why = splits.choose(windows, "step-regression")
        fractions, seed = options["fractions"], options["split_seed"]
        self.splits = splits.split(windows, fractions=fractions, by=by, seed=seed)
        starts = [(i, k) for i, row in enumerate(rows) for k in range(len(row) - self.length + 1)]
        self.windows = np.array(starts, dtype=np.int64)
        self.split_note = splits.describe(by, why, self.splits)
        self.split_record = {
            "by": by,
            "fractions": [float(fraction) for fraction in fractions],
            "seed": seed,
            "sizes": {name: len(index) for name, index in self.splits.items()},
            "hash": splits.hash_of(self.splits),
        }

    def _indices(self, split: Split) -> np.ndarray:
        return self.splits[split] if len(self.splits[split]) else self.splits["train"]

    @cached_property
    def test_segments(self) -> list[tuple[int, int, int]]:
        """Recording, first and last row of every segment of the test split."""
        windows = self.windows[self.splits["test"]]
        segments = []
        for recording in np.unique(windows[:, 0]):
            first = windows[windows[:, 0] == recording, 1]
            segments.append((int(recording), int(first.min()), int(first.max()) + self.length - 1))
        return segments

    def _check_horizon(self, horizon: int | None) -> int:
        shortest = min((last - first for _, first, last in self.test_segments), default=0)
        if horizon is not None and horizon > shortest:
            raise DataError(
                f"task.horizon must be at most {shortest}, the readings of the shortest test "
                f"segment; got {horizon}. Leave it out, or record for longer."
            )
        return horizon or shortest

    # Batches

    def sequences(self, split: Split) -> int:
        """Return the number of windows of a split; an empty split means that of training."""
        return len(self._indices(split))

    @cached_property
    def _rates(self) -> list[Tensor]:
        pairs = zip(self.recordings.states, self.recordings.times, strict=True)
        return [torch.from_numpy(differences(states.numpy(), times)) for states, times in pairs]

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Return states with their rates, or with the readings to come."""
        starts = [(int(i), int(k)) for i, k in self.windows[self._indices(split)[index.numpy()]]]
        if self.form == "derivative":
            middles = [(i, k + 1) for i, k in starts]
            rates = torch.stack([self._rates[i][k] for i, k in middles])
            return Batch(self.states(middles), rates.float())
        targets, times = self.recordings.future(starts, self.window)
        return Batch(self.states(starts), targets.float(), target_times=times)

    def states(self, rows: Sequence[tuple[int, int]]) -> Tensor:
        """Return some states, by recording and row, followed by their inputs."""
        return torch.stack([self.recordings.state(i, k) for i, k in rows]).float()

    def test_tasks(self) -> dict[str, Task]:
        """Return the test windows, and trajectories over the segments of the test split."""
        if not self.test_segments:
            return {}
        return {"test": self, f"{self.horizon} readings on": RecordedRollout(self)}

    def notes(self) -> list[str]:
        """Return the roles of the columns and the split, in sentences."""
        return [*self.recordings.notes, self.split_note]

    def record(self) -> dict[str, Any]:
        return {"split": self.split_record, "data": self.notes()}

    def describe(self) -> str:
        return f"{Path(self.file).name}: {self._question}."


class RecordedRollout(RolloutScores):
    """Segments of the test split, each from its first state.

    Args:
        task: The task.
    """

    def __init__(self, task: Trajectories) -> None:
        super().__init__(task)
        self.task = task

    def sequences(self, split: Split) -> int:
        return len(self.task.test_segments)

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Return the first states of segments, and those that follow."""
        starts = [self.task.test_segments[int(i)][:2] for i in index]
        targets, times = self.task.recordings.future(starts, self.task.horizon)
        return Batch(self.task.states(starts), targets.float(), target_times=times)

    def energy(self, states: Tensor) -> None:
        """Return None: the energy is unknown."""
        return
