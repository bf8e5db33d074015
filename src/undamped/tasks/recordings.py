"""Recordings of one's own as a task: a file or a folder, and what to learn from it."""

from __future__ import annotations

from typing import Any, Unpack

from undamped.checked import checked
from undamped.data.recordings.options import ReadingOptions, RecordingOptions
from undamped.data.recordings.read import read_recordings
from undamped.options import NonNegativeInt, options_in
from undamped.registry import tasks
from undamped.tasks.series import SeriesTask


@tasks.register("recordings")
class Recordings(SeriesTask):
    """Learn from recordings of your own.

    CSV and Parquet with a row per time step or per series, .npz, .npy, .ts, .tsv, .txt, .arff, or a
    folder of tables. What was not said is looked up in the data and said aloud.

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
        super().__init__(series_set, seed=seed, **asked)
