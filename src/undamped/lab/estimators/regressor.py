"""`SequenceRegressor`: a number for each series."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.estimators.estimator import SequenceEstimator
from undamped.lab.estimators.inputs import collect
from undamped.lab.estimators.targets import groups_of, numbers, weights_of


class SequenceRegressor(RegressorMixin, SequenceEstimator):
    """Say a number about a series, such as a heart rate; `score` is R².

    What is left out is chosen from the length and number of the series. A part of the series is
    held back to choose the best weights and to stop early: groups and identical series are never
    on both sides. Targets are standardised for training and given back in their own units.

    Args:
        model: The registry name of a model; 'undamped list' shows all. "auto" races a portfolio of
            them on the series that are held back, and `tried_` tells how it went.
        hidden_size: Size of its hidden state.
        num_layers: Number of its layers.
        model_options: Its other options, by name.
        epochs: Train for so many passes over the data.
        steps: Or for so many batches.
        minutes: Or for so many minutes; a race without a budget has five.
        batch_size: Series per batch.
        learning_rate: Step size of the optimiser.
        train_options: Other options of training, by name; see `undamped.lab.training.TrainOptions`.
        validation_fraction: Share of the series held back; with 0 nothing is held back, and
            training goes on to the end of its budget.
        patience: Stop when so many validations in a row brought nothing better.
        missing: What to do about NaN: "interpolate" draws a line over the gap, "mask" tells the
            network what is missing, "auto" does that where time stamps are irregular.
        random_state: Where random numbers come from; with a whole number two fits agree bit for
            bit.
        verbose: Whether to show a progress bar.
        device: Where to train: "auto", "cpu", "gpu", …; answers are given on the CPU.
        run_folder: Keep the run in a new folder below this one, for `undamped show` and the like.

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
        """Learn from series and their numbers.

        Args:
            X: (n, time, channels), (n, time), a list of (time, channels), or pandas frames. Time
                stamps are those of a frame's index of (series, time), of frames with an index of
                dates, or of a `SeriesSet`.
            y: A number for each series (n,).
            groups: What each series belongs to (n,), such as a subject; a group is never both
                learned from and used to validate.
            sample_weight: What each series counts (n,), in learning and in what is held back; what
                counts is their ratios. Refused by models that cannot weigh series.
        """
        collection = collect(X)
        series_set = SeriesSet(
            collection.series,
            collection.names(),
            numbers(y, len(collection.series)),
            groups=groups_of(groups, len(collection.series)),
            source="X",
            times=collection.times,
            blurred=collection.blurred,
        )
        self._remember_channels(collection)
        weights = weights_of(sample_weight, len(collection.series))
        self._learn(series_set, sample_weights=weights)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return a number for each series (n,), in the units of y."""
        check_is_fitted(self, "model_")
        collection = collect(X)
        self._check_channels(collection)
        return self._numbers(self._outputs(collection.series, collection.times))

    def stream(
        self, samples: Iterable[Any], times: Iterable[float] | None = None
    ) -> Iterator[float]:
        """Yield the number after each sample (channels,) of one long series.

        Memory does not grow. After the last sample of a series the number is that of `predict`,
        unless values are missing and were interpolated, which needs the future, or the model is a
        bank and the series is shorter than those of training usually are.

        Args:
            samples: The samples.
            times: Their time stamps, where the model was trained with such.
        """
        for outputs in self._stream_outputs(samples, times):
            yield float(self._numbers(outputs[None])[0])

    def _numbers(self, outputs: np.ndarray) -> np.ndarray:
        prepared = self.preparation_
        return outputs[:, 0] * prepared.target_std[0] + prepared.target_mean[0]
