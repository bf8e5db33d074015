"""Preparation: from raw recordings to what a network reads, and from its answers back.

Everything is fitted on the training part alone and is small enough to be stored in a run, so a
model answers in original labels and units without the data it was trained on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

import numpy as np

from undamped._base.contract import Use
from undamped._base.contract.clock import LONGEST_GAP
from undamped._base.errors import DataError, OptionError, RunError, ShapeError, explain
from undamped._base.options import check_fields, unknown_name
from undamped.lab.data.recordings.alarm import Alarm
from undamped.lab.data.recordings.gaps import hold, interpolate
from undamped.lab.data.recordings.labels import as_labels, comparable, sorted_labels
from undamped.lab.data.recordings.moments import (
    channel_moments,
    longest_span,
    target_moments,
    typical_gap,
)
from undamped.lab.data.recordings.prepared import PreparedSamples, PreparedSeries
from undamped.lab.data.recordings.series import SeriesSet

Kind = Literal["classification", "regression", "steps", "step-regression", "forecast"]
Missing = Literal["interpolate", "mask"]


@dataclass(frozen=True)
class Preparation:
    """What was done to the data before a network saw it.

    Features of a step are the standardised channels. With `missing="mask"` a model is told beside
    them what was there, and with `stamps` when: times are counted from the first step of a series,
    in usual gaps.

    Args:
        kind: What is asked: one class or number per series, one per step, or the values to come.
        raw_channels: The channels of a recording as it comes.
        channels: Those that are used.
        mean: Mean of each used channel.
        std: Standard deviation of each used channel.
        missing: What becomes of missing values: they are filled along a line between their
            neighbours, or models are told that they are missing, and hold the last value.
        stamps: Whether models are told when the steps were.
        typical_gap: The median time between steps.
        span: How long the longest series lasts, in typical gaps.
        classes: The labels, for classification.
        target_mean: Mean of the target; for forecasts, of each channel that is predicted.
        target_std: Its standard deviation.
        horizon: How many values to come are predicted.
        forecast: The channels that are predicted.
        window: Steps of a window, where recordings were cut into such.
        quantiles: The quantiles of values to come that networks answer with; empty where they
            answer with one value.
        each_window: Whether every window of a recording has an answer of its own; otherwise the
            answers are averaged.
        alarm: The class that is said from a threshold of its own on, as `Alarm` writes it down.

    Example:
        >>> import numpy as np
        >>> waves = SeriesSet.of([np.ones((4, 1)), np.zeros((4, 1))], targets=["on", "off"])
        >>> prepared = Preparation.fit(waves, kind="classification")
        >>> prepared.transform(np.ones((4, 1)))[:, 0]
        array([1., 1., 1., 1.], dtype=float32)
        >>> prepared.answer([[0.0, 2.0]])[0]["label"]
        'on'
    """

    kind: Kind
    raw_channels: list[str]
    channels: list[str]
    mean: list[float]
    std: list[float]
    missing: Missing = "interpolate"
    stamps: bool = False
    typical_gap: float = 1.0
    span: float = 1.0
    classes: list[str] | None = None
    target_mean: list[float] = field(default_factory=lambda: [0.0])
    target_std: list[float] = field(default_factory=lambda: [1.0])
    horizon: int = 0
    forecast: list[str] = field(default_factory=list)
    window: int | None = None
    quantiles: list[float] = field(default_factory=list)
    alarm: dict[str, Any] | None = None
    each_window: bool = False

    @classmethod
    def fit(
        cls,
        training: SeriesSet,
        *,
        kind: Kind,
        missing: Missing = "interpolate",
        standardise: bool = True,
        stamps: bool = False,
        classes: Sequence[str] | None = None,
        horizon: int = 0,
        forecast: Sequence[str] | None = None,
        window: int | None = None,
        quantiles: Sequence[float] = (),
    ) -> Preparation:
        """Learn means, scales and labels from the training part.

        Args:
            training: The training part and nothing else.
            kind: What is asked.
            missing: What becomes of missing values.
            standardise: Whether channels are brought to mean 0 and standard deviation 1.
            stamps: Whether models are told when the steps were.
            classes: All labels there are, should the training part lack some.
            horizon: For forecasts, how many values.
            forecast: For forecasts, which channels; all if none are named.
            window: Steps of the windows that recordings were cut into.
            quantiles: For forecasts, which quantiles; the value itself if none are named.
        """
        predicted = list(forecast or training.channels) if kind == "forecast" else []
        for name in predicted:
            if name not in training.channels:
                raise unknown_name("channel", name, training.channels)
        mean, std = channel_moments(training)
        used = [i for i, n in enumerate(training.channels) if std[i] > 0 or n in predicted]
        used = used or list(range(len(std)))  # constants only: better than nothing at all
        scale = np.where(std > 0, std, 1.0)
        target_mean, target_std = np.zeros(1), np.ones(1)
        if kind in ("classification", "steps"):
            classes = sorted_labels(training.targets if classes is None else classes)
        elif kind == "forecast":
            places = [training.channels.index(name) for name in predicted]
            target_mean, target_std = mean[places], scale[places]
        else:
            target_mean, target_std = target_moments(training)
        if not standardise:
            mean, scale = np.zeros_like(mean), np.ones_like(scale)
        gap = typical_gap(training) if stamps else 1.0
        return cls(
            kind=kind,
            raw_channels=list(training.channels),
            channels=[training.channels[i] for i in used],
            mean=[float(mean[i]) for i in used],
            std=[float(scale[i]) for i in used],
            missing=missing,
            stamps=stamps,
            typical_gap=gap,
            span=longest_span(training) / gap if stamps else 1.0,
            classes=list(classes) if classes is not None else None,
            target_mean=[float(v) for v in target_mean],
            target_std=[float(v) for v in target_std],
            horizon=horizon,
            forecast=predicted,
            window=window,
            quantiles=[float(level) for level in quantiles],
        )

    # Sizes and storage

    @property
    def input_size(self) -> int:
        """Features per step."""
        return len(self.channels)

    @property
    def needs(self) -> frozenset[Use]:
        """What of a batch, beside its inputs, a model has to use."""
        told: set[Use] = set()
        if self.stamps:
            told.add("times")
        if self.missing == "mask":
            told.add("observed")
        return frozenset(told)

    @property
    def at_times(self) -> bool:
        """Whether values to come are asked for by their times; otherwise by their steps."""
        return self.kind == "forecast" and self.stamps

    @property
    def output_size(self) -> int:
        """Numbers a network answers with."""
        if self.classes is not None:
            return len(self.classes)
        if self.at_times:
            return len(self.forecast)
        return max(1, self.horizon * len(self.forecast) * max(1, len(self.quantiles)))

    @property
    def readout(self) -> Literal["last", "every"]:
        """Whether there is an answer at every step."""
        return "every" if self.kind in ("steps", "step-regression") else "last"

    @property
    def kept_alarm(self) -> Alarm | None:
        """The class that has a threshold of its own, if one has."""
        if self.alarm is None:
            return None
        return Alarm(**{**self.alarm, "series": tuple(self.alarm["series"])})

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for run.json."""
        return {**asdict(self), "input_size": self.input_size, "output_size": self.output_size}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Preparation:
        """Return what `to_dict` wrote down, checked: numbers are divided by some of it."""
        if values.get("input_size", 0) > len(values["channels"]):
            raise RunError(
                explain(
                    "preparation",
                    expected="time stamps and missing values beside the channels",
                    got="an older form, in which they were channels",
                    remedy="Train the model again, or use the version of undamped that made it.",
                )
            )
        known = {one.name for one in fields(cls)}
        prepared = cls(**{name: value for name, value in values.items() if name in known})
        check_fields("preparation", prepared)
        prepared._check_numbers()
        return prepared

    def _check_numbers(self) -> None:
        """Refuse numbers that do not belong to the channels, and scales that are not positive."""
        width = len(self.channels)
        targets = len(self.forecast) if self.kind == "forecast" else 1
        sizes = {
            "mean": width,
            "std": width,
            "target_mean": targets,
            "target_std": targets,
        }
        for name, size in sizes.items():
            stored = getattr(self, name)
            scale = name.endswith("std")
            if len(stored) != size or (scale and not min(stored, default=1.0) > 0):
                raise RunError(
                    explain(
                        f"preparation.{name}",
                        expected=f"{size} {'positive ' if scale else ''}numbers, one per channel",
                        got=stored,
                        remedy="Restore run.json from a copy, or train anew.",
                    )
                )
        missing = [name for name in (*self.channels, *self.forecast)
                   if name not in self.raw_channels]  # fmt: skip
        if missing or not self.typical_gap > 0 or self.classes == [] or self.horizon < 0:
            raise RunError(
                explain(
                    "preparation",
                    expected="channels of the recordings, a positive gap, labels and a horizon",
                    got=f"the channel '{missing[0]}'" if missing else "other numbers",
                    remedy="Restore run.json from a copy, or train anew.",
                )
            )
        self.kept_alarm  # noqa: B018 (it is made of what was stored)

    # Towards the network

    def arrange(self, series_set: SeriesSet) -> SeriesSet:
        """Return recordings with the channels this preparation knows, in its order.

        Channels are found by their names; a file without names has them in the order of training.
        """
        wanted, there = self.raw_channels, series_set.channels
        if there == wanted:
            return series_set
        if set(wanted) <= set(there):
            return series_set.select(wanted)
        unnamed = [[f"{before}{i}" for i in range(len(there))] for before in ("", "channel ")]
        if len(there) == len(wanted) and (there in [*unnamed, ["value"]] or wanted in unnamed):
            return series_set
        raise DataError(
            explain(
                series_set.source,
                expected=f"{len(wanted)} channels ({', '.join(wanted)})",
                got=f"{len(there)} ({', '.join(there)})",
                remedy="Give the channels the model was trained on, by the same names.",
            )
        )

    def prepare(self, series: np.ndarray, times: np.ndarray | None = None) -> PreparedSeries:
        """Return one raw series (time, channels) as a network takes it.

        Args:
            series: The series, NaN where a value is missing.
            times: (time,) its stamps; needed where models are told them.
        """
        values = self._standardised(np.asarray(series, dtype=np.float64))
        there = ~np.isnan(values)
        stamps = self._stamps(times, len(values)) if self.stamps else None
        if self.missing == "mask":
            filled = hold(values, there)
        else:
            filled = interpolate(values, there, stamps)
        return PreparedSeries(
            filled.astype(np.float32),
            stamps,
            there if self.missing == "mask" else None,
        )

    def transform(self, series: np.ndarray, times: np.ndarray | None = None) -> np.ndarray:
        """Return the features (time, channels) of one raw series (time, channels), float32."""
        return self.prepare(series, times).inputs

    def stream(self) -> Stream:
        """Return the causal form: raw samples in, prepared samples out."""
        if self.each_window:
            raise OptionError(
                explain(
                    "stream",
                    expected="a model that has learnt whole series, or a label at every step",
                    got=f"one that answers windows of {self.window} steps",
                    remedy="Ask it with 'undamped predict', or train with kind=steps.",
                )
            )
        return Stream(self)

    def _standardised(self, values: np.ndarray) -> np.ndarray:
        width = values.shape[-1] if values.ndim else 0
        if width == len(self.raw_channels):
            if self.raw_channels != self.channels:
                values = values[..., [self.raw_channels.index(name) for name in self.channels]]
        elif width != len(self.channels):
            raise ShapeError(
                explain(
                    "sample",
                    expected=f"{len(self.raw_channels)} channels ({', '.join(self.raw_channels)})",
                    got=width,
                    remedy="Give the channels the model was trained on.",
                )
            )
        if np.isinf(values).any():
            raise DataError(
                "sample: expected finite numbers, got an infinite one. Mark what is missing as NaN."
            )
        return (values - np.array(self.mean)) / np.array(self.std)

    def _stamps(self, times: np.ndarray | None, steps: int) -> np.ndarray:
        """Return stamps in usual gaps since the first one, float64."""
        if times is None:
            raise DataError(
                "time stamps: expected one per step, since the model was trained with them, got "
                "none. Name their column with time=."
            )
        stamps = np.asarray(times, dtype=np.float64)
        gaps = np.diff(stamps)
        if len(stamps) != steps or not (gaps > 0).all():
            raise DataError(
                "time stamps: expected one per step, each later than the one before, got others. "
                "Sort the rows and remove repeated stamps."
            )
        longest = float(gaps.max(initial=0.0)) / self.typical_gap
        if longest > LONGEST_GAP:
            raise DataError(
                explain(
                    "time stamps",
                    expected=f"gaps of up to {LONGEST_GAP:,.0f} times the usual one, "
                    f"{self.typical_gap:.6g}",
                    got=f"one of {longest:,.0f} times",
                    remedy="Correct the stamp, give what comes after it an id of its own, or say "
                    "stamps=false.",
                )
            )
        return (stamps - stamps[:1]) / self.typical_gap

    # Targets, and the way back

    def encode(self, targets: np.ndarray) -> np.ndarray:
        """Return labels as class numbers (-100 where missing), or numbers standardised."""
        if self.classes is None:
            numbers = np.asarray(targets, dtype=np.float64)
            return ((numbers - self.target_mean[0]) / self.target_std[0]).astype(np.float32)
        place = {label: number for number, label in enumerate(self.classes)}
        kinds, numbers = np.unique(comparable(targets), return_inverse=True)
        labels = as_labels(kinds)
        strange = [label for label in labels if label and label not in place]
        if strange:
            raise unknown_name("label", strange[0], self.classes)
        return np.array([place.get(label, -100) for label in labels], dtype=np.int64)[numbers]

    def answer(self, outputs: Any) -> list[dict[str, Any]]:
        """Say in original labels or units what rows of outputs (n, output) mean.

        Returns:
            One dictionary per row: "label" and "probabilities" for classes, "value" for a number,
            "forecast" with the values to come of each channel.
        """
        rows = np.asarray(outputs, dtype=np.float64)
        if self.classes is not None:
            rows = np.exp(rows - rows.max(-1, keepdims=True))
            rows = rows / rows.sum(-1, keepdims=True)
            alarm = self.kept_alarm
            return [
                {
                    "label": self.classes[int(row.argmax())]
                    if alarm is None
                    else alarm.label(self.classes, row),
                    "probabilities": dict(zip(self.classes, row.tolist(), strict=True)),
                }
                for row in rows
            ]
        if self.kind != "forecast":
            values = rows[..., 0] * self.target_std[0] + self.target_mean[0]
            return [{"value": float(value)} for value in values]
        shaped = self.middle(rows) * self.target_std + self.target_mean
        return [
            {"forecast": {name: row[:, i].tolist() for i, name in enumerate(self.forecast)}}
            for row in shaped
        ]

    def ahead(self, rows: np.ndarray) -> np.ndarray:
        """Return rows of outputs as values to come, standardised.

        Returns:
            (n, horizon, channels), and (n, horizon, channels, quantiles) of a model that answers
            with those.
        """
        values = rows.reshape(len(rows), self.horizon, len(self.forecast), -1)
        return values[..., 0] if values.shape[-1] == 1 else values

    def middle(self, rows: np.ndarray) -> np.ndarray:
        """Return the values (n, horizon, channels) that rows of outputs name as the likeliest."""
        values = self.ahead(rows)
        return values if values.ndim == 3 else values[..., middle_of(self.quantiles)]


