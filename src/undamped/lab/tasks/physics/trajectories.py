"""Trajectories of one's own as a task: how the system moves that made them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Unpack

import numpy as np
import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import Batch
from undamped._base.errors import DataError, explain
from undamped._base.options import Default, NonNegativeInt, PositiveInt
from undamped._base.registry import tasks
from undamped.lab.data.recordings import splits
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.data.recordings.splits import DEFAULT_FRACTIONS
from undamped.lab.tasks.physics.learns_motion import LearningOptions, LearnsMotion
from undamped.lab.tasks.physics.own_trajectories import (
    OwnColumns,
    OwnTrajectories,
    differences,
    read_trajectories,
)
from undamped.lab.tasks.physics.scores import RolloutScores
from undamped.lab.tasks.task import Split, Task


class OwnMotion(OwnColumns, LearningOptions, total=False):
    """What is learnt of trajectories of one's own, and how they are split."""

    horizon: Annotated[
        PositiveInt | None,
        Default(None, "Readings that a tested trajectory goes on for; all there are by default."),
    ]
    fractions: Annotated[
        Sequence[float], Default(DEFAULT_FRACTIONS, "Shares of training, validation and test.")
    ]
    split_seed: Annotated[NonNegativeInt, Default(0, "Which of the possible splits.")]


@tasks.register("trajectories")
class Trajectories(LearnsMotion):
    """Learn how a system of your own moves.

    A file of states over time: columns are positions and momenta (or velocities), in that order if
    nothing else is said; or positions alone, with `differences=true`. Recordings are kept whole in
    a split; one or two are split by time.

    Args:
        file: The file or folder.
        seed: Where the order of training comes from.

    Example:
        >>> build("trajectories", file="flights.csv", id="flight", time="t")  # doctest: +SKIP

    Reference:
        S. Greydanus, M. Dzamba, J. Yosinski. Hamiltonian neural networks. NeurIPS, 2019, whose
        real pendulum comes by differences, too.
    """

    @checked
    def __init__(
        self, file: str, *, seed: NonNegativeInt = 0, **options: Unpack[OwnMotion]
    ) -> None:
        asked: Any = options  # complete and converted
        super().__init__(seed, asked)
        self.file = file
        self.own: OwnTrajectories = read_trajectories(file, asked)
        self.state_space = self.own.columns.space
        self.output_size = self.state_space.size
        self.input_size = self.output_size + len(self.state_space.inputs)
        # A rate is a central difference, which sees its neighbours.
        self.length = 3 if self.form == "derivative" else self.window + 1
        self._split(asked)
        self.horizon = self._longest(asked["horizon"])

    def _split(self, asked: dict[str, Any]) -> None:
        """Cut recordings into windows, which know where they lay, and part those."""
        pairs = zip(self.own.states, self.own.inputs, strict=True)
        rows = [torch.cat(pair, dim=1).numpy().astype(np.float32) for pair in pairs]
        space, source = self.own.columns.space, Path(self.file).name
        whole = SeriesSet(rows, [*space.names, *space.inputs], ids=self.own.ids, source=source)
        windows = whole.windows(self.length, 1)
        by, why = splits.choose(windows, "step-regression")
        fractions, split_seed = asked["fractions"], asked["split_seed"]
        self.parts = splits.split(windows, fractions=fractions, by=by, seed=split_seed)
        starts = [(i, k) for i, one in enumerate(rows) for k in range(len(one) - self.length + 1)]
        self.windows = np.array(starts, dtype=np.int64)
        self.split_said = splits.describe(by, why, self.parts)
        self.split_record = {
            "by": by,
            "fractions": [float(f) for f in fractions],
            "seed": split_seed,
            "sizes": {name: len(index) for name, index in self.parts.items()},
            "hash": splits.hash_of(self.parts),
        }

    def _members(self, split: Split) -> np.ndarray:
        return self.parts[split] if len(self.parts[split]) else self.parts["train"]

    @cached_property
    def stretches(self) -> list[tuple[int, int, int]]:
        """Recording, first and last row of every stretch of the test part."""
        chosen = self.windows[self.parts["test"]]
        found = []
        for recording in np.unique(chosen[:, 0]):
            first = chosen[chosen[:, 0] == recording, 1]
            found.append((int(recording), int(first.min()), int(first.max()) + self.length - 1))
        return found

    def _longest(self, asked: int | None) -> int:
        shortest = min((last - first for _, first, last in self.stretches), default=0)
        if asked is not None and asked > shortest:
            raise DataError(
                explain(
                    "task.horizon",
                    expected=f"at most {shortest} readings, what the shortest test stretch has",
                    got=asked,
                    remedy="Leave it out, choose a shorter one, or record for longer.",
                )
            )
        return asked or shortest

    # Batches

    def sequences(self, split: Split) -> int:
        """How many windows a part has; without one of its own, training is looked at instead."""
        return len(self._members(split))

    @cached_property
    def _rates(self) -> list[Tensor]:
        pairs = zip(self.own.states, self.own.times, strict=True)
        return [torch.from_numpy(differences(one.numpy(), times)) for one, times in pairs]

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Return states with their rates, or with the readings that follow them."""
        chosen = self.windows[self._members(split)[index.numpy()]]
        if self.form == "derivative":  # the middle of a window has neighbours on both sides
            places = [(int(i), int(k) + 1) for i, k in chosen]
            rates = torch.stack([self._rates[i][k] for i, k in places])
            return Batch(self._given(places), rates.float())
        places = [(int(i), int(k)) for i, k in chosen]
        ahead, times = self.own.following(places, self.window)
        return Batch(self._given(places), ahead.float(), target_times=times)

    def _given(self, places: Sequence[tuple[int, int]]) -> Tensor:
        return torch.stack([self.own.given(i, k) for i, k in places]).float()

    def test_parts(self) -> dict[str, Task]:
        """Test windows, and whole stretches of the test part."""
        if not self.stretches:
            return {}
        return {"test": self, f"{self.horizon} readings on": OwnRollout(self)}

    def notes(self) -> list[str]:
        """Say what was taken for what."""
        return [*self.own.said, self.split_said]

    def record(self) -> dict[str, Any]:
        """What a run has to remember about the data."""
        return {"split": self.split_record, "data": self.notes()}

    def describe(self) -> str:
        """Say in one line what a model is asked to do."""
        asked = "how fast a state changes" if self.form == "derivative" else "where it will be"
        return f"{Path(self.file).name}: say {asked}."


class OwnRollout(RolloutScores):
    """Stretches of the test part, each from its first state; nobody knows their energy.

    Args:
        task: The task.
    """

    def __init__(self, task: Trajectories) -> None:
        super().__init__(task.seed)
        self.task = task
        self.state_space = task.state_space
        self.input_size, self.output_size = task.input_size, task.output_size

    def sequences(self, split: Split) -> int:
        """How many stretches there are."""
        return len(self.task.stretches)

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Return the first states of stretches, and where they lead."""
        places = [self.task.stretches[int(i)][:2] for i in index]
        ahead, times = self.task.own.following(places, self.task.horizon)
        return Batch(self.task._given(places), ahead.float(), target_times=times)

    def energy(self, states: Tensor) -> None:
        """Nobody knows it."""
        return
