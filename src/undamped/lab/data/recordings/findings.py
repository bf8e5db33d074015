"""What is in a set of recordings, in plain words, and what about it looks suspicious."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from undamped.lab.data.recordings.grid import in_units
from undamped.lab.data.recordings.labels import (
    as_labels,
    comparable,
    look_like_classes,
    numeric_values,
    sorted_labels,
)
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.data.recordings.suspicions import find_suspicions

_FEW = 5


@dataclass
class Channel:
    """What one channel is like."""

    name: str
    missing: float
    low: float | None
    high: float | None
    infinite: int = 0

    @property
    def constant(self) -> bool:
        """Whether it never changes."""
        return self.low is not None and self.low == self.high and not self.infinite


@dataclass
class Findings:
    """What was found; `facts` are as they should be, `warnings` deserve a look."""

    summary: str
    lengths: dict[str, int]
    channels: list[Channel]
    classes: dict[str, int] | None = None
    target_range: tuple[float, float] | None = None
    facts: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return asdict(self)


def look_at(series_set: SeriesSet) -> Findings:
    """Look at every value once and say what there is.

    Args:
        series_set: The recordings.
    """
    lengths = series_set.lengths
    found = Findings(
        series_set.describe() + ".",
        {
            "shortest": int(lengths.min()),
            "median": int(np.median(lengths)),
            "longest": int(lengths.max()),
        },
        _channels(series_set),
        facts=list(series_set.notes),
    )
    _say_channels(found)
    _say_lengths(found, series_set)
    _say_targets(found, series_set)
    _say_times(found, series_set)
    _say_copies(found, series_set)
    _say_suspicions(found, series_set)
    return found


def _channels(series_set: SeriesSet) -> list[Channel]:
    width = len(series_set.channels)
    there, finite, total = np.zeros(width), np.zeros(width), 0
    low, high = np.full(width, np.inf), np.full(width, -np.inf)
    for piece in series_set.each_block():
        part = np.asarray(piece, dtype=np.float64)
        known = np.isfinite(part)
        there += (~np.isnan(part)).sum(0)
        finite += known.sum(0)
        total += len(part)
        low = np.minimum(low, np.where(known, part, np.inf).min(0))
        high = np.maximum(high, np.where(known, part, -np.inf).max(0))
    return [
        Channel(
            name,
            float(1 - there[i] / total),
            float(low[i]) if finite[i] else None,
            float(high[i]) if finite[i] else None,
            int(there[i] - finite[i]),
        )
        for i, name in enumerate(series_set.channels)
    ]


def _names(names: list[str]) -> str:
    shown = ", ".join(names[:_FEW])
    return shown if len(names) <= _FEW else f"{shown} and {len(names) - _FEW} more"


def _say_channels(found: Findings) -> None:
    infinite = [one.name for one in found.channels if one.infinite]
    if infinite:
        found.warnings.append(
            f"Infinite values in {_names(infinite)}: mark what is missing as NaN."
        )
    silent = [one.name for one in found.channels if one.low is None and not one.infinite]
    if silent:
        found.warnings.append(f"Without a single value: {_names(silent)}.")
    constant = [one.name for one in found.channels if one.constant]
    if constant:
        found.warnings.append(f"Constant, and of no use: {_names(constant)}.")
    gappy = [f"{one.name} {one.missing:.1%}" for one in found.channels if 0 < one.missing < 1]
    if gappy:
        found.facts.append(f"Values are missing in {_names(gappy)}.")
    else:
        found.facts.append("No values are missing." if not silent else "Otherwise none missing.")


def _say_lengths(found: Findings, series_set: SeriesSet) -> None:
    short = int((series_set.lengths < 2).sum())
    if short:
        found.warnings.append(f"{short:,} series have a single step; is the id column right?")
    if found.lengths["longest"] > 10 * max(1, found.lengths["shortest"]):
        found.warnings.append("The longest series is more than ten times as long as the shortest.")


def _say_targets(found: Findings, series_set: SeriesSet) -> None:
    targets = series_set.targets
    if targets is None:
        found.facts.append("No target: forecasts only (horizon=), or name one with target=.")
        return
    array = np.asarray(np.concatenate(targets) if isinstance(targets, list) else targets)
    kinds = sorted_labels(array)
    per = "step" if series_set.stepwise else "series"
    values, counts = np.unique(comparable(array), return_counts=True)
    of: Counter[str] = Counter()
    for label, count in zip(as_labels(values), counts.tolist(), strict=True):
        of[label] += count
    if not kinds:
        found.warnings.append("All targets are missing: there are no labels to learn.")
        return
    if of.get(""):
        found.warnings.append(f"{of['']:,} targets are missing.")
    if not look_like_classes(array):
        numbers = numeric_values(array)
        found.target_range = (float(numbers.min()), float(numbers.max()))
        found.facts.append(f"A number per {per}, from {numbers.min():.6g} to {numbers.max():.6g}.")
        if numbers.min() == numbers.max():
            found.warnings.append("All targets are the same: there is nothing to learn.")
        return
    found.classes = {kind: int(of[kind]) for kind in kinds}
    found.facts.append(f"One of {len(kinds)} labels per {per}.")
    if len(kinds) < 2:
        found.warnings.append("Only one class: there is nothing to tell apart.")
    rare = [kind for kind in kinds if of[kind] < 3]
    if rare and len(kinds) > 1:
        found.warnings.append(f"Too rare for three parts: {_names(rare)}.")
    elif len(kinds) > 1 and max(of[k] for k in kinds) > 10 * min(of[k] for k in kinds):
        found.warnings.append("The commonest class is more than ten times as frequent as another.")


def _say_times(found: Findings, series_set: SeriesSet) -> None:
    if series_set.groups is not None:
        found.facts.append(f"{len(np.unique(series_set.groups.astype(str)))} groups.")
    if series_set.times is None:
        return
    gaps = np.concatenate([np.diff(times) for times in series_set.times])
    if not len(gaps):
        return
    typical = float(np.median(gaps))
    uneven = float((np.abs(gaps - typical) > 0.01 * typical).mean())
    span = in_units if series_set.columns.get("dates") else "{:.4g}".format
    found.facts.append(
        f"Timestamps are {span(typical)} apart"
        + (f"; {uneven:.1%} are not, the largest gap is {span(gaps.max())}." if uneven else ".")
    )


def _say_copies(found: Findings, series_set: SeriesSet) -> None:
    copies = series_set.copies()
    extra = len(copies) - len(np.unique(copies))
    if not extra:
        return
    found.warnings.append(f"{extra:,} series are copies of others; a split keeps them together.")
    if series_set.targets is not None and not series_set.stepwise:
        labels = np.array(as_labels(series_set.targets))
        pairs = {(copy, label) for copy, label in zip(copies.tolist(), labels, strict=True)}
        if len(pairs) > len(np.unique(copies)):
            found.warnings.append("Some copies have different labels.")


def _say_suspicions(found: Findings, series_set: SeriesSet) -> None:
    """Look for columns that are no measurements: row numbers, ids, the answer itself."""
    found.warnings.extend(
        f"'{name}' has small differences upon a large offset, which single precision cannot hold: "
        "subtract the offset."
        for name in series_set.blurred
    )
    found.warnings = list(
        dict.fromkeys([*found.warnings, *series_set.warnings, *find_suspicions(series_set)])
    )


def training_warnings(series_set: SeriesSet) -> list[str]:
    """Return what a person should know of their data before they believe a score.

    Args:
        series_set: The recordings.
    """
    found = Findings("", {}, [])
    _say_targets(found, series_set)
    _say_suspicions(found, series_set)
    return found.warnings