def middle_of(quantiles: Sequence[float]) -> int:
    """Return the place of the quantile that is nearest to the median."""
    return int(np.argmin([abs(level - 0.5) for level in quantiles]))


class Stream:
    """Sample after sample: nothing of the future is used, so gaps are filled with the last value.

    With `missing="mask"`, or where nothing is missing, the rows are those of `prepare`.

    Args:
        preparation: What to do to a sample.
    """

    def __init__(self, preparation: Preparation) -> None:
        self.preparation = preparation
        self.held = np.zeros(len(preparation.channels))
        """The last standardised value of each channel that was there."""
        self.time: float | None = None
        """When the last sample was taken, where models are told that."""

    def check(self, sample: np.ndarray) -> None:
        """Refuse a raw sample (channels,) that cannot be prepared."""
        width = len(sample) if sample.ndim == 1 else 0
        fits = width in (len(self.preparation.raw_channels), len(self.preparation.channels))
        # A sum is finite unless a value is not, or all are huge.
        if not fits or not math.isfinite(sample.sum()):
            self.preparation._standardised(sample)

    def push(self, samples: Any, times: Any = None) -> PreparedSamples:
        """Take raw samples; either all of them are taken, or none and a sentence says why.

        Args:
            samples: (samples, channels).
            times: (samples,) when they were taken, for models that are told it.
        """
        prepared = self.preparation
        values = prepared._standardised(np.asarray(samples, dtype=np.float64))
        there, dt = ~np.isnan(values), None
        if prepared.stamps:
            known = [] if self.time is None else [self.time]
            stamps = np.concatenate([known, [] if times is None else times])
            # Which refuses what it cannot take.
            prepared._stamps(None if times is None else stamps, len(known) + len(values))
            dt = np.diff(stamps, prepend=stamps[:1])[len(known) :] / prepared.typical_gap
            self.time = float(stamps[-1])
        if there.all():
            filled = values
        else:
            before = np.concatenate([self.held[None], values])
            filled = hold(before, np.concatenate([np.ones_like(there[:1]), there]))[1:]
        self.held = filled[-1]
        observed = there if prepared.missing == "mask" else None
        return PreparedSamples(filled.astype(np.float32), dt, observed)
