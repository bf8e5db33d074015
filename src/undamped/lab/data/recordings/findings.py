"""A summary of a set of recordings, with warnings about suspicious properties."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

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
    """The fraction of missing values of a channel, and its range."""

    name: str
    missing: float
    low: float | None
    high: float | None
    infinite: int = 0

    @property
    def constant(self) -> bool:
        """Whether all values are the same."""
        return self.low is not None and self.low == self.high and not self.infinite


@dataclass
class Findings:
    """The summary of a set: `facts`, and `warnings` about what may be wrong."""

    summary: str
    lengths: dict[str, int]
    channels: list[Channel]
    classes: dict[str, int] | None = None
    target_range: tuple[float, float] | None = None
    facts: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def look_at(series_set: SeriesSet) -> Findings:
    """Read every value once and return a summary.

    Args:
        series_set: The recordings.
    """
    lengths = series_set.lengths
    findings = Findings(
        series_set.describe() + ".",
        {
            "shortest": int(lengths.min()),
            "median": int(np.median(lengths)),
            "longest": int(lengths.max()),
        },
        _channels(series_set),
        facts=list(series_set.notes),
    )
    _add_channels(findings)
    _add_lengths(findings, series_set)
    _add_targets(findings, series_set)
    _add_times(findings, series_set)
    _add_copies(findings, series_set)
    _add_suspicions(findings, series_set)
    return findings


def training_warnings(series_set: SeriesSet) -> list[str]:
    """Return the warnings that matter for the scores of a model.

    Args:
        series_set: The recordings.
    """
    findings = Findings("", {}, [])
    _add_targets(findings, series_set)
    _add_suspicions(findings, series_set)
    return findings.warnings


def _channels(series_set: SeriesSet) -> list[Channel]:
    width = len(series_set.channels)
    observed, finite, total = np.zeros(width), np.zeros(width), 0
    low, high = np.full(width, np.inf), np.full(width, -np.inf)
    for block in series_set.each_block():
        values = np.asarray(block, dtype=np.float64)
        valid = np.isfinite(values)
        observed += (~np.isnan(values)).sum(0)
        finite += valid.sum(0)
        total += len(values)
        low = np.minimum(low, np.where(valid, values, np.inf).min(0))
        high = np.maximum(high, np.where(valid, values, -np.inf).max(0))
    return [
        Channel(
            name,
            float(1 - observed[i] / total),
            float(low[i]) if finite[i] else None,
            float(high[i]) if finite[i] else None,
            int(observed[i] - finite[i]),
        )
        for i, name in enumerate(series_set.channels)
    ]


def _add_channels(findings: Findings) -> None:
    channels = findings.channels
    empty = [c.name for c in channels if c.low is None and not c.infinite]
    problems = {
        "Infinite values in {}: mark missing values as NaN.": [
            c.name for c in channels if c.infinite
        ],
        "Channels without values: {}.": empty,
        "Constant channels, which are not used: {}.": [c.name for c in channels if c.constant],
    }
    for sentence, names in problems.items():
        if names:
            findings.warnings.append(sentence.format(_names(names)))
    gaps = [f"{c.name} {c.missing:.1%}" for c in channels if 0 < c.missing < 1]
    if gaps:
        findings.facts.append(f"Missing values: {_names(gaps)}.")
    else:
        findings.facts.append("No other values are missing." if empty else "No values are missing.")


def _names(names: list[str]) -> str:
    some = ", ".join(names[:_FEW])
    return some if len(names) <= _FEW else f"{some} and {len(names) - _FEW} more"


def _add_lengths(findings: Findings, series_set: SeriesSet) -> None:
    short = int((series_set.lengths < 2).sum())
    if short:
        findings.warnings.append(f"{short:,} series have a single step; is the id column right?")
    if findings.lengths["longest"] > 10 * max(1, findings.lengths["shortest"]):
        findings.warnings.append(
            "The longest series is more than ten times as long as the shortest."
        )


def _add_targets(findings: Findings, series_set: SeriesSet) -> None:
    targets = series_set.targets
    if targets is None:
        findings.facts.append("No target: forecasts only (horizon=), or name one with target=.")
        return
    array = np.asarray(np.concatenate(targets) if isinstance(targets, list) else targets)
    kinds = sorted_labels(array)
    per = "step" if series_set.stepwise else "series"
    values, numbers = np.unique(comparable(array), return_counts=True)
    counts: Counter[str] = Counter()
    for label, number in zip(as_labels(values), numbers.tolist(), strict=True):
        counts[label] += number
    if not kinds:
        findings.warnings.append("All targets are missing.")
        return
    if counts.get(""):
        findings.warnings.append(f"{counts['']:,} targets are missing.")
    if not look_like_classes(array):
        valid = numeric_values(array)
        low, high = findings.target_range = float(valid.min()), float(valid.max())
        findings.facts.append(f"A number per {per}, from {low:.6g} to {high:.6g}.")
        if low == high:
            findings.warnings.append("All targets are the same.")
        return
    findings.classes = {kind: int(counts[kind]) for kind in kinds}
    findings.facts.append(f"{len(kinds)} classes, one label per {per}.")
    if len(kinds) < 2:
        findings.warnings.append("Only one class: a classification needs two.")
        return
    rare = [kind for kind in kinds if counts[kind] < 3]
    if rare:
        findings.warnings.append(f"Too rare for three splits: {_names(rare)}.")
    elif max(findings.classes.values()) > 10 * min(findings.classes.values()):
        findings.warnings.append(
            "The most frequent class is more than ten times as frequent as another."
        )


def _add_times(findings: Findings, series_set: SeriesSet) -> None:
    if series_set.groups is not None:
        findings.facts.append(f"{len(np.unique(series_set.groups.astype(str)))} groups.")
    if series_set.times is None:
        return
    gaps = np.concatenate([np.diff(times) for times in series_set.times])
    if not len(gaps):
        return
    typical = float(np.median(gaps))
    uneven = float((np.abs(gaps - typical) > 0.01 * typical).mean())
    span = in_units if series_set.columns.get("dates") else "{:.4g}".format
    findings.facts.append(
        f"Timestamps are {span(typical)} apart"
        + (f"; {uneven:.1%} are not, the largest gap is {span(gaps.max())}." if uneven else ".")
    )


def _add_copies(findings: Findings, series_set: SeriesSet) -> None:
    copies = series_set.copies()
    distinct = len(np.unique(copies))
    if distinct == len(copies):
        return
    findings.warnings.append(
        f"{len(copies) - distinct:,} series are copies of others; copies stay in one split."
    )
    if series_set.targets is not None and not series_set.stepwise:
        labels = as_labels(series_set.targets)
        if len(set(zip(copies.tolist(), labels, strict=True))) > distinct:
            findings.warnings.append("Some copies have different labels.")


def _add_suspicions(findings: Findings, series_set: SeriesSet) -> None:
    """Add warnings about columns that are not measurements: row numbers, ids, the target."""
    blurred = [
        f"'{name}' has small differences on a large offset, which single precision cannot "
        "represent: subtract the offset."
        for name in series_set.blurred
    ]
    findings.warnings = list(
        dict.fromkeys(
            [*findings.warnings, *blurred, *series_set.warnings, *find_suspicions(series_set)]
        )
    )
