"""The tasks of the estimators: series in memory, with weights chosen by validation loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from undamped._base.errors import DataError
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.tasks.series_scores import SeriesTensors, class_counts
from undamped.lab.tasks.task import Batch, Chance, Split, TaskShape


class EstimatorTask(SeriesTask):
    """A `SeriesTask` whose validation split is often too small for an accuracy.

    Ten series have only eleven different accuracies, so many weights would reach the best one.
    The cross entropy distinguishes them, and is therefore the metric of classifiers.

    Args:
        arguments: Positional arguments of `SeriesTask`.
        class_weights: The weight of each class, by label.
        sample_weights: The weight of each series (series,).
        options: Options of `SeriesTask`.
    """

    def __init__(
        self,
        *arguments: Any,
        class_weights: Mapping[str, float] | None = None,
        sample_weights: np.ndarray | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.sample_weights = sample_weights
        if class_weights is not None:
            self._set_class_weights(class_weights)
        if self.counts_classes:
            self.metric, self.higher_is_better = "cross_entropy", False

    def _set_class_weights(self, weights: Mapping[str, float]) -> None:
        """Set the class weights; their mean over the training split is 1."""
        values = np.array([weights[label] for label in self.preparation.classes or ()])
        counts = class_counts(self.series_set, self.preparation, self.splits["train"])
        total = counts @ values
        if not total:
            raise DataError(
                "class_weight must be > 0 for a class of the training split, got only weights of 0."
            )
        self.class_weights = tuple((values * counts.sum() / total).tolist())

    @property
    def task_shape(self) -> TaskShape:
        return replace(super().task_shape, weighted=self.sample_weights is not None)

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        batch = super().take(split, index, generator)
        if self.sample_weights is None:
            return batch
        weights = self.sample_weights[self._indices(split)[index.numpy()]]
        return batch._replace(weights=torch.from_numpy(weights))

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """The loss of `SeriesTask`, weighted if the series have weights."""
        if batch.weights is None:
            return super().loss(prediction, batch)
        if self.counts_classes:
            losses = F.cross_entropy(
                prediction, batch.targets, self._weights_like(prediction), reduction="none"
            )
        else:
            losses = self._errors(prediction, batch).square()
        return (losses * batch.weights.to(losses)).sum() / max(1, self.answers(batch))

    def score(self, prediction: Tensor, batch: Batch) -> tuple[Tensor, float]:
        """The sum of cross entropies, or of squared errors for regression, and its count."""
        if not self.counts_classes and batch.weights is not None:
            errors = self._errors(prediction, batch).double() * self.preparation.target_std[0]
            return (errors.square() * batch.weights).sum(), float(batch.weights.sum())
        if not self.counts_classes:
            return super().score(prediction, batch)
        count = self.answers(batch)
        return self.loss(prediction, batch).detach().double() * count, count

    def finish(self, mean: float) -> float:
        """Return the metric: the mean cross entropy itself for classes."""
        return mean if self.counts_classes else super().finish(mean)

    @property
    def chance(self) -> Chance:
        """The score of the naive baseline, in the metric that chooses weights."""
        baseline = super().chance
        return (
            Chance(baseline.loss, baseline.loss, baseline.rule) if self.counts_classes else baseline
        )


class ChangeTensors(SeriesTensors):
    """Future values as differences from the last value."""

    def _to_come(self, index: int) -> Tensor:
        values = super()._to_come(index).view(-1, len(self.preparation.forecast))
        columns = [self.preparation.channels.index(name) for name in self.preparation.forecast]
        last = self._inputs(index).inputs[-1, columns]
        return (values - torch.from_numpy(last)).flatten()


class ValuesToCome(EstimatorTask):
    """Forecasts of values, with prediction intervals for many quantiles."""

    band_levels = (0.01, 0.025, *(round(0.05 * step, 2) for step in range(1, 20)), 0.975, 0.99)


class ChangesToCome(ValuesToCome):
    """Forecasts of changes from the last value, so that training starts at the naive baseline.

    The outputs of such a run are not in original units. The run therefore stores no preparation,
    and only the forecaster, which adds the last value, can predict with it.
    """

    tensors_class = ChangeTensors

    @property
    def task_shape(self) -> TaskShape:
        """The shape of the task, without the units of values: outputs are changes."""
        return replace(super().task_shape, forecast=None)

    def record(self) -> dict[str, Any]:
        return {name: value for name, value in super().record().items() if name != "preparation"}
