"""The task of an estimator: recordings in memory, the best weights chosen by validation loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from undamped._base.errors import DataError, explain
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.tasks.series_chance import class_counts
from undamped.lab.tasks.series_tensors import SeriesTensors
from undamped.lab.tasks.task import Batch, Chance, Split, TaskShape


class EstimatorTask(SeriesTask):
    """Recordings whose validation part is often too small for an accuracy.

    Ten series have eleven accuracies, and the first weights that reach the best of them would be
    kept for good. The cross entropy tells such weights apart, so classes are chosen by it.

    Args:
        arguments: Those of `SeriesTask`.
        class_weights: What series of each class count, by label.
        sample_weights: (series,) what each series counts.
        options: Those of `SeriesTask`.
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
            self._weigh_by(class_weights)
        if self.counts_classes:
            self.metric, self.higher_is_better = "cross_entropy", False

    def _weigh_by(self, weights: Mapping[str, float]) -> None:
        """Let classes count as they should; the mean weight in the training part is 1."""
        each = np.array([weights[label] for label in self.preparation.classes or ()])
        counts = class_counts(self.series_set, self.preparation, self.parts["train"])
        total = counts @ each
        if not total:
            raise DataError(
                explain(
                    "class_weight",
                    expected="a weight above 0 for a class of the training part",
                    got="only weights of 0",
                    remedy="Give other weights, or more series.",
                )
            )
        self.class_weights = tuple((each * counts.sum() / total).tolist())

    @property
    def task_shape(self) -> TaskShape:
        """What a model has to know about the task."""
        return replace(super().task_shape, weighted=self.sample_weights is not None)

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Return the chosen series, with what each counts."""
        batch = super().take(split, index, generator)
        if self.sample_weights is None:
            return batch
        weights = self.sample_weights[self._members(split)[index.numpy()]]
        return batch._replace(weights=torch.from_numpy(weights))

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """The loss of `SeriesTask`, where series count differently with their weights."""
        if batch.weights is None:
            return super().loss(prediction, batch)
        if self.counts_classes:
            each = F.cross_entropy(
                prediction, batch.targets, self._weights_like(prediction), reduction="none"
            )
        else:
            each = self._errors(prediction, batch).square()
        return (each * batch.weights.to(each)).sum() / max(1, self.answers(batch))

    def score(self, prediction: Tensor, batch: Batch) -> tuple[Tensor, float]:
        """The sum of cross entropies; squared errors for numbers."""
        if not self.counts_classes and batch.weights is not None:
            errors = self._errors(prediction, batch).double() * self.preparation.target_std[0]
            return (errors.square() * batch.weights).sum(), float(batch.weights.sum())
        if not self.counts_classes:
            return super().score(prediction, batch)
        count = self.answers(batch)
        return self.loss(prediction, batch).detach().double() * count, count

    def finish(self, mean: float) -> float:
        """Cross entropies stay as they are."""
        return mean if self.counts_classes else super().finish(mean)

    @property
    def chance(self) -> Chance:
        """What a guess scores, in the measure that chooses."""
        guess = super().chance
        return Chance(guess.loss, guess.loss, guess.guess) if self.counts_classes else guess


class ChangeTensors(SeriesTensors):
    """Values to come as their differences from the last one."""

    def _to_come(self, number: int) -> Tensor:
        ahead = super()._to_come(number).view(-1, len(self.preparation.forecast))
        last = self._inputs(number).inputs[-1, : ahead.shape[1]]
        return (ahead - torch.from_numpy(last)).flatten()


class ValuesToCome(EstimatorTask):
    """Forecasts as they are, with bands for many quantiles."""

    band_levels = (0.01, 0.025, *(round(0.05 * step, 2) for step in range(1, 20)), 0.975, 0.99)


class ChangesToCome(ValuesToCome):
    """Forecasts as changes from the last value, so that a model begins where a guess would end.

    What a run of it says is not in original units by itself; the run therefore keeps no
    preparation, and only the forecaster, which adds the last value, can be asked.
    """

    tensors_class = ChangeTensors

    @property
    def task_shape(self) -> TaskShape:
        """What a model has to know; not the units of values, since it is changes that are asked."""
        return replace(super().task_shape, forecast=None)

    def record(self) -> dict[str, Any]:
        """What a run has to remember."""
        return {name: value for name, value in super().record().items() if name != "preparation"}
