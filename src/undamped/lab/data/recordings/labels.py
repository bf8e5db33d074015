"""Targets: labels as text, and whether targets are classes or numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

_MANY_CLASSES = 30

Targets = np.ndarray | list[np.ndarray]


def label_of(value: Any) -> str:
    """Return a label as text: integers without a decimal point."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def as_labels(targets: Any) -> list[str]:
    """Return labels as text, empty where missing."""
    values = np.asarray(targets).ravel().tolist()
    # A float that differs from itself is NaN.
    return ["" if value is None or value != value else label_of(value) for value in values]


def comparable(targets: Any) -> np.ndarray:
    """Return labels as an array that can be sorted; mixed types become text."""
    array = np.asarray(targets).ravel()
    return np.array(as_labels(array)) if array.dtype == object else array


def sorted_labels(targets: Any) -> list[str]:
    """Return the labels that occur, sorted; numbers by their value."""
    columns = targets if isinstance(targets, list) else [targets]
    kinds = (np.unique(comparable(column)) for column in columns)
    labels = {label for some in kinds for label in as_labels(some)} - {""}
    try:
        sizes = {label: float(label) for label in labels}
    except ValueError:
        return sorted(labels)
    if any(np.isnan(size) for size in sizes.values()):
        return sorted(labels)
    # Equal numbers ("1" and "1.0") by their letters: the order of a set differs between processes.
    return sorted(labels, key=lambda label: (sizes[label], label))


def are_numbers(targets: Targets) -> bool:
    """Whether targets are numbers rather than text."""
    return all(column.dtype.kind in "fiub" for column in _columns(targets))


def numeric_values(targets: Targets) -> np.ndarray:
    """Return all targets that are not missing as one array of numbers."""
    values = np.concatenate([column.ravel().astype(np.float64) for column in _columns(targets)])
    return values[~np.isnan(values)]


def look_like_classes(targets: Targets) -> bool:
    """Whether targets are text, or few different integers that occur repeatedly."""
    if not are_numbers(targets):
        return True
    values = numeric_values(targets)
    distinct = np.unique(values)
    return bool((distinct == np.round(distinct)).all()) and len(distinct) <= min(
        _MANY_CLASSES, max(2, len(values) // 2)
    )


def _columns(targets: Targets) -> list[np.ndarray]:
    return [np.asarray(column) for column in targets] if isinstance(targets, list) else [targets]
