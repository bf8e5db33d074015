"""What a series should be answered with: labels and numbers, checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from undamped._base.errors import DataError, explain


def labels(y: Any, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes (classes,) and the number of each series' class (n,).

    Args:
        y: One label per series: whole numbers, text or truth values.
        count: How many series there are.
    """
    from sklearn.utils.multiclass import check_classification_targets

    values = _column(y, count)
    if values.dtype.kind in "fOU":
        _no_missing(values, "labels")
    if values.dtype.kind == "f":
        check_classification_targets(values)  # refuses numbers that are no whole numbers
    classes, numbers = np.unique(values, return_inverse=True)
    if len(classes) < 2:
        raise DataError(
            explain(
                "y",
                expected="at least two classes",
                got=f"one class only, {classes[0]!r}",
                remedy="A classifier needs something to tell apart: add series of another class.",
            )
        )
    return classes, numbers


def numbers(y: Any, count: int) -> np.ndarray:
    """Return the target of each series (n,) or (n, outputs), float64."""
    values = _column(y, count)
    try:
        values = values.astype(np.float64)
    except (TypeError, ValueError):
        raise DataError(
            explain(
                "y",
                expected="numbers",
                got=f"values of type {values.dtype}",
                remedy="For labels use SequenceClassifier.",
            )
        ) from None
    _no_missing(values, "numbers")
    if np.isinf(values).any():
        raise DataError(
            explain(
                "y",
                expected="finite numbers",
                got="infinity (inf)",
                remedy="Look at the largest targets.",
            )
        )
    return values


def groups_of(groups: Any, count: int) -> np.ndarray | None:
    """Return the group of each series (n,), or None."""
    if groups is None:
        return None
    values = np.asarray(groups)
    if values.ndim != 1 or len(values) != count:
        raise DataError(
            explain(
                "groups",
                expected=f"one for each of the {count} series",
                got=f"shape {values.shape}",
                remedy="Name the subject or recording every series belongs to.",
            )
        )
    return values


def weights_of(sample_weight: Any, count: int) -> np.ndarray | None:
    """Return what each series counts (n,), 1 in the mean; None where all count alike.

    Args:
        sample_weight: One number for each series, or None.
        count: How many series there are.
    """
    if sample_weight is None:
        return None
    try:
        values = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.shape != (count,):
        raise DataError(
            explain(
                "sample_weight",
                expected=f"one number for each of the {count} series, in one dimension",
                got=f"shape {np.shape(sample_weight)}",
                remedy="Give as many weights as series.",
            )
        )
    check_weights(values, "sample_weight")
    return values / values.mean()


def check_weights(values: Any, what: str) -> None:
    """Refuse weights that are negative, not finite, or all zero.

    Args:
        values: The weights.
        what: What to call them in a message.
    """
    each = np.asarray(values, dtype=np.float64)
    bad = "" if np.isfinite(each).all() and (each >= 0).all() else "others"
    if bad or not each.any():
        raise DataError(
            explain(
                what,
                expected="finite numbers of at least 0, and a weight above zero among them",
                got=bad or "zeros only",
                remedy="Give what each counts in relation to the others.",
            )
        )


def _column(y: Any, count: int) -> np.ndarray:
    if y is None:
        raise DataError(
            explain(
                "y",
                expected="one target per series",
                got="none: the estimator requires y to be passed, but the target y is None",
                remedy="Give fit(X, y).",
            )
        )
    from sklearn.utils.validation import column_or_1d

    values = np.asarray(y)
    if values.dtype.kind == "c":
        raise DataError(
            explain(
                "y",
                expected="labels or real numbers",
                got="complex ones (Complex data not supported)",
                remedy="Give real numbers.",
            )
        )
    # A single column is taken with the warning scikit-learn gives everywhere.
    values = column_or_1d(values, warn=True)
    if len(values) != count:
        raise DataError(
            explain(
                "y",
                expected=f"one target for each of the {count} series",
                got=len(values),
                remedy="X and y must tell of the same series in the same order.",
            )
        )
    return values


def _no_missing(values: np.ndarray, kind: str) -> None:
    import pandas as pd

    missing = np.asarray(pd.isna(values))
    if values.dtype.kind in "OU":
        missing |= values == ""
    if missing.any():
        raise DataError(
            explain(
                "y",
                expected=f"{kind} without gaps",
                got=f"{missing.sum()} missing (NaN, None or empty text)",
                remedy="Leave out the series whose target is not known.",
            )
        )
