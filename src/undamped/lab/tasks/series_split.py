"""Splits of windows into training, validation and test, and other validation splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from undamped._base.errors import DataError, OptionError
from undamped.lab.data.recordings import splits
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.tasks.series_windows import Windows

_LEAST_TRAINING = 0.4  # of training and validation, if validation is moved back in time
_FEWEST_WINDOWS = 10


@dataclass(frozen=True)
class SeriesSplit:
    """The split of a set of series.

    Args:
        indices: The indices of the series of "train", "valid" and "test".
        record: How they were split, as plain values for run.json.
        notes: The same in sentences.
    """

    indices: dict[str, np.ndarray]
    record: dict[str, Any]
    notes: tuple[str, ...]


def split_windows(windows: Windows, options: Mapping[str, Any]) -> SeriesSplit:
    """Split windows into training, validation and test.

    Args:
        windows: The windows.
        options: Complete options; see `undamped.lab.data.recordings.options.SeriesOptions`.
    """
    series_set, fractions = windows.series_set, windows.plan.fractions
    by, why, held_out = options["split"], "as requested", options["held_out"]
    gap, seed = options["gap"], options["split_seed"]
    if held_out is not None:
        if by not in ("auto", "group"):
            raise OptionError(f"held_out needs a split by group, got split={by}. Leave split out.")
        by, why = "group", f"{held_out} is held out for the test"
        indices = splits.hold_out(series_set, held_out, fractions=fractions, seed=seed)
    else:
        if by == "auto":
            by, why = splits.choose(series_set, windows.kind)
        indices = splits.split(
            series_set, fractions=fractions, by=by, gap=gap, seed=seed, horizon=windows.horizon or 0
        )
    record = {
        "by": by,
        "fractions": [float(fraction) for fraction in fractions],
        "gap": gap,
        "seed": seed,
        "sizes": {name: len(index) for name, index in indices.items()},
        "hash": splits.hash_of(indices),
    }
    return SeriesSplit(indices, record, _notes(series_set, indices, by, why))


def _notes(
    series_set: SeriesSet, indices: dict[str, np.ndarray], by: splits.By, why: str
) -> tuple[str, ...]:
    notes = [splits.describe(by, why, indices)]
    unused = len(series_set) - sum(len(index) for index in indices.values())
    if unused:
        notes.append(f"{unused:,} are not used, so that no split contains data of another.")
    if series_set.origin is None:  # windows may be alike without being copies
        copies = len(series_set) - len(np.unique(series_set.copies()))
        if copies:
            notes.append(f"{copies:,} series are copies of others; copies stay in one split.")
    return tuple(notes)


def resplit(
    series_set: SeriesSet,
    indices: Mapping[str, np.ndarray],
    record: Mapping[str, Any],
    number: int,
    horizon: int | None,
) -> dict[str, np.ndarray] | None:
    """Return other training and validation series; the test split stays as it is.

    Series that were split by time are validated on an earlier segment and trained on the time
    before it; this needs a forecast. Others are drawn at random.

    Args:
        series_set: The series.
        indices: The present split.
        record: How they were split.
        number: Which of the possible splits.
        horizon: For forecasts, how many steps at the end of a window are to be predicted.

    Returns:
        Training and validation series; None where there is no other such split.
    """
    published = series_set.parts is not None and "valid" in series_set.parts
    if published or not len(indices["valid"]):
        return None
    if record["by"] != "time":
        return _resplit_at_random(series_set, indices, number)
    if horizon is None or series_set.origin is None:
        return None
    valid = indices["valid"]
    return _validate_earlier(series_set, series_set.origin, valid, record, number, horizon)


def _resplit_at_random(
    series_set: SeriesSet, indices: Mapping[str, np.ndarray], number: int
) -> dict[str, np.ndarray]:
    """Return other random training and validation series, as many as before."""
    pool = np.sort(np.concatenate([indices["train"], indices["valid"]]))
    pooled = replace(series_set.take(pool), parts=None)
    fraction = len(indices["valid"]) / len(pool)
    split = splits.split(
        pooled,
        fractions=(1 - fraction, fraction, 0.0),
        by="stratified" if pooled.groups is None else "group",
        seed=number,
    )
    return {name: pool[split[name]] for name in ("train", "valid")}


def _validate_earlier(
    windows: SeriesSet,
    origin: np.ndarray,
    valid_windows: np.ndarray,
    record: Mapping[str, Any],
    number: int,
    horizon: int,
) -> dict[str, np.ndarray] | None:
    """Return a validation split `number` times its length earlier, and the windows before it."""
    stop, recording = origin[:, 1] + windows.lengths, origin[:, 0]
    end = np.zeros(int(recording.max()) + 1, dtype=np.int64)  # of training and validation
    np.maximum.at(end, recording[valid_windows], stop[valid_windows])
    pool = np.flatnonzero(stop <= end[recording])
    train, valid, _ = record["fractions"]
    fraction = valid / (train + valid)
    if 1 - (number + 1) * fraction < _LEAST_TRAINING:
        return None
    try:
        earlier = splits.split(
            windows.take(pool),
            fractions=(1 - (number + 1) * fraction, fraction, number * fraction),
            by="time",
            gap=record["gap"],
            horizon=horizon,
        )
    except DataError:  # a split would be empty
        return None
    if len(earlier["train"]) < _FEWEST_WINDOWS:
        return None
    return {name: pool[earlier[name]] for name in ("train", "valid")}
