"""Recordings of one's own as a task: a file or a folder, and what to learn from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from undamped._base.checked import checked
from undamped._base.options import NonNegativeInt, options_in
from undamped._base.registry import tasks
from undamped.lab.data.recordings.findings import training_warnings
from undamped.lab.data.recordings.labelled_windows import (
    label_windows,
    needs_windows,
    suitable_window,
)
from undamped.lab.data.recordings.options import ReadingOptions, RecordingOptions
from undamped.lab.data.recordings.read import read_recordings
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.data.recordings.suspicions import without_leaks
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.tasks.series_chance import class_counts


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
        series_set, window = _in_windows(series_set, asked)
        super().__init__(series_set, seed=seed, **asked)
        if window is not None:
            self.preparation = replace(self.preparation, window=window, each_window=True)
        self._warn_of_unknown_classes()

    def _warn_of_unknown_classes(self) -> None:
        """Warn of classes that no part but the test or the validation has."""
        if not self.counts_classes:
            return
        counts = class_counts(self.series_set, self.preparation, self.parts["train"])
        classes = self.preparation.classes or []
        missing = [name for name, count in zip(classes, counts, strict=True) if not count]
        if missing:
            sentence = f"Not in the training part, and never to be named: {', '.join(missing)}."
            warnings = (*self.series_set.warnings, sentence)
            self.series_set = replace(self.series_set, warnings=warnings)


def _in_windows(series_set: SeriesSet, asked: dict[str, Any]) -> tuple[SeriesSet, int | None]:
    """Return windows with one target each where that is asked, and how many steps they have.

    One or two recordings with a target per step cannot be parted as wholes: without a word about
    windows, they are cut into such.
    """
    whole = asked["kind"] in ("classification", "regression")
    long = needs_windows(series_set) and asked["window"] is None and asked["held_out"] is None
    if not series_set.stepwise or asked["horizon"] is not None or not (whole or long):
        return series_set, None
    window = asked["window"] or suitable_window(series_set)
    if asked["kind"] in ("steps", "step-regression"):
        asked["window"] = window
        return series_set, None
    stride, asked["window"], asked["stride"] = asked["stride"] or window, None, None
    cut = label_windows(series_set, window, stride)
    numbers = np.asarray(cut.targets).dtype.kind == "f"
    kind = "step-regression" if numbers else "steps"
    what = "the mean of its targets" if numbers else "its commonest label"
    note = f"{len(cut):,} windows of {window} steps, each with {what}"
    if asked["kind"] == "auto":
        note += f"; say window= for others, or kind={kind} for an answer at every step"
    return replace(cut, notes=(*cut.notes, f"{note}.")), window
