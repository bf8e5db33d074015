"""Gradient boosting on summary statistics of series, by scikit-learn."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import TaskShape, Use
from undamped._base.options import PositiveFloat, PositiveInt
from undamped._base.registry import models
from undamped.lab.baselines.ridge import sample_weights
from undamped.lab.baselines.trees import TREE_ARRAYS, tree_arrays, tree_values
from undamped.lab.baselines.whole_series import LabelledSeries, WholeSeriesModel

LEVELS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
LAGS = (1, 2, 4, 8, 16, 32)
BANDS = 8
SEGMENTS = 4
_MOST_CORRELATED = 16  # channels; more have too many pairs
_COUNT = len(LEVELS) + 12 + len(LAGS) + 3 * SEGMENTS + BANDS + 1  # numbers per channel

_NEVER = -10.0  # the logit of a class that no training series has


def summary(series: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Return the summary statistics of a series; what cannot be computed is 0.

    Args:
        series: (channels, time).
        observed: (channels, time) mask of the measured values; the others are ignored.
    """
    statistics = [np.array([series.shape[1], observed.mean()])]
    for channel, mask in zip(series, observed, strict=True):
        values = channel[mask].astype(np.float64)
        times = np.flatnonzero(mask) / max(1, series.shape[1] - 1)
        statistics.append(_channel(values, times) if len(values) else np.zeros(_COUNT))
    if 1 < len(series) <= _MOST_CORRELATED:
        statistics.append(_correlations(np.where(observed, series, np.nan)))
    return np.nan_to_num(np.concatenate(statistics), posinf=0.0, neginf=0.0)


