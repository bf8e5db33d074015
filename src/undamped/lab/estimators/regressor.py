"""`SequenceRegressor`: the value of a target for each series."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin

from undamped.lab.estimators.estimator import SequenceEstimator
from undamped.lab.estimators.inputs import collect
from undamped.lab.estimators.targets import groups_of, numbers, weights_of


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
