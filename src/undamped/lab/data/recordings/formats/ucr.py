"""Sets of the UCR and UEA archives: a pair of files, `Name_TRAIN` and `Name_TEST`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from undamped._base.errors import DataError
from undamped._base.registry import readers
from undamped.lab.data.recordings.series import SeriesSet

SUFFIXES = (".ts", ".tsv", ".txt", ".arff")


def read_ucr_file(path: str | Path) -> SeriesSet:
    """Read one .ts, .tsv, .txt or .arff file of the archive."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(f"{path} must be one of {', '.join(SUFFIXES)}.")
    return readers[suffix].read(path)


def read_ucr(path: str | Path) -> SeriesSet:
    """Read a published data set with its split.

    Args:
        path: The file `Name_TRAIN.…` beside `Name_TEST.…`, or a folder that holds such a pair.
    """
    train = find_training_file(Path(path))
    if train is None:
        raise DataError(f"{path} has no pair Name_TRAIN, Name_TEST of {', '.join(SUFFIXES)}.")
    test = train.with_name(train.name.replace("_TRAIN", "_TEST"))
    first, second = read_ucr_file(train), read_ucr_file(test)
    if first.channels != second.channels:
        raise DataError(
            f"{test} has {len(second.channels)} channels, but {train.name} has "
            f"{len(first.channels)}."
        )
    return SeriesSet(
        [*first.series, *second.series],
        first.channels,
        None
        if first.targets is None or second.targets is None
        else np.concatenate([np.asarray(first.targets), np.asarray(second.targets)]),
        [*(f"train {i}" for i in first.ids), *(f"test {i}" for i in second.ids)],
        times=None
        if first.times is None or second.times is None
        else [*first.times, *second.times],
        parts=np.array(["train"] * len(first) + ["test"] * len(second)),
        source=str(path),
    )


def find_training_file(path: Path) -> Path | None:
    """Return the training file of a published pair, or None if there is no pair."""
    if path.is_file():
        candidates = [path] if path.stem.endswith("_TRAIN") else []
    else:
        candidates = [p for s in SUFFIXES for p in sorted(path.glob(f"*_TRAIN{s}"))]
    for train in candidates:
        if train.with_name(train.name.replace("_TRAIN", "_TEST")).is_file():
            return train
    return None
