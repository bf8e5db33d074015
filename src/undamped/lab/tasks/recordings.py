"""Recordings from files as a task."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Unpack, cast

import numpy as np

from undamped._base.checked import checked
from undamped._base.options import NonNegativeInt, options_in
from undamped._base.registry import tasks
from undamped.lab.data.recordings.findings import training_warnings
from undamped.lab.data.recordings.labels import as_labels, comparable, look_like_classes
from undamped.lab.data.recordings.options import ReadingOptions, RecordingOptions
from undamped.lab.data.recordings.read import read_recordings
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.data.recordings.suspicions import without_leaks
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.tasks.series_scores import class_counts

_FEW_RECORDINGS = 3
_WINDOWS = 60
_SHORTEST, _LONGEST = 8, 500  # steps of a window


@tasks.register("recordings")
class Recordings(SeriesTask):
    """Learn from your recordings.

    CSV and Parquet with a row per time step or per series, .npz, .npy, .ts, .tsv, .txt, .arff, or a
    folder of tables. Options are inferred from the data by default; notes state how, and warn of
    suspicious data. A single column that determines every target is left out.

    Args:
        file: The file or folder.
        seed: Seed of the order of the batches.

    Reference:
        Why copies, groups and the future must not be in two splits: S. Kaufman, S. Rosset,
        C. Perlich. Leakage in data mining: formulation, detection, and avoidance. KDD, 2011.
    """

    @checked
    def __init__(
        self, file: str, *, seed: NonNegativeInt = 0, **options: Unpack[RecordingOptions]
    ) -> None:
        self.file = file
        complete = cast(dict[str, Any], options)  # `checked` fills in the defaults
        reading = {name: complete.pop(name) for name in options_in(ReadingOptions)}
        forecasts = complete["horizon"] is not None
        if forecasts and reading["target"] is not None and complete["forecast"] is None:
            complete["forecast"], reading["target"] = (reading["target"],), None
        series_set = read_recordings(file, **reading, forecast=forecasts)
        if reading["channels"] is None:
            series_set = without_leaks(series_set)
        series_set = replace(series_set, warnings=tuple(training_warnings(series_set)))
        series_set, window = _cut_stepwise(series_set, complete)
        super().__init__(series_set, seed=seed, **complete)
        if window is not None:
            self.preparation = replace(self.preparation, window=window, each_window=True)
        self._warn_of_missing_classes()

    def _warn_of_missing_classes(self) -> None:
        """Warn of classes that are missing in the training split."""
        if not self.counts_classes:
            return
        counts = class_counts(self.series_set, self.preparation, self.splits["train"])
        classes = self.preparation.classes or []
        missing = [name for name, count in zip(classes, counts, strict=True) if not count]
        if missing:
            sentence = f"Classes that are missing in the training split: {', '.join(missing)}."
            warnings = (*self.series_set.warnings, sentence)
            self.series_set = replace(self.series_set, warnings=warnings)


def _cut_stepwise(series_set: SeriesSet, options: dict[str, Any]) -> tuple[SeriesSet, int | None]:
    """Return windows with one target each if they are needed, and their length.

    One or two recordings with a target per step cannot be split as a whole, and most models answer
    once per series: such recordings are cut into windows by default. `options` is completed.
    """
    per_series = options["kind"] in ("classification", "regression")
    few = len(series_set) < _FEW_RECORDINGS and series_set.groups is None
    default = few and series_set.parts is None
    default = default and options["window"] is None and options["held_out"] is None
    if not series_set.stepwise or options["horizon"] is not None or not (per_series or default):
        return series_set, None
    window = options["window"] or _suitable_window(series_set)
    if options["kind"] in ("steps", "step-regression"):
        options["window"] = window
        return series_set, None
    stride, options["window"], options["stride"] = options["stride"] or window, None, None
    windows = _label_windows(series_set, window, stride)
    numbers = np.asarray(windows.targets).dtype.kind == "f"
    kind = "step-regression" if numbers else "steps"
    target = "the mean of its targets" if numbers else "its commonest label"
    note = f"{len(windows):,} windows of {window} steps, each with {target}"
    if options["kind"] == "auto":
        note += f"; set window= for others, or kind={kind} for an answer at every step"
    return replace(windows, notes=(*windows.notes, f"{note}.")), window


def _suitable_window(series_set: SeriesSet) -> int:
    """Return the steps of a window: half a typical run of one label, and about sixty windows."""
    assert isinstance(series_set.targets, list)
    window = min(_LONGEST, int(series_set.lengths.sum()) // _WINDOWS)
    if look_like_classes(series_set.targets):
        runs = []
        for labels in series_set.targets:
            codes = np.unique(comparable(labels), return_inverse=True)[1]
            changes = np.flatnonzero(np.diff(codes)) + 1
            runs.append(np.diff([0, *changes.tolist(), len(codes)]))
        window = min(window, int(np.median(np.concatenate(runs))) // 2)
    return max(_SHORTEST, window)


def _label_windows(series_set: SeriesSet, window: int, stride: int) -> SeriesSet:
    """Return windows with one target each: the commonest label, or the mean of numbers.

    Windows without a single target are left out.
    """
    assert isinstance(series_set.targets, list)
    windows = series_set.windows(window, stride)
    assert isinstance(windows.targets, list)
    if look_like_classes(series_set.targets):
        targets = np.array([_commonest(labels) for labels in windows.targets])
        has_target = targets != ""
    else:
        columns = [np.asarray(column, dtype=np.float64) for column in windows.targets]
        columns = [column[~np.isnan(column)] for column in columns]
        targets = np.array([column.mean() if len(column) else np.nan for column in columns])
        has_target = ~np.isnan(targets)
    return replace(windows, targets=targets).take(np.flatnonzero(has_target))


def _commonest(labels: np.ndarray) -> str:
    values, counts = np.unique(comparable(labels), return_counts=True)
    names = zip(counts.tolist(), as_labels(values), strict=True)
    return max((pair for pair in names if pair[1]), key=lambda pair: pair[0], default=(0, ""))[1]
