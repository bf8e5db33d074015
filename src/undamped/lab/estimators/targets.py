"""Checks of targets: labels, numbers, groups and weights of the series."""

from __future__ import annotations

from typing import Any

import numpy as np

from undamped._base.errors import DataError


def labels(y: Any, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes (classes,) and the index of each series' class (n,).

    Args:
        y: One label per series: integers, strings or Booleans.
        count: The number of series.
    """
    from sklearn.utils.multiclass import check_classification_targets

    values = _column(y, count)
    if values.dtype.kind in "fOU":
        _no_missing(values, "labels")
    if values.dtype.kind == "f":
        check_classification_targets(values)  # raises an error for fractions
    classes, indices = np.unique(values, return_inverse=True)
    if len(classes) < 2:
        raise DataError(
            f"y must have at least two classes, got one class only, {classes[0]!r}. A classifier "
            "needs series of another class."
        )
    return classes, indices


def numbers(y: Any, count: int) -> np.ndarray:
    """Return the target of each series (n,) or (n, outputs), float64."""
    values = _column(y, count)
    try:
        values = values.astype(np.float64)
    except (TypeError, ValueError):
        raise DataError(
            f"y must be numbers, got values of type {values.dtype}. For labels use "
            "SequenceClassifier."
        ) from None
    _no_missing(values, "numbers")
    if np.isinf(values).any():
        raise DataError("y must be finite, got infinity (inf).")
    return values


def groups_of(groups: Any, count: int) -> np.ndarray | None:
    """Return the group of each series (n,), or None."""
    if groups is None:
        return None
    values = np.asarray(groups)
    if values.ndim != 1 or len(values) != count:
        raise DataError(
            f"groups must have one entry for each of the {count} series, got shape {values.shape}."
        )
    return values


def weights_of(sample_weight: Any, count: int) -> np.ndarray | None:
    """Return the weight of each series (n,), with mean 1; None if there are no weights.

    Args:
        sample_weight: One number for each series, or None.
        count: The number of series.
    """
    if sample_weight is None:
        return None
    try:
        values = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.shape != (count,):
        raise DataError(
            f"sample_weight must be one number for each of the {count} series, in one dimension, "
            f"got shape {np.shape(sample_weight)}."
        )
    check_weights(values, "sample_weight")
    return values / values.mean()


def check_weights(values: Any, what: str) -> None:
    """Raise an error if weights are negative, not finite, or all zero.

    Args:
        values: The weights.
        what: Their name in an error message.
    """
    weights = np.asarray(values, dtype=np.float64)
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise DataError(f"{what} must be finite numbers ≥ 0, got others.")
    if not weights.any():
        raise DataError(f"{what} must have a weight above zero, got zeros only.")


def _column(y: Any, count: int) -> np.ndarray:
    if y is None:
        raise DataError(
            "fit needs y: the estimator requires y to be passed, but the target y is None. Call "
            "fit(X, y)."
        )
    from sklearn.utils.validation import column_or_1d

    values = np.asarray(y)
    if values.dtype.kind == "c":
        raise DataError("y must be labels or real numbers. Complex data not supported.")
    # A single column is accepted with scikit-learn's usual warning.
    values = column_or_1d(values, warn=True)
    if len(values) != count:
        raise DataError(
            f"y must have one target for each of the {count} series in X, got {len(values)}."
        )
    return values


def _no_missing(values: np.ndarray, kind: str) -> None:
    import pandas as pd

    missing = np.asarray(pd.isna(values))
    if values.dtype.kind in "OU":
        missing |= values == ""
    if missing.any():
        raise DataError(
            f"y must be {kind} without gaps, got {missing.sum()} missing (NaN, None or empty "
            "text). Leave out series without a target."
        )
