"""Drift: how new recordings differ from those that a model was trained on."""

from __future__ import annotations

from typing import Any

import numpy as np

from undamped._base.errors import DataError, shortened
from undamped.lab.data.recordings.labels import as_labels, comparable
from undamped.lab.data.recordings.series import SeriesSet

_VALUES = 1 << 20  # per channel that are examined
_QUANTILES = np.linspace(0, 1, 101)
_DISTANCE = 0.15  # of two distributions; more counts as changed
_MISSING = 0.05  # change of the missing share
_RATE = 1.2  # factor between two sampling rates
_UNIT = 30.0  # factor between two scales, or standard deviations between two means


def profile(series_set: SeriesSet) -> dict[str, Any]:
    """Return a summary of recordings: quantiles and missing values per channel, rate, classes.

    Args:
        series_set: The recordings.
    """
    step = max(1, sum(map(len, series_set.series)) // _VALUES)
    rows = np.concatenate([np.asarray(series[::step]) for series in series_set.series])
    channels = {}
    for name, values in zip(series_set.channels, rows.T.astype(np.float64), strict=True):
        measured = values[~np.isnan(values)]
        entry: dict[str, Any] = {"missing": 1 - len(measured) / len(values)}
        if len(measured):
            entry["quantiles"] = np.quantile(measured, _QUANTILES).tolist()
            entry |= {"mean": float(measured.mean()), "std": float(measured.std())}
        channels[name] = entry
    summary: dict[str, Any] = {"series": len(series_set), "channels": channels}
    summary["length"] = float(np.median(series_set.lengths))
    if series_set.times is not None:
        gaps = [float(np.median(np.diff(times))) for times in series_set.times if len(times) > 1]
        summary["gap"] = float(np.median(gaps)) if gaps else None
        summary["end"] = max(float(times[-1]) for times in series_set.times)
    if series_set.targets is not None and not series_set.stepwise:
        kinds, counts = np.unique(comparable(np.asarray(series_set.targets)), return_counts=True)
        labels = as_labels(kinds)
        if len(labels) <= len(series_set) / 2:
            summary["classes"] = dict(zip(labels, (counts / counts.sum()).tolist(), strict=True))
    return summary


def distance(first: list[float], second: list[float]) -> float:
    """Return the Kolmogorov-Smirnov distance of two distributions, by their quantiles.

    It is the largest difference between their distribution functions, between 0 and 1.

    Args:
        first: The quantiles of one, at 0, 1, …, 100 %.
        second: Those of the other.
    """
    grid = np.concatenate([first, second])
    sides = ("left", "right")
    gaps = [
        np.searchsorted(first, grid, side) - np.searchsorted(second, grid, side) for side in sides
    ]
    return float(min(1.0, max(np.abs(gap).max() for gap in gaps) / len(first)))


def drift(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return what differs between two profiles, with a sentence for everything that changed.

    Args:
        before: The profile of the training recordings.
        after: That of the new ones.
    """
    channels, sentences = {}, []
    for name, old in before["channels"].items():
        new = after["channels"][name]
        entry: dict[str, Any] = {"missing": [old["missing"], new["missing"]]}
        if abs(old["missing"] - new["missing"]) > _MISSING:
            sentences.append(
                f"'{name}': {new['missing']:.0%} of the values are missing, {old['missing']:.0%} "
                "in training."
            )
        if "quantiles" in old and "quantiles" in new:
            far = distance(old["quantiles"], new["quantiles"])
            entry |= {part: [old[part], new[part]] for part in ("mean", "std")}
            entry["range"] = [[p["quantiles"][0], p["quantiles"][-1]] for p in (old, new)]
            entry["distance"] = far
            if far > _DISTANCE:
                sentences.append(
                    f"'{name}': the distribution changed (distance {far:.2f}): mean "
                    f"{old['mean']:.4g} → {new['mean']:.4g}, standard deviation {old['std']:.4g} → "
                    f"{new['std']:.4g}."
                )
        channels[name] = entry
    report: dict[str, Any] = {"channels": channels}
    for part, name in (("gap", "time between samples"), ("length", "number of steps")):
        if before.get(part) and after.get(part):
            report[part] = [before[part], after[part]]
            ratio = after[part] / before[part]
            if not 1 / _RATE < ratio < _RATE:
                sentences.append(
                    f"The {name} is {after[part]:.4g}, {before[part]:.4g} in training."
                )
    if "classes" in before and "classes" in after:
        report["classes"] = [before["classes"], after["classes"]]
        names = {**before["classes"], **after["classes"]}
        old, new = ({n: p["classes"].get(n, 0.0) for n in names} for p in (before, after))
        far = max(names, key=lambda name: abs(old[name] - new[name]))
        if abs(old[far] - new[far]) > _DISTANCE:
            sentences.append(
                f"{new[far]:.0%} of the series are '{far}', {old[far]:.0%} in training."
            )
    return {**report, "changed": sentences}


def refuse_other_units(before: dict[str, Any], after: dict[str, Any], source: str) -> None:
    """Raise an error for recordings that are in other units than those of training.

    Args:
        before: The profile of the training recordings.
        after: That of the new ones.
        source: The name of the new ones, for the message.
    """
    for name, old in before["channels"].items():
        new = after["channels"][name]
        if not (old.get("std") and "std" in new):
            continue
        ratio, moved = new["std"] / old["std"], abs(new["mean"] - old["mean"]) / old["std"]
        if ratio > _UNIT or ratio < 1 / _UNIT or moved > _UNIT:
            raise DataError(
                f"{source}: channel '{shortened(name)}' has mean {new['mean']:.4g} and standard "
                f"deviation {new['std']:.4g}, but {old['mean']:.4g} and {old['std']:.4g} in "
                "training, as if it were in another unit. Convert it, or train a new model."
            )
