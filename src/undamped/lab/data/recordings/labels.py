"""Labels as text, alike wherever they come from: a file, an array, a data frame."""

from __future__ import annotations

from typing import Any

import numpy as np


def label_of(value: Any) -> str:
    """Return a label as text: whole numbers without a decimal point."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def is_missing(value: Any) -> bool:
    """Whether a label is not there."""
    return value is None or value == "" or (isinstance(value, float) and np.isnan(value))


def as_labels(targets: Any) -> list[str]:
    """Return labels as text, empty where missing."""
    values = np.asarray(targets).ravel().tolist()
    return ["" if is_missing(value) else label_of(value) for value in values]


def comparable(targets: Any) -> np.ndarray:
    """Return labels as an array that can be sorted; text among other things becomes text."""
    array = np.asarray(targets).ravel()
    return np.array(as_labels(array)) if array.dtype == object else array


def sorted_labels(targets: Any) -> list[str]:
    """Return the labels that occur, numbers in the order of their size."""
    columns = targets if isinstance(targets, list) else [targets]
    kinds = (np.unique(comparable(column)) for column in columns)
    found = {label for some in kinds for label in as_labels(some)} - {""}
    try:
        sizes = {label: float(label) for label in found}
    except ValueError:
        return sorted(found)
    if any(np.isnan(size) for size in sizes.values()):
        return sorted(found)
    # Like numbers ("1" and "1.0") by their letters: the order of a set differs between processes.
    return sorted(found, key=lambda label: (sizes[label], label))
