"""Inputs, targets and scores of recordings: class weights, naive baselines, pinball loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from undamped._base.contract import Batch
from undamped._base.errors import DataError, OptionError
from undamped.lab.data.recordings.preparation import Preparation, middle_of
from undamped.lab.data.recordings.prepared import PreparedSeries, batch_of, pad_timestamps
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.tasks.task import Chance

IN_MEMORY = 1 << 28
"""Bytes of prepared series that are cached."""

NO_ANSWER = -100  # ignored by cross entropy


@dataclass
class SeriesTensors:
    """Series of a set, prepared when they are requested and cached as far as memory allows.

    Args:
        series_set: Series, or windows of them.
        recordings: The recordings, before they were cut into windows.
        preparation: The fitted preparation of channels, missing values and targets.
        horizon: How many values at the end of each are predicted; 0 for none.
        whole_past: Whether inputs include all steps before a window.
    """

    series_set: SeriesSet
    recordings: SeriesSet
    preparation: Preparation
    horizon: int
    whole_past: bool = False
    _prepared: dict[int, PreparedSeries] = field(default_factory=dict, repr=False)
    _cached_bytes: int = 0

    def __getstate__(self) -> dict[str, object]:
        """Return the state without the cache, which another process fills again."""
        return {**self.__dict__, "_prepared": {}, "_cached_bytes": 0}

    def batch(self, indices: np.ndarray) -> Batch:
        """Prepare some series and pad them to the longest."""
        batch = batch_of([self._inputs(int(index)) for index in indices])
        targets = self._targets(indices)
        if not self.preparation.at_times:
            return batch._replace(targets=targets)
        times = pad_timestamps([self._target_times(int(index)) for index in indices])
        return batch._replace(
            targets=targets, target_times=times, target_mask=~torch.isnan(targets)
        )

    def _inputs(self, index: int) -> PreparedSeries:
        if index in self._prepared:
            return self._prepared[index]
        raw, times = self._raw(index)
        stop = len(raw) - self.horizon
        prepared = self.preparation.prepare(raw[:stop], None if times is None else times[:stop])
        if self._cached_bytes + prepared.nbytes <= IN_MEMORY:
            self._prepared[index] = prepared
            self._cached_bytes += prepared.nbytes
        return prepared

    def _raw(self, index: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Return a window with its timestamps; with `whole_past`, all steps before it too."""
        windows, origin, recordings = self.series_set, self.series_set.origin, self.recordings
        times = None if windows.times is None else windows.times[index]
        if not self.whole_past or origin is None:
            return windows.series[index], times
        # Windows refer to their recording by its content: the first of those that are equal.
        recording = int(np.flatnonzero(self._copies == origin[index, 0])[0])
        stop = int(origin[index, 1]) + len(windows.series[index])
        timestamps = None if recordings.times is None else recordings.times[recording][:stop]
        return recordings.series[recording][:stop], timestamps

    @cached_property
    def _copies(self) -> np.ndarray:
        return self.recordings.copies()

    def _target_times(self, index: int) -> Tensor:
        """Return the times of the future values (horizon,), in typical gaps since the start."""
        assert self.series_set.times is not None
        times = self.series_set.times[index]
        return torch.from_numpy((times[-self.horizon :] - times[0]) / self.preparation.typical_gap)

    def _targets(self, indices: np.ndarray) -> Tensor:
        prepared, targets = self.preparation, self.series_set.targets
        if prepared.kind == "forecast":
            future = torch.stack([self._to_come(int(index)) for index in indices])
            if not prepared.at_times:
                return future
            return future.unflatten(1, (self.horizon, -1)).transpose(0, 1)  # (horizon, batch, …)
        if isinstance(targets, list):
            padding = NO_ANSWER if prepared.classes is not None else float("nan")
            columns = [torch.from_numpy(prepared.encode(targets[index])) for index in indices]
            return torch.nn.utils.rnn.pad_sequence(columns, padding_value=padding)
        return torch.from_numpy(prepared.encode(cast(np.ndarray, targets)[indices]))

    def _to_come(self, index: int) -> Tensor:
        """Return future values, standardised, missing ones as NaN; (horizon · channels,)."""
        prepared, names = self.preparation, self.series_set.channels
        future = np.asarray(self.series_set.series[index][-self.horizon :], dtype=np.float64)
        columns = [names.index(name) for name in prepared.forecast]
        standard = (future[:, columns] - prepared.target_mean) / prepared.target_std
        return torch.from_numpy(standard.astype(np.float32).ravel())


