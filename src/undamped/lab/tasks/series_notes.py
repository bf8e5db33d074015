"""What a person is told of how their recordings were split and prepared."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from undamped.lab.data.recordings import splits
from undamped.lab.data.recordings.preparation import Preparation
from undamped.lab.data.recordings.series import SeriesSet


def split_notes(
    series_set: SeriesSet, parts: Mapping[str, np.ndarray], by: splits.By, why: str
) -> list[str]:
    """Say how series were split.

    Args:
        series_set: The series.
        parts: Which of them are in which part.
        by: What they were split by.
        why: Who wanted it so.
    """
    said = [splits.describe(by, why, dict(parts))]
    left = len(series_set) - sum(len(index) for index in parts.values())
    if left:
        said.append(f"{left:,} left out, so that no part sees what another holds.")
    if series_set.origin is not None:  # windows may be alike, and are no copies
        return said
    copies = len(series_set) - len(np.unique(series_set.copies()))
    if copies:
        said.append(f"{copies:,} series are copies of others; copies stay on one side.")
    return said


def preparation_notes(series_set: SeriesSet, prepared: Preparation, standardise: bool) -> list[str]:
    """Say how series were prepared.

    Args:
        series_set: The series.
        prepared: The preparation.
        standardise: Whether channels were standardised.
    """
    said = []
    dropped = [name for name in prepared.raw_channels if name not in prepared.channels]
    if dropped:
        said.append(f"Constant in the training part and left out: {', '.join(dropped)}.")
    gaps = sum(int(np.isnan(piece).sum()) for piece in series_set.each_piece())
    if gaps:
        total = sum(one.size for one in series_set.series)
        filled = prepared.missing == "interpolate"
        how = "filled along lines" if filled else "models are told which"
        said.append(f"{gaps:,} of {total:,} values ({gaps / total:.1%}) are missing: {how}.")
    if standardise:
        said.append("Channels are standardised with mean and scale of the training part.")
    return said
