"""The task of an estimator: recordings in memory, the best weights chosen by validation loss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from undamped.tasks.series import SeriesTask
from undamped.tasks.series_tensors import SeriesTensors
from undamped.tasks.task import Batch, Chance, TaskShape


class EstimatorTask(SeriesTask):
    """Recordings whose validation part is often too small for an accuracy.

    Ten series have eleven accuracies, and the first weights that reach the best of them would be
    kept for good. The cross entropy tells such weights apart, so classes are chosen by it.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.counts_classes:
            self.metric, self.higher_is_better = "cross_entropy", False

    def score(self, prediction: Tensor, batch: Batch) -> tuple[Tensor, float]:
        """The sum of cross entropies; squared errors for numbers."""
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
