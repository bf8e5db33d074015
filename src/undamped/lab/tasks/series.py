"""Learning from recordings: one answer per series, one per step, or the values to come."""

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
from undamped._base.errors import OptionError, explain
from undamped._base.options import NonNegativeInt
from undamped.lab.data.recordings import splits
from undamped.lab.data.recordings.bands import LEVELS
from undamped.lab.data.recordings.on_disk import let_go
from undamped.lab.data.recordings.options import SeriesOptions
from undamped.lab.data.recordings.preparation import (
    Kind,
    Preparation,
    sorted_labels,
)
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.tasks.series_alarm import wanted_alarm
from undamped.lab.tasks.series_chance import NO_ANSWER, class_counts, series_chance
from undamped.lab.tasks.series_choices import (
    LONG_PAST,
    irregular,
    kind_of,
    labelled,
    long_enough,
    without_stamps,
)
from undamped.lab.tasks.series_defaults import suggest
from undamped.lab.tasks.series_draws import dealt_anew, validated_earlier
from undamped.lab.tasks.series_forecast import (
    check_horizon,
    check_quantiles,
    check_varies,
    forecast_of,
    middle_answer,
    pinball,
    plan_forecast,
)
from undamped.lab.tasks.series_notes import preparation_notes, split_notes
from undamped.lab.tasks.series_tensors import IN_MEMORY, SeriesTensors
from undamped.lab.tasks.task import ArrayTask, Batch, Chance, Clock, Settings, Split, TaskShape


