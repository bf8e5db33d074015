"""Learning from recordings: one answer per series, one per step, or a forecast.

A task is composed of pure steps: recordings are cut into windows (`cut`), windows are split
(`split_windows`), and a preparation is fitted on the training split (`fit_preparation`). Each step
returns its notes for the user.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Unpack, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from undamped._base.checked import checked
from undamped._base.options import NonNegativeInt
from undamped.lab.data.recordings.bands import LEVELS
from undamped.lab.data.recordings.covariates import with_covariates
from undamped.lab.data.recordings.labels import sorted_labels
from undamped.lab.data.recordings.on_disk import release
from undamped.lab.data.recordings.options import SeriesOptions
from undamped.lab.data.recordings.preparation import Kind, Preparation
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.tasks.series_defaults import suggest
from undamped.lab.tasks.series_forecast import check_varies, forecast_contract
from undamped.lab.tasks.series_scores import (
    IN_MEMORY,
    NO_ANSWER,
    SeriesTensors,
    alarm_target,
    balanced_weights,
    median_prediction,
    pinball,
    series_chance,
)
from undamped.lab.tasks.series_split import SeriesSplit, resplit, split_windows
from undamped.lab.tasks.series_windows import Windows, cut
from undamped.lab.tasks.task import ArrayTask, Batch, Chance, Clock, Settings, Split, TaskShape

_INTERMITTENT = 1 / 3  # of the values are zero


class SeriesTask(ArrayTask):
    """Answer questions about recordings of equal or unequal length.

    Recordings are split without leaks, prepared with statistics of the training split alone, and
    served in padded batches with their lengths; padding enters neither loss nor score.

    Args:
        series_set: The recordings.
        seed: Seed of the order of the batches.

    Example:
        >>> import numpy as np
        >>> random = np.random.default_rng(0)
        >>> waves = [random.normal(size=(40, 2)) + (i % 2) for i in range(30)]
        >>> task = SeriesTask(SeriesSet.of(waves, targets=[i % 2 for i in range(30)]))
        >>> task.batch("train", 0, 8).inputs.shape
        torch.Size([40, 8, 2])
    """

    tensors_class: ClassVar[type[SeriesTensors]] = SeriesTensors
    """The class of the tensors of series."""
    class_weights: tuple[float, ...] = ()
    """The weight of each class in loss and score; empty where all weigh the same."""
    _steps_ahead: int = 0
    band_levels: ClassVar[tuple[float, ...]] = LEVELS
    """The default quantiles of prediction bands of forecasts."""

    @checked
    def __init__(
        self, series_set: SeriesSet, *, seed: NonNegativeInt = 0, **options: Unpack[SeriesOptions]
    ) -> None:
        super().__init__(seed)
        complete = cast(dict[str, Any], options)  # `checked` fills in the defaults
        series_set = with_covariates(series_set, complete)
        windows = cut(series_set, complete)
        split = split_windows(windows, complete)
        preparation, notes = fit_preparation(windows, split, complete)
        self.series_set, self.recordings = windows.series_set, windows.recordings
        self.kind: Kind = windows.kind
        self.horizon, self.season = windows.horizon, windows.plan.season
        self.quantiles, self.too_short = windows.quantiles, windows.plan.too_short
        self.splits, self.split_record = split.indices, split.record
        self.preparation = preparation
        self._notes = [*windows.notes, *split.notes, *notes]
        self._describe_answer(complete["standardise"])
        if complete["weights"] == "balanced":
            train = self.splits["train"]
            self.class_weights = balanced_weights(self.series_set, preparation, train)
            self.metric = "weighted_accuracy"
            self._notes.append("Classes have equal weight, however many series they have.")
        self.alarm = alarm_target(complete, self.series_set, preparation, self.splits)
        self._tensors = self._make_tensors()
        self.stays_on_disk = self.series_set.on_disk and self.series_set.nbytes > IN_MEMORY

    def _make_tensors(self, whole_past: bool = False) -> SeriesTensors:
        return self.tensors_class(
            self.series_set, self.recordings, self.preparation, self.horizon or 0, whole_past
        )

    def _describe_answer(self, standardise: bool) -> None:
        """Set sizes, readout, kind of answer and metric as the preparation determines them."""
        prepared = self.preparation
        self.input_size = prepared.input_size
        self.output_size = prepared.output_size
        self.readout = prepared.readout
        self.needs = prepared.needs
        if prepared.timestamps:
            self.clock = Clock(gap=1.0, span=prepared.span)
        self.counts_classes = prepared.classes is not None
        self.answer = "class" if self.counts_classes else "number"
        if self.kind == "forecast":
            # Without standardisation, inputs are in original units and answers are not.
            self.same_channels = prepared.forecast == prepared.channels and standardise
        if prepared.at_times:
            self.answer = "trajectory"
        elif self.horizon is not None:
            self._steps_ahead = self.horizon
        self.metric = "accuracy" if self.counts_classes else "mae" if self.quantiles else "rmse"
        self.higher_is_better = self.counts_classes

    @property
    def task_shape(self) -> TaskShape:
        return replace(
            super().task_shape,
            horizon=self._steps_ahead,
            class_weights=self.class_weights,
            forecast=forecast_contract(self.preparation, self.season),
        )

    def with_whole_past(self) -> SeriesTask:
        """Return the task with all values before a forecast as input, not only a window."""
        task = copy.copy(self)
        task._tensors = self._make_tensors(whole_past=True)
        return task

    def suggest(self, model: str) -> Settings:
        """Return default sizes, learning rate and budget by the length and number of the series."""
        lengths = self.series_set.lengths[self.splits["train"]] - (self.horizon or 0)
        typical = int(np.median(lengths))
        return suggest(typical, len(lengths), self.input_size, self.kind, model)

    def notes(self) -> list[str]:
        """Return what was inferred and done, in sentences."""
        return [
            f"{self.recordings.source}: {self.recordings.describe()}.",
            *self._notes,
            *(f"Warning: {sentence}" for sentence in self.series_set.warnings),
        ]

    def record(self) -> dict[str, Any]:
        return {
            "preparation": self.preparation.to_dict(),
            "split": self.split_record,
            "data": self.notes(),
            "warnings": list(self.series_set.warnings),
            "columns": self.series_set.columns,
        }

    def describe(self) -> str:
        questions = {
            "classification": f"classify series into {self.output_size} classes",
            "regression": "predict a number per series",
            "steps": f"classify every step into {self.output_size} classes",
            "step-regression": "predict a number at every step",
            "forecast": f"forecast the next {self.horizon} values",
        }
        return f"{Path(self.series_set.source).name}: {questions[self.kind]}."

    # Batches

    def sequences(self, split: Split) -> int:
        """Return the number of series of a split; an empty validation split means training."""
        return len(self._indices(split))

    @property
    def validates_on_training(self) -> bool:
        """Whether there is no validation split."""
        return not len(self.splits["valid"])

    @property
    def intermittent(self) -> bool:
        """Whether a third of the predicted values of training are zero, and none is negative."""
        if self.kind != "forecast":
            return False
        windows = self.series_set.take(self.splits["train"]).select(self.preparation.forecast)
        zeros = count = 0
        for block in windows.each_block():
            if (block < 0).any():
                return False
            zeros, count = zeros + int((block == 0).sum()), count + int((~np.isnan(block)).sum())
        return zeros >= _INTERMITTENT * count

    def redrawn(self, index: int) -> SeriesTask | None:
        """Return the task with other training and validation series, or None; see `resplit`.

        The preparation stays as it is: its statistics of channels do not depend on targets.

        Args:
            index: Which of the possible splits.
        """
        indices = resplit(self.series_set, self.splits, self.split_record, index, self.horizon)
        if indices is None:
            return None
        task = copy.copy(self)
        task.splits = {**self.splits, **indices}
        return task

    def _indices(self, split: Split) -> np.ndarray:
        if split == "valid" and not len(self.splits["valid"]):
            split = "train"
        return self.splits[split]

    def order(self, epoch: int, size: int) -> Tensor:
        """Return a shuffled order in which a batch has series of similar length."""
        lengths = self.series_set.lengths[self._indices("train")]
        if lengths.min() == lengths.max():
            return super().order(epoch, size)
        return self.order_by_length(epoch, size, torch.from_numpy(lengths))

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        indices = self._indices(split)[index.numpy()]
        batch = self._tensors.batch(indices)
        if self.stays_on_disk:
            release([self.series_set.series[int(i)] for i in indices])
        return batch

    # Loss and score

    def _errors(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Return the errors of known targets, in standardised units."""
        answers = prediction if self.kind == "forecast" else prediction.squeeze(-1)
        if self.quantiles:
            answers = median_prediction(prediction, batch.targets, self.quantiles)
        observed = ~torch.isnan(batch.targets)
        return answers[observed] - batch.targets[observed].to(answers.dtype)

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Return cross entropy, or in standardised units pinball loss or mean squared error."""
        if self.counts_classes:
            total = F.cross_entropy(
                prediction.flatten(0, -2),
                batch.targets.flatten(),
                weight=self._weights_like(prediction),
                ignore_index=NO_ANSWER,
                reduction="sum",
            )
        elif self.quantiles:
            observed = ~torch.isnan(batch.targets)
            total = pinball(prediction, batch.targets, self.quantiles)[observed].sum()
        else:
            total = self._errors(prediction, batch).square().sum()
        return total / max(1, self.answers(batch))

    def answers(self, batch: Batch) -> int:
        if self.counts_classes:
            return int((batch.targets != NO_ANSWER).sum())
        return int((~torch.isnan(batch.targets)).sum())

    def score(self, prediction: Tensor, batch: Batch) -> tuple[Tensor, float]:
        """Return correct answers, weighted by class, or errors in original units.

        Errors are squared; with quantiles they are absolute, since the median minimises those.
        """
        weights = self._weights_like(prediction)
        if weights is not None:
            labelled = batch.targets != NO_ANSWER
            truth = batch.targets[labelled]
            correct = prediction.argmax(-1)[labelled] == truth
            truth_weights = weights[truth].double()
            return (correct * truth_weights).sum(), float(truth_weights.sum())
        if self.counts_classes:
            return super().score(prediction, batch)[0], self.answers(batch)
        scale = torch.tensor(self.preparation.target_std, dtype=torch.float64)
        if self.kind == "forecast":
            times = 1 if self.preparation.at_times else cast(int, self.horizon)
            scale = scale.repeat(times).expand_as(batch.targets)
            scale = scale[~torch.isnan(batch.targets)]
        errors = self._errors(prediction.cpu(), Batch(batch.inputs, batch.targets.cpu()))
        errors = errors.double() * scale
        return (errors.abs() if self.quantiles else errors.square()).sum(), self.answers(batch)

    def _weights_like(self, prediction: Tensor) -> Tensor | None:
        if not self.class_weights:
            return None
        return torch.tensor(self.class_weights, dtype=prediction.dtype, device=prediction.device)

    def finish(self, mean: float) -> float:
        """Return the root of a mean square; accuracies and mean absolute errors are unchanged."""
        return mean if self.counts_classes or self.quantiles else float(np.sqrt(mean))

    def test_tasks(self) -> dict[str, Any]:
        """Return the test split, unless it is empty."""
        return {"test": self} if len(self.splits["test"]) else {}

    @property
    def chance(self) -> Chance:
        """The score of the commonest class, the training mean, or the last value."""
        split: Split = "test" if len(self.splits["test"]) else "valid"
        train, test = self._indices("train"), self._indices(split)
        return series_chance(self.series_set, self.preparation, train, test, self.class_weights)


def fit_preparation(
    windows: Windows, split: SeriesSplit, options: Mapping[str, Any]
) -> tuple[Preparation, list[str]]:
    """Return the preparation that is fitted on the training split, and notes about it.

    Args:
        windows: The windows.
        split: How they are split.
        options: Complete options; see `undamped.lab.data.recordings.options.SeriesOptions`.
    """
    kind, series_set, notes = windows.kind, windows.series_set, []
    missing = options["missing"]
    if missing == "auto":
        mask = windows.timestamps and any(np.isnan(b).any() for b in series_set.each_block())
        missing = "mask" if mask else "interpolate"
    training = series_set.take(split.indices["train"])
    if kind == "forecast":
        constant = check_varies(training, options["forecast"])
        if constant:
            notes.append(f"Constant in the training split, and predicted: {', '.join(constant)}.")
    # The test may contain classes that the training split lacks.
    classes = sorted_labels(series_set.targets) if kind in ("steps", "classification") else None
    preparation = Preparation.fit(
        training,
        kind=kind,
        missing=missing,
        standardise=options["standardise"],
        timestamps=windows.timestamps,
        classes=classes,
        horizon=windows.horizon or 0,
        forecast=options["forecast"],
        window=windows.plan.window,
        quantiles=windows.quantiles,
        covariates=options["known"] or (),
    )
    dropped = [name for name in preparation.raw_channels if name not in preparation.channels]
    if dropped:
        notes.append(f"Constant in the training split and left out: {', '.join(dropped)}.")
    width = len(preparation.file_channels)
    gaps = sum(int(np.isnan(block[:, :width]).sum()) for block in windows.recordings.each_block())
    if gaps:
        total = width * int(windows.recordings.lengths.sum())
        how = "interpolated" if missing == "interpolate" else "models receive a mask of them"
        notes.append(f"{gaps:,} of {total:,} values ({gaps / total:.1%}) are missing: {how}.")
    if options["standardise"]:
        notes.append("Channels are standardised with mean and deviation of the training split.")
    return preparation, notes