def series_chance(
    series_set: SeriesSet,
    preparation: Preparation,
    train: np.ndarray,
    test: np.ndarray,
    weights: Sequence[float] = (),
) -> Chance:
    """Return the score of the naive baseline that is fitted on the training split.

    It predicts the most frequent class, the mean target, or the last value before a forecast.

    Args:
        series_set: All series.
        preparation: How they are prepared.
        train: Indices of the training series.
        test: Indices of the series on which the baseline is scored.
        weights: The weight of each class; empty where all weigh the same.
    """
    if preparation.kind == "forecast":
        return _last_value(series_set, preparation, test)
    learned, truth = (_targets(series_set, preparation, index) for index in (train, test))
    if preparation.classes is None:
        error = truth[~np.isnan(truth)] * preparation.target_std[0]  # the mean is 0
        root = float(np.sqrt(np.mean(error**2)))
        loss = (root / preparation.target_std[0]) ** 2
        return Chance(loss=loss, metric=root, rule="always the training mean")
    learned, truth = learned[learned != NO_ANSWER], truth[truth != NO_ANSWER]
    counts = np.bincount(learned, minlength=len(preparation.classes))
    class_weights = np.asarray(weights) if weights else np.ones(len(counts))
    # One more of each class, since the test may contain a class that training lacks.
    weighted_counts = (counts + 1) * class_weights
    frequencies = weighted_counts / weighted_counts.sum()
    commonest = int(counts.argmax())
    truth_weights = class_weights[truth]
    return Chance(
        loss=float(-(np.log(frequencies) * class_weights)[truth].mean()),
        metric=float(truth_weights[truth == commonest].sum() / truth_weights.sum()),
        rule=f"always '{preparation.classes[commonest]}', the most frequent class in training",
    )


def _last_value(series_set: SeriesSet, preparation: Preparation, index: np.ndarray) -> Chance:
    columns = [series_set.channels.index(name) for name in preparation.forecast]
    scale, total, loss, count = np.array(preparation.target_std), 0.0, 0.0, 0
    # Predicted for every quantile, the last value has this mean pinball loss where it is too low
    # and where it is too high.
    low = float(np.mean(preparation.quantiles)) if preparation.quantiles else 0.5
    for position in index:
        raw = np.asarray(series_set.series[int(position)], dtype=np.float64)[:, columns]
        past, future = raw[: -preparation.horizon], raw[-preparation.horizon :]
        step = np.maximum.accumulate(
            np.where(np.isnan(past), -1, np.arange(len(past))[:, None]), axis=0
        )[-1]
        last = np.where(step >= 0, past[step, range(len(columns))], preparation.target_mean)
        errors = future - last
        observed = ~np.isnan(errors)
        standard = (errors / scale)[observed]
        if preparation.quantiles:
            total += float(np.abs(errors[observed]).sum())
            loss += float(np.maximum(low * standard, (low - 1) * standard).sum())
        else:
            total += float(np.square(errors[observed]).sum())
            loss += float(np.square(standard).sum())
        count += int(observed.sum())
    count = max(1, count)
    return Chance(
        loss=loss / count,
        metric=total / count if preparation.quantiles else float(np.sqrt(total / count)),
        rule="always the last value",
    )


def class_counts(series_set: SeriesSet, preparation: Preparation, index: np.ndarray) -> np.ndarray:
    """Return the number of targets of each class.

    Args:
        series_set: All series.
        preparation: How they are prepared.
        index: Indices of the series that are counted.
    """
    targets = _targets(series_set, preparation, index)
    return np.bincount(targets[targets != NO_ANSWER], minlength=len(preparation.classes or ()))


