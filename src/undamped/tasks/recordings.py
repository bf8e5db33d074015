"""Recordings of one's own as a task: a file or a folder, and what to learn from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Unpack

from undamped.checked import checked
from undamped.data.recordings.findings import training_warnings
from undamped.data.recordings.options import ReadingOptions, RecordingOptions
from undamped.data.recordings.read import read_recordings
from undamped.data.recordings.suspicions import without_leaks
from undamped.options import NonNegativeInt, options_in
from undamped.registry import tasks
from undamped.tasks.series import SeriesTask


@tasks.register("recordings")
class Recordings(SeriesTask):
    """Learn from recordings of your own.

    CSV and Parquet with a row per time step or per series, .npz, .npy, .ts, .tsv, .txt, .arff, or a
    folder of tables. What was not said is looked up in the data and said aloud, and so is what
    looks suspicious; a column that alone tells the target of every series is left out.

    Args:
        file: The file or folder.
        seed: Where the order of the batches comes from.

    Reference:
        Why copies, groups and the future have to stay on one side: S. Kaufman, S. Rosset,
        C. Perlich. Leakage in data mining: formulation, detection, and avoidance. KDD, 2011.
    """

    @checked
    def __init__(
        self, file: str, *, seed: NonNegativeInt = 0, **options: Unpack[RecordingOptions]
    ) -> None:
        self.file = file
        asked: Any = options  # complete and converted
        reading = {name: asked.pop(name) for name in options_in(ReadingOptions)}
        forecasts = asked["horizon"] is not None
        if forecasts and reading["target"] is not None and asked["forecast"] is None:
            asked["forecast"], reading["target"] = (reading["target"],), None
        series_set = read_recordings(file, **reading, forecast=forecasts)
        if reading["channels"] is None:
            series_set = without_leaks(series_set)
        series_set = replace(series_set, warnings=tuple(training_warnings(series_set)))
        super().__init__(series_set, seed=seed, **asked)
