"""Whether targets are classes or numbers, by one rule for a look at a file and for training."""

from __future__ import annotations

import numpy as np

MANY_CLASSES = 30

Some = np.ndarray | list[np.ndarray]


def are_numbers(targets: Some) -> bool:
    """Whether targets are numbers rather than text."""
    return all(column.dtype.kind in "fiub" for column in _columns(targets))


def known_numbers(targets: Some) -> np.ndarray:
    """Return all targets that are there as one array of numbers."""
    values = np.concatenate([column.ravel().astype(np.float64) for column in _columns(targets)])
    return values[~np.isnan(values)]


def look_like_classes(targets: Some) -> bool:
    """Whether targets are text, or few different whole numbers that come more than once."""
    if not are_numbers(targets):
        return True
    values = known_numbers(targets)
    distinct = np.unique(values)
    return bool((distinct == np.round(distinct)).all()) and len(distinct) <= min(
        MANY_CLASSES, max(2, len(values) // 2)
    )


def _columns(targets: Some) -> list[np.ndarray]:
    return [np.asarray(one) for one in targets] if isinstance(targets, list) else [targets]