class SeriesTask(ArrayTask):
    """Answer questions about recordings of equal or unequal length.

    The set is split honestly, prepared with what the training part alone tells, and served in
    padded batches with the true lengths beside them; padding carries no loss and no score.

    Args:
        series_set: The recordings.
        seed: Where the order of the batches comes from.

    Example:
        >>> import numpy as np
        >>> random = np.random.default_rng(0)
        >>> waves = [random.normal(size=(40, 2)) + (i % 2) for i in range(30)]
        >>> task = SeriesTask(SeriesSet.of(waves, targets=[i % 2 for i in range(30)]))
        >>> task.batch("train", 0, 8).inputs.shape
        torch.Size([40, 8, 2])
    """

    tensors_class: ClassVar[type[SeriesTensors]] = SeriesTensors
    """How series become tensors."""
    band_levels: ClassVar[tuple[float, ...]] = LEVELS
    """The quantiles of bands around forecasts, where nobody asked for others."""

    @checked
    def __init__(
        self,
        series_set: SeriesSet,
        *,
        seed: NonNegativeInt = 0,
        **options: Unpack[SeriesOptions],
    ) -> None:
        super().__init__(seed)
        asked: Any = options  # complete and converted
        self._said: list[str] = list(series_set.notes)
        self.kind: Kind = kind_of(series_set, asked["kind"], asked["horizon"], self._said)
        self.horizon: int | None = asked["horizon"] if self.kind == "forecast" else None
        series_set = labelled(series_set, self.kind, self._said)
        stamps = self._stamped(series_set, asked["stamps"])
        asked = self._planned(series_set, asked, stamps)
        self.quantiles = check_quantiles(asked["quantiles"], stamps)
        self.recordings = series_set
        """What was read, before it was cut into windows."""
        self.series_set, window = self._cut(series_set, asked["window"], asked["stride"])
        self.parts, self.split_record = self._split(asked)
        self.preparation = self._fit_preparation(asked, stamps, window)
        self._said += preparation_notes(self.recordings, self.preparation, asked["standardise"])
        self._answer_as_prepared(asked["standardise"])
        if asked["weights"] == "balanced":
            self._weigh_classes()
        self.alarm = wanted_alarm(asked, self.series_set, self.preparation, self.parts)
        self._tensors = self.tensors_class(
            self.series_set, series_set, self.preparation, self.horizon or 0
        )
        self.stays_on_disk = self.series_set.on_disk and self.series_set.nbytes > IN_MEMORY

    def _planned(
        self, series_set: SeriesSet, options: Mapping[str, Any], stamps: bool
    ) -> dict[str, Any]:
        """Return the options; of a forecast with window, stride and shares for its parts."""
        if self.horizon is None:
            for name in ("season", "quantiles"):
                if options[name] is not None:
                    raise OptionError(
                        explain(
                            name,
                            expected="a horizon beside it, since it is about values to come",
                            got="none",
                            remedy="Give horizon=, or leave it out.",
                        )
                    )
            self.season = 1
            return dict(options)
        check_horizon(series_set, self.horizon)
        if stamps and options["window"] is None and not _long(series_set):
            self.season = 1
            return dict(options)  # whole series are read
        plan = plan_forecast(series_set, options, self.horizon, stamps)
        self.season, self.too_short = plan.season, plan.too_short
        self._said += plan.notes
        own = {"window": plan.window, "stride": plan.stride, "fractions": plan.fractions}
        return {**options, **own}

    def _cut(
        self, series_set: SeriesSet, window: int | None, stride: int | None
    ) -> tuple[SeriesSet, int | None]:
        """Return what a model answers about, whole series or windows, and how long a window is."""
        if self.horizon is not None and window is None:
            self._say(f"All of a series but its last {self.horizon} steps goes in.")
            return long_enough(series_set, self.horizon + 1, self._said), None
        if self.horizon is not None and window is not None:
            cut = series_set.windows(window + self.horizon, stride or 1)
            self._say(f"{len(cut):,} windows: {window} steps in, {self.horizon} to come.")
            short = int((series_set.lengths < window + self.horizon).sum())
            if short:
                self._say(f"{short:,} series are shorter than a window and are left out.")
            return cut, window
        if window is not None:
            cut = series_set.windows(window, stride or window)
            self._say(f"{len(cut):,} windows of {window} steps.")
            return cut, window
        return series_set, None

    def _split(self, asked: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return which series are in which part, and what a run remembers of it."""
        by, why = asked["split"], "as asked"
        fractions, gap, seed = asked["fractions"], asked["gap"], asked["split_seed"]
        if asked["held_out"] is not None:
            self._refuse_other_splits(by)
            by, why = "group", f"{asked['held_out']} is held out for the test"
            parts = splits.hold_out(
                self.series_set, asked["held_out"], fractions=fractions, seed=seed
            )
        else:
            if by == "auto":
                by, why = splits.choose(self.series_set, self.kind)
            parts = splits.split(
                self.series_set,
                fractions=fractions,
                by=by,
                gap=gap,
                seed=seed,
                ahead=self.horizon or 0,
            )
        self._said += split_notes(self.series_set, parts, by, why)
        return parts, {
            "by": by,
            "fractions": [float(f) for f in fractions],
            "gap": gap,
            "seed": seed,
            "sizes": {name: len(index) for name, index in parts.items()},
            "hash": splits.hash_of(parts),
        }

    @staticmethod
    def _refuse_other_splits(by: str) -> None:
        if by not in ("auto", "group"):
            raise OptionError(
                explain(
                    "held_out",
                    expected="a split by group",
                    got=f"split={by}",
                    remedy="Leave split out, or give split=group.",
                )
            )

    def _fit_preparation(
        self, asked: Mapping[str, Any], stamps: bool, window: int | None
    ) -> Preparation:
        """Return what the training part alone tells about channels, gaps and answers."""
        missing = asked["missing"]
        if missing == "auto":
            missing = "mask" if stamps and _has_gaps(self.series_set) else "interpolate"
        stepwise = self.kind in ("steps", "classification")
        training = self.series_set.take(self.parts["train"])
        if self.kind == "forecast":
            constant = check_varies(training, asked["forecast"])
            if constant:
                self._say(f"Constant in the training part, and predicted: {', '.join(constant)}.")
        return Preparation.fit(
            training,
            kind=self.kind,
            missing=missing,
            standardise=asked["standardise"],
            stamps=stamps,
            classes=sorted_labels(self.series_set.targets) if stepwise else None,
            horizon=asked["horizon"] or 0,
            forecast=asked["forecast"],
            window=window,
            quantiles=self.quantiles,
        )

    def _answer_as_prepared(self, standardise: bool) -> None:
        """Tell models and instruments which answers are wanted, as the preparation makes them."""
        prepared = self.preparation
        self.input_size = prepared.input_size
        self.output_size = prepared.output_size
        self.readout = prepared.readout
        self.needs = prepared.needs
        if prepared.stamps:
            self.clock = Clock(gap=1.0, span=prepared.span)
        self.counts_classes = prepared.classes is not None
        self.answer = "class" if self.counts_classes else "number"
        if self.kind == "forecast":
            # Without standardising, inputs keep their units and answers do not.
            self.same_channels = prepared.forecast == prepared.channels and standardise
        if prepared.at_times:
            self.answer = "trajectory"
        elif self.horizon is not None:
            self.steps_ahead = self.horizon
        self.metric = "accuracy" if self.counts_classes else "mae" if self.quantiles else "rmse"
        self.higher_is_better = self.counts_classes

    def _weigh_classes(self) -> None:
        """Let every class weigh alike in the training part; the mean weight there is 1."""
        if not self.counts_classes:
            raise OptionError(
                explain(
                    "weights",
                    expected="'equal' where answers are numbers",
                    got="'balanced'",
                    remedy="Leave it out; classes can be weighed, numbers cannot.",
                )
            )
        counts = class_counts(self.series_set, self.preparation, self.parts["train"])
        met = max(1, int((counts > 0).sum()))
        self.class_weights = tuple(
            float(counts.sum() / (met * count)) if count else 1.0 for count in counts
        )
        self.metric = "weighted_accuracy"
        self._say("Classes weigh alike, however many series they have.")

    @property
    def task_shape(self) -> TaskShape:
        """What a model has to know about the task."""
        return replace(super().task_shape, forecast=forecast_of(self.preparation, self.season))

    def with_whole_past(self) -> SeriesTask:
        """Return the task with all that was before a forecast as its input, and not a window."""
        again = copy.copy(self)
        again._tensors = self.tensors_class(
            self.series_set, self.recordings, self.preparation, self.horizon or 0, whole_past=True
        )
        return again

    def suggest(self, model: str) -> Settings:
        """Choose size, rate and budget from the length and number of the series."""
        lengths = self.series_set.lengths[self.parts["train"]] - (self.horizon or 0)
        typical = int(np.median(lengths))
        return suggest(typical, len(lengths), self.input_size, self.kind, model)

    def _stamped(self, series_set: SeriesSet, asked: bool | None) -> bool:
        """Return whether models are told the time stamps, and say so where nobody did."""
        if asked is not None:
            if asked and series_set.times is None:
                raise without_stamps(series_set)
            return asked
        found = irregular(series_set)
        if found:
            self._say("Time stamps are irregular: models are told them.")
        return found

    # Saying aloud

    def _say(self, sentence: str) -> None:
        self._said.append(sentence)

    def notes(self) -> list[str]:
        """Say what was done to the data."""
        return [
            f"{self.recordings.source}: {self.recordings.describe()}.",
            *self._said,
            *(f"Warning: {sentence}" for sentence in self.series_set.warnings),
        ]

    def record(self) -> dict[str, Any]:
        """What a run has to remember."""
        return {
            "preparation": self.preparation.to_dict(),
            "split": self.split_record,
            "data": self.notes(),
            "warnings": list(self.series_set.warnings),
            "columns": self.series_set.columns,
        }

    def describe(self) -> str:
        """Say in one line what a model is asked to do."""
        asked = {
            "classification": f"tell {self.output_size} classes apart",
            "regression": "say a number",
            "steps": f"tell {self.output_size} classes apart at every step",
            "step-regression": "say a number at every step",
            "forecast": f"say the next {self.horizon} values",
        }
        return f"{Path(self.series_set.source).name}: {asked[self.kind]}."

    # Batches

    def sequences(self, split: Split) -> int:
        """How many series a part has; without a validation part, training is looked at instead."""
        return len(self._members(split))

    @property
    def validates_on_training(self) -> bool:
        """Whether there is no validation part."""
        return not len(self.parts["valid"])

    def redrawn(self, number: int) -> SeriesTask | None:
        """Return the task with training and validation series dealt anew.

        Where the past comes first, a forecast is validated on an earlier stretch and learns from
        what was before that; other questions have one validation part. So has a source that says
        what to validate on. Preparation stays as it is: what it knows of channels came without
        answers.

        Args:
            number: Which of the possible draws.
        """
        ours, given = self.parts, self.series_set.parts
        published = given is not None and "valid" in given
        if published or not len(ours["valid"]):
            return None
        if self.split_record["by"] != "time":
            dealt = dealt_anew(self.series_set, ours, number)
        elif self.horizon is not None:
            dealt = validated_earlier(
                self.series_set, ours, number, self.split_record, self.horizon
            )
        else:
            return None
        if dealt is None:
            return None
        again = copy.copy(self)
        again.parts = {**ours, **dealt}
        return again

    def _members(self, split: Split) -> np.ndarray:
        if split == "valid" and not len(self.parts["valid"]):
            split = "train"
        return self.parts[split]

    def order(self, epoch: int, size: int) -> Tensor:
        """Return a shuffled order in which series of like length come together."""
        shuffled = super().order(epoch, size)
        lengths = self.series_set.lengths[self._members("train")]
        if lengths.min() == lengths.max():
            return shuffled
        steps = torch.from_numpy(lengths)[shuffled]
        # Sorted only within a stretch of eight batches, so that batches still differ by pass.
        stretch = torch.arange(len(shuffled)) // (8 * size)
        near = shuffled[np.lexsort((steps.numpy(), stretch.numpy()))]
        whole = len(near) // size
        batches = near[: whole * size].view(whole, size)
        mixed = batches[torch.randperm(whole, generator=self.generator("train", epoch, part=2))]
        return torch.cat([mixed.flatten(), near[whole * size :]])

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Prepare the chosen series and pad them to the longest."""
        numbers = self._members(split)[index.numpy()]
        batch = self._tensors.batch(numbers)
        if self.stays_on_disk:
            let_go([self.series_set.series[int(number)] for number in numbers])
        return batch

    # Loss and score

    def _errors(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Return the errors of answers that count, in standardised units."""
        answers = prediction if self.kind == "forecast" else prediction.squeeze(-1)
        if self.quantiles:
            answers = middle_answer(prediction, batch.targets, self.quantiles)
        known = ~torch.isnan(batch.targets)
        return answers[known] - batch.targets[known].to(answers.dtype)

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Cross entropy, or in standardised units the pinball loss or the mean squared error."""
        if self.counts_classes:
            total = F.cross_entropy(
                prediction.flatten(0, -2),
                batch.targets.flatten(),
                weight=self._weights_like(prediction),
                ignore_index=NO_ANSWER,
                reduction="sum",
            )
        elif self.quantiles:
            known = ~torch.isnan(batch.targets)
            total = pinball(prediction, batch.targets, self.quantiles)[known].sum()
        else:
            total = self._errors(prediction, batch).square().sum()
        return total / max(1, self.answers(batch))

    def answers(self, batch: Batch) -> int:
        """How many answers count."""
        if self.counts_classes:
            return int((batch.targets != NO_ANSWER).sum())
        return int((~torch.isnan(batch.targets)).sum())

    def score(self, prediction: Tensor, batch: Batch) -> tuple[Tensor, float]:
        """Right answers, each with its class's weight, or errors in original units.

        Those are squared, unless quantiles are asked for: the median is right when the mean of
        absolute errors is smallest.
        """
        weights = self._weights_like(prediction)
        if weights is not None:
            known = batch.targets != NO_ANSWER
            truth = batch.targets[known]
            right = prediction.argmax(-1)[known] == truth
            each = weights[truth].double()
            return (right * each).sum(), float(each.sum())
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
        """The root of a mean square; shares of right answers and mean errors stay as they are."""
        return mean if self.counts_classes or self.quantiles else float(np.sqrt(mean))

    def test_parts(self) -> dict[str, Any]:
        """The test part, unless there is none."""
        return {"test": self} if len(self.parts["test"]) else {}

    @property
    def chance(self) -> Chance:
        """The commonest class, the training mean, or the last value, on the test part."""
        split: Split = "test" if len(self.parts["test"]) else "valid"
        known, asked = (self._members(part) for part in ("train", split))
        return series_chance(self.series_set, self.preparation, known, asked, self.class_weights)


def _long(series_set: SeriesSet) -> bool:
    return int(series_set.lengths.max()) > LONG_PAST


def _has_gaps(series_set: SeriesSet) -> bool:
    return any(np.isnan(piece).any() for piece in series_set.each_piece())
