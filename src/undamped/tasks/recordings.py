"""Recordings of one's own as a task: a file or a folder, and what to learn from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from undamped.data.recordings.formats.table.columns import Layout
from undamped.data.recordings.preparation import Kind, Missing
from undamped.data.recordings.read import read_recordings
from undamped.data.recordings.splits import DEFAULT_FRACTIONS, By
from undamped.options import NonNegativeInt, PositiveInt
from undamped.registry import tasks
from undamped.tasks.series import SeriesTask


@tasks.register("recordings")
class Recordings(SeriesTask):
    """Learn from recordings of your own.

    CSV and Parquet with a row per time step or per series, .npz, .npy, .ts, .tsv, .txt, .arff, or a
    folder of tables. What was not said is looked up in the data and said aloud.

    Args:
        file: The file or folder.
        target: Column of labels or numbers to learn; with a horizon, the channel to predict.
        id: Column that says to which series a row belongs.
        time: Column of time stamps, numbers or ISO dates.
        group: Column of whom a series belongs to; no group is on both sides of a split.
        channels: Columns a model may see; all others by default.
        layout: "long" for a row per time step, "wide" for a row per series.
        kind: What is asked; "auto" looks at the target.
        missing: How gaps are filled: "interpolate" draws lines, "mask" holds the last value and
            adds a flag per channel.
        standardise: Whether channels are brought to mean 0 and standard deviation 1.
        time_channel: Whether the time between steps is a feature; by default where it varies.
        split: "stratified", "group", "time" or "given"; "auto" takes what suits the data.
        fractions: Shares of training, validation and test.
        gap: For a split by time, how much is left out between two parts.
        window: Cut the series into windows of so many steps.
        stride: Steps from one window to the next.
        horizon: Predict so many values to come.
        forecast: The channels to predict; all by default.
        split_seed: Which of the possible splits.
        seed: Where the order of the batches comes from.

    Reference:
        Why copies, groups and the future have to stay on one side: S. Kaufman, S. Rosset,
        C. Perlich. Leakage in data mining: formulation, detection, and avoidance. KDD, 2011.
    """

    def __init__(
        self,
        file: str,
        *,
        target: str | None = None,
        id: str | None = None,
        time: str | None = None,
        group: str | None = None,
        channels: Sequence[str] | None = None,
        layout: Layout = "auto",
        kind: Kind | Literal["auto"] = "auto",
        missing: Missing = "interpolate",
        standardise: bool = True,
        time_channel: bool | None = None,
        split: By | Literal["auto"] = "auto",
        fractions: Sequence[float] = DEFAULT_FRACTIONS,
        gap: NonNegativeInt = 0,
        window: PositiveInt | None = None,
        stride: PositiveInt | None = None,
        horizon: PositiveInt | None = None,
        forecast: Sequence[str] | None = None,
        split_seed: NonNegativeInt = 0,
        seed: NonNegativeInt = 0,
    ) -> None:
        self.file = file
        if horizon is not None and target is not None and forecast is None:
            forecast, target = (target,), None
        series_set = read_recordings(
            file,
            target=target,
            id=id,
            time=time,
            group=group,
            channels=channels,
            layout=layout,
            forecast=horizon is not None,
        )
        super().__init__(
            series_set,
            kind=kind,
            missing=missing,
            standardise=standardise,
            time_channel=time_channel,
            split=split,
            fractions=fractions,
            gap=gap,
            window=window,
            stride=stride,
            horizon=horizon,
            forecast=forecast,
            split_seed=split_seed,
            seed=seed,
        )
