"""`SequenceClassifier` and `SequenceRegressor`: the class, or the target, of each series."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin

from undamped._base.errors import DataError, OptionError, shortened
from undamped._base.options import unknown_name
from undamped.lab.data.recordings.labels import label_of
from undamped.lab.estimators.estimator import SequenceEstimator
from undamped.lab.estimators.inputs import collect


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


@dataclass(repr=False, eq=False)
class SequenceClassifier(ClassifierMixin, SequenceEstimator):
    """Classification of whole series.

    Parameters that are None are chosen from the length and number of the series. A part of the
    series is used for validation, which chooses the best weights and stops early; it is stratified
    by class, and groups and identical series are never split between training and validation.

    Args:
        class_weight: The weight of each class, in training and in validation: "balanced" gives all
            classes the same total weight, as `weights=balanced` does on the command line; a
            dictionary gives weights by label, with 1 for other labels. Only ratios matter.
        {parameters}

    Example:
        >>> import numpy as np
        >>> t = np.linspace(0, 6, 40)
        >>> X = np.stack([np.sin((1 + i % 2) * t + i) for i in range(24)])
        >>> y = np.array(["slow", "fast"] * 12)
        >>> classifier = SequenceClassifier("bank", random_state=0).fit(X, y)
        >>> classifier.predict(X[:2]).shape
        (2,)
    """

    kind = "classification"

    class_weight: Literal["balanced"] | Mapping[Any, float] | None = field(
        default=None, kw_only=True
    )

    def fit(self, X: Any, y: Any, *, groups: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model to labelled series.

        Args:
            X: (n, time, channels), (n, time), a list of (time, channels), pandas frames or a
                `SeriesSet`. Timestamps come from an index of (series, time), from an index of
                dates, or from the `SeriesSet`.
            y: The label of each series (n,).
            groups: The group of each series (n,), such as a subject; a group is never split between
                training and validation.
            sample_weight: The weight of each series (n,), in training and in validation; only
                ratios matter. Some models do not support weights and raise an error.
        """
        collection = collect(X)
        classes, _ = labels(y, len(collection.series))
        weights = weights_of(sample_weight, len(collection.series))
        groups = groups_of(groups, len(collection.series))
        series_set = self._series_set(collection, np.asarray(y).ravel(), groups)
        self._fit_series(series_set, sample_weights=weights, **self._class_weights(classes))
        self.classes_: np.ndarray = classes
        labels_of_outputs = self.preparation_.classes or []
        self._order = [labels_of_outputs.index(label_of(label)) for label in classes]
        return self

    def _class_weights(self, classes: np.ndarray) -> dict[str, Any]:
        """Return the options of the task that set the weights of the classes."""
        weights = self.class_weight
        if weights is None or weights == "balanced":
            return {} if weights is None else {"weights": "balanced"}
        name = f"{type(self).__name__}.class_weight"
        if not isinstance(weights, Mapping):
            raise OptionError(
                f"{name} must be None, 'balanced' or a dictionary of labels and weights, "
                f"got {shortened(repr(weights))}."
            )
        unknown = [label for label in weights if label not in classes]
        if unknown:
            raise unknown_name("label in class_weight", str(unknown[0]), [str(c) for c in classes])
        values = [weights.get(label, 1.0) for label in classes.tolist()]
        check_weights(values, name)
        return {"class_weights": dict(zip(map(label_of, classes), values, strict=True))}

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the logits (n, classes), in the order of `classes_`.

        For two classes, return the log-odds of the second one (n,).
        """
        scores = self._predict_outputs(X)[:, self._order]
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class (n, classes), in the order of `classes_`."""
        return self._probabilities(self._predict_outputs(X))

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class of each series (n,)."""
        indices = self.predict_proba(X).argmax(1)
        return self.classes_[indices]

    def stream(
        self, samples: Iterable[Any], times: Iterable[float] | None = None
    ) -> Iterator[np.ndarray]:
        """Yield the probabilities (classes,) after each sample (channels,) of one long series.

        Memory use is constant. After the last sample the probabilities equal those of
        `predict_proba`, with two exceptions: interpolated gaps, which need later values, and the
        oscillator bank on series shorter than most training series, whose confidence is calibrated
        on the beginnings of training series.

        Args:
            samples: The samples.
            times: Their timestamps, if the model was trained with timestamps.
        """
        for outputs in self._stream_outputs(samples, times):
            yield self._probabilities(outputs[None])[0]

    def _probabilities(self, outputs: np.ndarray) -> np.ndarray:
        shifted = outputs[:, self._order]
        weights = np.exp(shifted - shifted.max(1, keepdims=True))
        return weights / weights.sum(1, keepdims=True)


@dataclass(repr=False, eq=False)
class SequenceRegressor(RegressorMixin, SequenceEstimator):
    """Regression on whole series; `score` is R².

    Parameters that are None are chosen from the length and number of the series. A part of the
    series is used for validation, which chooses the best weights and stops early; groups and
    identical series are never split between training and validation. Targets are standardised for
    training; predictions are in the units of y.

    Args:
        {parameters}

    Example:
        >>> import numpy as np
        >>> rates = np.linspace(1, 3, 24)
        >>> X = np.stack([np.sin(rate * np.linspace(0, 6, 40)) for rate in rates])
        >>> regressor = SequenceRegressor("bank", random_state=0).fit(X, rates)
        >>> regressor.predict(X[:2]).shape
        (2,)
    """

    kind = "regression"

    def fit(self, X: Any, y: Any, *, groups: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model to series and their targets.

        Args:
            X: (n, time, channels), (n, time), a list of (time, channels), pandas frames or a
                `SeriesSet`. Timestamps come from an index of (series, time), from an index of
                dates, or from the `SeriesSet`.
            y: The target of each series (n,).
            groups: The group of each series (n,), such as a subject; a group is never split between
                training and validation.
            sample_weight: The weight of each series (n,), in training and in validation; only
                ratios matter. Some models do not support weights and raise an error.
        """
        collection = collect(X)
        targets = numbers(y, len(collection.series))
        groups = groups_of(groups, len(collection.series))
        series_set = self._series_set(collection, targets, groups)
        weights = weights_of(sample_weight, len(collection.series))
        self._fit_series(series_set, sample_weights=weights)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted target of each series (n,), in the units of y."""
        return self._rescale(self._predict_outputs(X))

    def stream(
        self, samples: Iterable[Any], times: Iterable[float] | None = None
    ) -> Iterator[float]:
        """Yield the prediction after each sample (channels,) of one long series.

        Memory use is constant. After the last sample the prediction equals that of `predict`, with
        two exceptions: interpolated gaps, which need later values, and the oscillator bank on
        series shorter than most training series.

        Args:
            samples: The samples.
            times: Their timestamps, if the model was trained with timestamps.
        """
        for outputs in self._stream_outputs(samples, times):
            yield float(self._rescale(outputs[None])[0])

    def _rescale(self, outputs: np.ndarray) -> np.ndarray:
        preparation = self.preparation_
        return outputs[:, 0] * preparation.target_std[0] + preparation.target_mean[0]
