"""`SequenceClassifier`: which class a series belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from undamped._base.errors import OptionError, explain
from undamped._base.options import unknown_name
from undamped.lab.data.recordings.labels import label_of
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.estimators.estimator import SequenceEstimator
from undamped.lab.estimators.inputs import collect
from undamped.lab.estimators.options import ClassifierOptions
from undamped.lab.estimators.targets import check_weights, groups_of, labels, weights_of


class SequenceClassifier(ClassifierMixin, ClassifierOptions, SequenceEstimator):
    """Say which class a series belongs to.

    What is left out is chosen from the length and number of the series. A part of the series is
    held back to choose the best weights and to stop early: classes in like shares, groups and
    identical series never on both sides.

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
        class_weight: What series of each class count, in learning and in what is held back:
            "balanced" lets all classes count alike, as `weights=balanced` does on the command line;
            a dictionary gives weights by label, 1 for those it leaves out. What counts is their
            ratios.
        missing: What to do about NaN: "interpolate" draws a line over the gap, "mask" tells the
            network what is missing, "auto" does that where time stamps are irregular.
        random_state: Where random numbers come from; with a whole number two fits agree bit for
            bit.
        verbose: Whether to show a progress bar.
        device: Where to train: "auto", "cpu", "gpu", …; answers are given on the CPU.
        run_folder: Keep the run in a new folder below this one, for `undamped show` and the like.

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

    classes_: np.ndarray

    def fit(self, X: Any, y: Any, *, groups: Any = None, sample_weight: Any = None) -> Self:
        """Learn from labelled series.

        Args:
            X: (n, time, channels), (n, time), a list of (time, channels), or pandas frames. Time
                stamps are those of a frame's index of (series, time), of frames with an index of
                dates, or of a `SeriesSet`.
            y: A label for each series (n,).
            groups: What each series belongs to (n,), such as a subject; a group is never both
                learned from and used to validate.
            sample_weight: What each series counts (n,), in learning and in what is held back; what
                counts is their ratios. Refused by models that cannot weigh series.
        """
        collection = collect(X)
        classes, _ = labels(y, len(collection.series))
        weights = weights_of(sample_weight, len(collection.series))
        series_set = SeriesSet(
            collection.series,
            collection.names(),
            np.asarray(y).ravel(),
            groups=groups_of(groups, len(collection.series)),
            source="X",
            times=collection.times,
            blurred=collection.blurred,
        )
        self._remember_channels(collection)
        self._learn(series_set, sample_weights=weights, **self._class_weights(classes))
        self.classes_ = classes
        known = self.preparation_.classes or []
        self._order = [known.index(label_of(label)) for label in classes]
        return self

    def _class_weights(self, classes: np.ndarray) -> dict[str, Any]:
        """Return the options of the task that say what classes count."""
        asked = self.class_weight
        if asked is None or asked == "balanced":
            return {} if asked is None else {"weights": "balanced"}
        if not isinstance(asked, Mapping):
            raise OptionError(
                explain(
                    f"{type(self).__name__}.class_weight",
                    expected="none, 'balanced', or a dictionary of labels and their weights",
                    got=repr(asked),
                    remedy="Give one of these.",
                )
            )
        strange = [label for label in asked if label not in classes]
        if strange:
            raise unknown_name("label in class_weight", str(strange[0]), [str(c) for c in classes])
        each = [asked.get(label, 1.0) for label in classes.tolist()]
        check_weights(each, f"{type(self).__name__}.class_weight")
        return {"class_weights": dict(zip(map(label_of, classes), each, strict=True))}

    def decision_function(self, X: Any) -> np.ndarray:
        """Return how much speaks for each class: logits (n, classes), in the order of `classes_`.

        Of two classes, the logarithm of the odds of the second (n,).
        """
        check_is_fitted(self, "model_")
        collection = collect(X)
        self._check_channels(collection)
        scores = self._outputs(collection.series, collection.times)[:, self._order]
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class (n, classes), in the order of `classes_`."""
        check_is_fitted(self, "model_")
        collection = collect(X)
        self._check_channels(collection)
        return self._probabilities(self._outputs(collection.series, collection.times))

    def predict(self, X: Any) -> np.ndarray:
        """Return the likeliest class of each series (n,)."""
        likeliest = self.predict_proba(X).argmax(1)
        return self.classes_[likeliest]

    def stream(
        self, samples: Iterable[Any], times: Iterable[float] | None = None
    ) -> Iterator[np.ndarray]:
        """Yield the probabilities (classes,) after each sample (channels,) of one long series.

        Memory does not grow. After the last sample of a series the probabilities are those of
        `predict_proba`, unless values are missing and were interpolated, which needs the future, or
        the model is a bank and the series is shorter than those of training usually are: it is as
        sure of a beginning as beginnings of training series were right.

        Args:
            samples: The samples.
            times: Their time stamps, where the model was trained with such.
        """
        for outputs in self._stream_outputs(samples, times):
            yield self._probabilities(outputs[None])[0]

    def _probabilities(self, outputs: np.ndarray) -> np.ndarray:
        shifted = outputs[:, self._order]
        weights = np.exp(shifted - shifted.max(1, keepdims=True))
        return weights / weights.sum(1, keepdims=True)