def balanced_weights(
    series_set: SeriesSet, preparation: Preparation, train: np.ndarray
) -> tuple[float, ...]:
    """Return class weights inversely proportional to frequency; their mean in training is 1.

    Args:
        series_set: All series.
        preparation: How they are prepared.
        train: Indices of the training series.
    """
    if preparation.classes is None:
        raise OptionError("weights=balanced needs classes, but the targets are numbers.")
    counts = class_counts(series_set, preparation, train)
    classes = max(1, int((counts > 0).sum()))
    return tuple(float(counts.sum() / (classes * count)) if count else 1.0 for count in counts)


def _targets(series_set: SeriesSet, preparation: Preparation, index: np.ndarray) -> np.ndarray:
    targets = series_set.targets
    if isinstance(targets, list):
        return np.concatenate([preparation.encode(targets[position]) for position in index])
    assert targets is not None
    return preparation.encode(targets[index])


def alarm_target(
    options: Mapping[str, Any],
    series_set: SeriesSet,
    preparation: Preparation,
    splits: Mapping[str, np.ndarray],
) -> tuple[str, float] | None:
    """Return the positive class and the sensitivity it should reach; None if not requested.

    Args:
        options: The options `sensitivity` and `positive`.
        series_set: The recordings.
        preparation: How they are prepared.
        splits: The indices of the series of each split.
    """
    sensitivity, positive = options["sensitivity"], options["positive"]
    if sensitivity is None:
        if positive is not None:
            raise OptionError("positive needs sensitivity. Give both, or neither.")
        return None
    classes = preparation.classes
    if preparation.kind != "classification" or classes is None:
        raise OptionError(f"sensitivity needs kind=classification, got '{preparation.kind}'.")
    if not 0 < sensitivity <= 1:
        raise OptionError(f"sensitivity must be in (0, 1], such as 0.95; got {sensitivity}.")
    if positive is None and len(classes) == 2:
        counts = class_counts(series_set, preparation, splits["train"])
        positive = classes[int(np.argmin(counts))]
    if positive not in classes:
        names = ", ".join(classes[:5])
        raise OptionError(f"positive must be one of the classes {names}; got {positive}.")
    validation = class_counts(series_set, preparation, splits["valid"])
    if not validation[classes.index(positive)]:
        raise DataError(
            f"sensitivity: the validation split has no series of class '{positive}'. Give more of "
            "them, or a larger validation split (fractions=)."
        )
    return positive, float(sensitivity)


def pinball(prediction: Tensor, targets: Tensor, levels: Sequence[float]) -> Tensor:
    """Return the pinball loss of every value, the mean over its quantiles; (batch, values).

    Args:
        prediction: (batch, values · quantiles); or (batch, values) of a model that predicts one
            value, which then counts as every quantile.
        targets: (batch, values), NaN where unknown.
        levels: The quantiles.
    """
    quantiles = _as_quantiles(prediction, targets, levels)
    errors = targets.unsqueeze(-1).to(quantiles.dtype) - quantiles
    level = torch.tensor(levels, dtype=quantiles.dtype, device=quantiles.device)
    return torch.maximum(level * errors, (level - 1) * errors).mean(-1)


def median_prediction(prediction: Tensor, targets: Tensor, levels: Sequence[float]) -> Tensor:
    """Return the quantile next to the median, (batch, values)."""
    quantiles = _as_quantiles(prediction, targets, levels)
    return quantiles[..., 0 if quantiles.shape[-1] == 1 else middle_of(levels)]


def _as_quantiles(prediction: Tensor, targets: Tensor, levels: Sequence[float]) -> Tensor:
    """Return predictions as (batch, values, quantiles), or (batch, values, 1) of single values."""
    count = 1 if prediction.shape[-1] == targets.shape[-1] else len(levels)
    return prediction.unflatten(-1, (-1, count))