def _channel(values: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return the statistics of the measured values of a channel, with times from 0 to 1."""
    changes = np.diff(values) if len(values) > 1 else np.zeros(1)
    centred = values - values.mean()
    power = centred @ centred
    crossings = np.diff(np.signbit(centred)).mean() if len(values) > 1 else 0.0
    overall = [
        values.mean(),
        values.std(),
        values[0],
        values[-1],
        _slope(values, times),
        times[values.argmax()],
        times[values.argmin()],
        np.abs(changes).mean(),
        changes.std(),
        np.abs(changes).max(),
        (changes > 0).mean(),
        crossings,
    ]
    autocorrelations = [
        centred[lag:] @ centred[:-lag] / power if power > 0 and lag < len(values) else 0.0
        for lag in LAGS
    ]
    segments = []
    for index in range(SEGMENTS):
        mask = (times * SEGMENTS).astype(int).clip(max=SEGMENTS - 1) == index
        part = values[mask]
        segments += [part.mean(), part.std(), _slope(part, times[mask])] if len(part) else [0.0] * 3
    levels = np.quantile(values, LEVELS)
    return np.array([*levels, *overall, *autocorrelations, *segments, *_spectrum(centred)])


def _slope(values: np.ndarray, times: np.ndarray) -> float:
    centred = times - times.mean()
    spread = centred @ centred
    return float(centred @ values / spread) if spread > 0 else 0.0


def _spectrum(centred: np.ndarray) -> np.ndarray:
    """Return the fraction of power per octave, from the highest down, and the peak frequency."""
    power = np.square(np.abs(np.fft.rfft(centred)))[1:]
    total = power.sum()
    if not total > 0:
        return np.zeros(BANDS + 1)
    frequency = np.arange(1, len(power) + 1) / len(power)  # 1 is the Nyquist frequency
    octave = np.floor(-np.log2(frequency)).astype(int).clip(0, BANDS - 1)
    fractions = np.bincount(octave, power, minlength=BANDS) / total
    return np.append(fractions, frequency[power.argmax()])


def _correlations(series: np.ndarray) -> np.ndarray:
    """Return the correlation of every two channels over the samples that both have."""
    correlations = []
    for index, first in enumerate(series):
        for second in series[index + 1 :]:
            both = ~(np.isnan(first) | np.isnan(second))
            a, b = first[both], second[both]
            a, b = a - a.mean() if len(a) else a, b - b.mean() if len(b) else b
            scale = np.sqrt((a @ a) * (b @ b))
            correlations.append(a @ b / scale if scale > 0 else 0.0)
    return np.array(correlations)


@models.register("boosting")
class SummaryBoosting(WholeSeriesModel):
    """Boosted trees on summary statistics of each channel.

    Equation:
        answer = F_0 + η Σ_m tree_m(φ),  tree_m fitted to the residuals of F_{m−1}

    Symbols:
        φ summary statistics of a series: levels, changes, autocorrelations, spectrum and quarters
        of each channel, a few dozen numbers; η the rate; F_0 the naive prediction.

    Promise:
        None.

    Fitted by scikit-learn. A run stores the trees as arrays, and predictions do not need
    scikit-learn. Lengths may differ and values may be missing; streams are not supported.

    Args:
        shape: The shape of the task.
        rounds: Trees per output.
        rate: Learning rate, the factor of each tree.
        depth: Depth of the trees.

    Example:
        >>> model = undamped.lab.baselines.SummaryBoosting(undamped.models.TaskShape(3, 2))
        >>> model(torch.randn(100, 8, 3)).shape
        torch.Size([8, 2])

    Reference:
        J. H. Friedman. Stochastic gradient boosting. Computational Statistics & Data Analysis,
        2002.
    """

    uses: ClassVar[frozenset[Use]] = frozenset({"observed"})
    packages = ("sklearn",)

    @checked
    def __init__(
        self,
        shape: TaskShape,
        *,
        rounds: PositiveInt = 100,
        rate: PositiveFloat = 0.1,
        depth: PositiveInt = 3,
    ) -> None:
        super().__init__(shape)
        self.rounds, self.rate, self.depth = rounds, rate, depth

    def _fit_series(self, data: LabelledSeries, *, select: bool) -> None:
        if select:
            self.arrays.store(seed=torch.randint(1 << 31, ()))
        x = _summaries(data.series, data.observed)
        self.offset.zero_()
        weights = sample_weights(self.shape, data.targets, data.weights)
        array = None if weights is None else weights.numpy()
        if self.shape.answer == "class":
            ensembles = self._fit_classes(x, data.targets.argmax(1).numpy(), array)
        else:
            ensembles = self._fit_numbers(x, data.targets.numpy(), array)
        if not ensembles:
            return
        trees = [tree.tree_ for ensemble in ensembles for tree in ensemble.estimators_.ravel()]
        values = [self.rate * tree.value[:, 0, 0] for tree in trees]
        self.arrays.store(**tree_arrays(trees, values))
        start = np.concatenate([_initial(ensemble, x[:1], self.rate) for ensemble in ensembles])
        self.offset[self.arrays["outputs"]] = torch.from_numpy(start).to(self.offset.dtype)

    def _fit_classes(
        self, x: np.ndarray, classes: np.ndarray, weights: np.ndarray | None
    ) -> list[Any]:
        from sklearn.ensemble import GradientBoostingClassifier

        present = np.unique(classes)
        self.offset.fill_(_NEVER)
        # Of two classes the second has all trees, and the logit of the first is 0.
        self.offset[torch.from_numpy(present)] = 0.0
        if len(present) == 1:
            self.arrays.store(outputs=torch.zeros(0, dtype=torch.int64))
            return []
        self.arrays.store(outputs=torch.from_numpy(present if len(present) > 2 else present[1:]))
        return [GradientBoostingClassifier(**self._settings()).fit(x, classes, weights)]

    def _fit_numbers(
        self, x: np.ndarray, targets: np.ndarray, weights: np.ndarray | None
    ) -> list[Any]:
        from sklearn.ensemble import GradientBoostingRegressor

        self.arrays.store(outputs=torch.arange(targets.shape[1]))
        settings = self._settings()
        return [GradientBoostingRegressor(**settings).fit(x, y, weights) for y in targets.T]

    def _settings(self) -> dict[str, Any]:
        return {
            "n_estimators": self.rounds,
            "learning_rate": self.rate,
            "max_depth": self.depth,
            "max_features": "sqrt",
            "subsample": 0.8,
            "random_state": int(self.arrays["seed"]),
        }

    def _predict(self, series: list[np.ndarray], observed: list[np.ndarray]) -> Tensor:
        outputs = self.arrays["outputs"]
        predictions = torch.zeros(len(series), self.shape.output_size, dtype=torch.float64)
        if not len(outputs):
            return predictions
        x = torch.from_numpy(_summaries(series, observed))
        values = tree_values(x, *(self.arrays[name] for name in TREE_ARRAYS))
        if self.shape.answer == "class":  # round by round, a tree for every class
            predictions[:, outputs] = values.unflatten(1, (-1, len(outputs))).sum(1)
        else:  # output by output, all of its rounds
            predictions[:, outputs] = values.unflatten(1, (len(outputs), -1)).sum(2)
        return predictions

    def findings(self) -> list[str]:
        return [f"{len(self.arrays['roots']):,} trees."] if "roots" in self.arrays else []


def _summaries(series: list[np.ndarray], observed: list[np.ndarray]) -> np.ndarray:
    return np.stack([summary(x, mask) for x, mask in zip(series, observed, strict=True)])


def _initial(ensemble: Any, x: np.ndarray, rate: float) -> np.ndarray:
    """Return the prediction of an ensemble without its trees."""
    decide = getattr(ensemble, "decision_function", ensemble.predict)
    trees = np.atleast_2d(ensemble.estimators_)
    values = [[rate * tree.predict(x)[0] for tree in row] for row in trees]
    return np.ravel(decide(x)) - np.sum(values, axis=0)
