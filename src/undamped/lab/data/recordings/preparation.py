"""Preparation: from raw recordings to the inputs of a network, and from its outputs back.

It is fitted on the training split alone and stored in a run, so that a model answers in original
labels and units without its training data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

import numpy as np

from undamped._base.contract import LONGEST_GAP, Use
from undamped._base.errors import DataError, OptionError, RunError, ShapeError, shortened
from undamped._base.options import check_fields, unknown_name
from undamped.lab.data.recordings.alarm import Alarm
from undamped.lab.data.recordings.covariates import with_later_values
from undamped.lab.data.recordings.labels import as_labels, comparable, sorted_labels
from undamped.lab.data.recordings.prepared import PreparedSamples, PreparedSeries, hold, interpolate
from undamped.lab.data.recordings.series import SeriesSet

Kind = Literal["classification", "regression", "steps", "step-regression", "forecast"]
Missing = Literal["interpolate", "mask"]
_RESTORE = "Restore run.json from a copy, or train the model again."


@dataclass(frozen=True)
class Preparation:
    """How recordings become inputs of a network, and outputs become answers.

    The inputs of a step are the standardised channels. With `missing="mask"` models also receive
    which values were measured, and with `timestamps` the times, counted from the first step of a
    series in typical gaps.

    Args:
        kind: The question: one class or number per series, one per step, or the values to come.
        raw_channels: The channels of a raw recording.
        channels: The channels that are used.
        mean: Mean of each used channel.
        std: Standard deviation of each used channel.
        missing: What to do with missing values: interpolate them linearly, or hold the last value
            and give models a mask.
        timestamps: Whether models receive timestamps.
        typical_gap: The median time between steps.
        span: The duration of the longest series, in typical gaps.
        classes: The labels, for classification.
        target_mean: Mean of the target; for forecasts, of each predicted channel.
        target_std: Its standard deviation.
        horizon: How many values are predicted.
        forecast: The predicted channels.
        covariates: Channels whose future values are known, each of which has a further channel
            with its values `horizon` steps later.
        window: Steps of a window, where recordings are cut into windows.
        quantiles: The quantiles that networks predict; empty where they predict one value.
        each_window: Whether every window of a recording has its answer; otherwise the answers are
            averaged.
        alarm: The class that has a threshold, as `Alarm.to_dict` returns it.

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
    timestamps: bool = False
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
    covariates: list[str] = field(default_factory=list)

    @classmethod
    def fit(
        cls,
        training: SeriesSet,
        *,
        kind: Kind,
        missing: Missing = "interpolate",
        standardise: bool = True,
        timestamps: bool = False,
        classes: Sequence[str] | None = None,
        horizon: int = 0,
        forecast: Sequence[str] | None = None,
        window: int | None = None,
        quantiles: Sequence[float] = (),
        covariates: Sequence[str] = (),
    ) -> Preparation:
        """Return a preparation with means, scales and labels of the training split.

        Args:
            training: The training split.
            kind: The question.
            missing: What to do with missing values.
            standardise: Whether channels are scaled to mean 0 and standard deviation 1.
            timestamps: Whether models receive timestamps.
            classes: All labels, in case the training split lacks some.
            horizon: For forecasts, how many values.
            forecast: For forecasts, which channels; all by default.
            window: Steps of the windows that recordings were cut into.
            quantiles: For forecasts, which quantiles; by default the value itself.
            covariates: For forecasts, which channels have known future values.
        """
        predicted = list(forecast or training.channels) if kind == "forecast" else []
        training.check_channels(predicted)
        mean, std = _channel_moments(training)
        used = [i for i, n in enumerate(training.channels) if std[i] > 0 or n in predicted]
        used = used or list(range(len(std)))  # constants only, but a network needs an input
        scale = np.where(std > 0, std, 1.0)
        if kind in ("classification", "steps"):
            classes = sorted_labels(training.targets if classes is None else classes)
            target_mean, target_std = np.zeros(1), np.ones(1)
        elif kind == "forecast":
            columns = [training.channels.index(name) for name in predicted]
            target_mean, target_std = mean[columns], scale[columns]
        else:
            target_mean, target_std = _target_moments(training)
        if not standardise:
            mean, scale = np.zeros_like(mean), np.ones_like(scale)
        gap, span = _gap_and_span(training) if timestamps else (1.0, 1.0)
        return cls(
            kind=kind,
            raw_channels=list(training.channels),
            channels=[training.channels[i] for i in used],
            mean=mean[used].tolist(),
            std=scale[used].tolist(),
            missing=missing,
            timestamps=timestamps,
            typical_gap=gap,
            span=span,
            classes=list(classes) if classes is not None else None,
            target_mean=target_mean.tolist(),
            target_std=target_std.tolist(),
            horizon=horizon,
            forecast=predicted,
            window=window,
            quantiles=[float(level) for level in quantiles],
            covariates=list(covariates),
        )

    # Sizes and storage

    @property
    def input_size(self) -> int:
        """Features per step."""
        return len(self.channels)

    @property
    def needs(self) -> frozenset[Use]:
        """The fields of a batch, besides its inputs, that a model has to use."""
        uses: dict[Use, bool] = {"times": self.timestamps, "observed": self.missing == "mask"}
        return frozenset(name for name, used in uses.items() if used)

    @property
    def at_times(self) -> bool:
        """Whether forecasts are made for specified times; otherwise for regular steps."""
        return self.kind == "forecast" and self.timestamps

    @property
    def output_size(self) -> int:
        """Number of outputs of a network."""
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
    def stored_alarm(self) -> Alarm | None:
        """The class that has a threshold, if there is one."""
        if self.alarm is None:
            return None
        return Alarm.from_dict(self.alarm)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as plain values, for run.json."""
        return {**asdict(self), "input_size": self.input_size, "output_size": self.output_size}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Preparation:
        """Return the preparation that `to_dict` describes, after checking it."""
        if values.get("input_size", 0) > len(values["channels"]):
            raise RunError(
                "preparation: the run is from an older version, in which timestamps and masks were "
                "channels. Train the model again, or use the version of undamped that made it."
            )
        if "stamps" in values:  # of runs of earlier versions
            values = {"timestamps": values["stamps"], **values}
        names = {entry.name for entry in fields(cls)}
        prepared = cls(**{name: value for name, value in values.items() if name in names})
        check_fields("preparation", prepared)
        prepared._check_numbers()
        return prepared

    def _check_numbers(self) -> None:
        """Raise an error for lists of a wrong length, and scales that are not positive."""
        width, targets = len(self.channels), len(self.forecast) if self.kind == "forecast" else 1
        for name in ("mean", "std", "target_mean", "target_std"):
            stored, size = getattr(self, name), targets if name.startswith("target") else width
            scale = name.endswith("std")
            if len(stored) != size or (scale and not min(stored, default=1.0) > 0):
                raise RunError(
                    f"preparation.{name} must be {size} {'positive ' if scale else ''}numbers, got "
                    f"{shortened(stored)}. {_RESTORE}"
                )
        names = (*self.channels, *self.forecast, *self.covariates)
        missing = [name for name in names if name not in self.raw_channels]
        if missing or not self.typical_gap > 0 or self.classes == [] or self.horizon < 0:
            problem = "typical_gap, classes or horizon is invalid"
            if missing:
                problem = f"'{shortened(missing[0])}' is not a channel of the recordings"
            raise RunError(f"preparation: {problem}. {_RESTORE}")
        self.stored_alarm  # noqa: B018 (raises an error if it is invalid)

    @property
    def file_channels(self) -> list[str]:
        """The channels of a file, without those of later values."""
        return self.raw_channels[: len(self.raw_channels) - len(self.covariates)]

    # Towards the network

    def arrange(self, series_set: SeriesSet) -> SeriesSet:
        """Return recordings with the channels of this preparation, in its order.

        Channels are matched by name; those of a file without names must be in the order of
        training. Where future values are known, the recordings end with the last predicted value.
        """
        if series_set.channels != self.raw_channels and self.covariates:
            names, predicted = self.covariates, self.forecast
            series_set = with_later_values(series_set, names, self.horizon, predicted)
        expected, channels = self.raw_channels, series_set.channels
        if channels == expected:
            return series_set
        if set(expected) <= set(channels):
            return series_set.select(expected)
        count = len(channels)
        unnamed = [[f"{prefix}{i}" for i in range(count)] for prefix in ("", "channel ")]
        if count == len(expected) and (channels in [*unnamed, ["value"]] or expected in unnamed):
            return series_set
        raise DataError(
            f"{series_set.source} has the channels {shortened(', '.join(channels))}, but the model "
            f"was trained on {shortened(', '.join(expected))}."
        )

    def prepare(self, series: np.ndarray, times: np.ndarray | None = None) -> PreparedSeries:
        """Return the inputs of a network for one raw series (time, channels).

        Args:
            series: The series, NaN where a value is missing.
            times: (time,) its timestamps; needed where models receive them.
        """
        values = self._standardised(np.asarray(series, dtype=np.float64))
        observed = ~np.isnan(values)
        timestamps = self._timestamps(times, len(values)) if self.timestamps else None
        if self.missing == "mask":
            return PreparedSeries(hold(values, observed).astype(np.float32), timestamps, observed)
        filled = interpolate(values, observed, timestamps)
        return PreparedSeries(filled.astype(np.float32), timestamps)

    def transform(self, series: np.ndarray, times: np.ndarray | None = None) -> np.ndarray:
        """Return the features (time, channels) of one raw series (time, channels), float32."""
        return self.prepare(series, times).inputs

    def stream(self) -> Stream:
        """Return the streaming form, which prepares samples one after another."""
        if self.each_window:
            raise OptionError(
                f"The model answers windows of {self.window} steps and cannot be streamed. Use "
                "'undamped predict', or train with kind=steps."
            )
        return Stream(self)

    def _standardised(self, values: np.ndarray) -> np.ndarray:
        width = values.shape[-1] if values.ndim else 0
        if width == len(self.raw_channels):
            if self.raw_channels != self.channels:
                values = values[..., [self.raw_channels.index(name) for name in self.channels]]
        elif width != len(self.channels):
            raise ShapeError(
                f"A sample must have {len(self.raw_channels)} channels "
                f"({shortened(', '.join(self.raw_channels))}), got {width}."
            )
        if np.isinf(values).any():
            raise DataError("A sample has an infinite value. Mark missing values as NaN.")
        return (values - np.array(self.mean)) / np.array(self.std)

    def _timestamps(self, times: np.ndarray | None, steps: int) -> np.ndarray:
        """Return timestamps in typical gaps since the first one, float64."""
        if times is None:
            raise DataError(
                "The model was trained with timestamps, but there are none. Name their column with "
                "time=."
            )
        timestamps = np.asarray(times, dtype=np.float64)
        gaps = np.diff(timestamps)
        if len(timestamps) != steps or not (gaps > 0).all():
            raise DataError(
                "There must be one timestamp per step, each later than the previous one. Sort the "
                "rows and remove repeated timestamps."
            )
        longest = float(gaps.max(initial=0.0)) / self.typical_gap
        if longest > LONGEST_GAP:
            raise DataError(
                f"A gap between timestamps is {longest:,.0f} times the typical one, "
                f"{self.typical_gap:.6g}; at most {LONGEST_GAP:,.0f} times are possible. Correct "
                "the timestamp, give the steps after it another id, or set timestamps=false."
            )
        return (timestamps - timestamps[:1]) / self.typical_gap

    # Targets, and the way back

    def encode(self, targets: np.ndarray) -> np.ndarray:
        """Return labels as class indices (-100 where missing), or standardised numbers."""
        if self.classes is None:
            try:
                numbers = np.asarray(targets, dtype=np.float64)
            except ValueError:
                raise DataError(
                    "The targets are text, but the model was trained on numbers. Name the column "
                    "of the numbers with target=."
                ) from None
            return ((numbers - self.target_mean[0]) / self.target_std[0]).astype(np.float32)
        index = {label: number for number, label in enumerate(self.classes)}
        kinds, numbers = np.unique(comparable(targets), return_inverse=True)
        labels = as_labels(kinds)
        unknown = [label for label in labels if label and label not in index]
        if unknown:
            raise unknown_name("label", unknown[0], self.classes)
        return np.array([index.get(label, -100) for label in labels], dtype=np.int64)[numbers]

    def answer(self, outputs: Any) -> list[dict[str, Any]]:
        """Return rows of outputs (n, output) as answers in original labels or units.

        Returns:
            One dictionary per row: "label" and "probabilities" for classes, "value" for a number,
            "forecast" with the predicted values of each channel.
        """
        rows = np.asarray(outputs, dtype=np.float64)
        if self.classes is not None:
            rows = np.exp(rows - rows.max(-1, keepdims=True))
            rows = rows / rows.sum(-1, keepdims=True)
            alarm = self.stored_alarm
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

    def to_forecasts(self, rows: np.ndarray) -> np.ndarray:
        """Return rows of outputs as standardised forecasts.

        Returns:
            (n, horizon, channels), and (n, horizon, channels, quantiles) of a model that predicts
            quantiles.
        """
        values = rows.reshape(len(rows), self.horizon, len(self.forecast), -1)
        return values[..., 0] if values.shape[-1] == 1 else values

    def middle(self, rows: np.ndarray) -> np.ndarray:
        """Return forecasts (n, horizon, channels), the median where there are quantiles."""
        values = self.to_forecasts(rows)
        return values if values.ndim == 3 else values[..., middle_of(self.quantiles)]


def middle_of(quantiles: Sequence[float]) -> int:
    """Return the index of the quantile that is nearest to the median."""
    return int(np.argmin([abs(level - 0.5) for level in quantiles]))


class Stream:
    """Prepares samples one after another; gaps are filled with the last value.

    With `missing="mask"`, or without missing values, the result is that of `prepare`.

    Args:
        preparation: The preparation.
    """

    def __init__(self, preparation: Preparation) -> None:
        self.preparation = preparation
        self.last = np.zeros(len(preparation.channels))
        """The last observed, standardised value of each channel."""
        self.time: float | None = None
        """The time of the last sample, where models receive timestamps."""

    def check(self, sample: np.ndarray) -> None:
        """Raise an error for a raw sample (channels,) that cannot be prepared."""
        width = len(sample) if sample.ndim == 1 else 0
        fits = width in (len(self.preparation.raw_channels), len(self.preparation.channels))
        # A sum is finite unless a value is not, or all are huge.
        if not fits or not math.isfinite(sample.sum()):
            self.preparation._standardised(sample)

    def push(self, samples: Any, times: Any = None) -> PreparedSamples:
        """Prepare raw samples; after an error the stream is as before.

        Args:
            samples: (samples, channels).
            times: (samples,) their times, for models that receive timestamps.
        """
        prepared = self.preparation
        values = prepared._standardised(np.asarray(samples, dtype=np.float64))
        observed, dt = ~np.isnan(values), None
        if prepared.timestamps:
            before = [] if self.time is None else [self.time]
            timestamps = np.concatenate([before, [] if times is None else times])
            # Checks the timestamps; its result is not needed here.
            prepared._timestamps(None if times is None else timestamps, len(before) + len(values))
            dt = np.diff(timestamps, prepend=timestamps[:1])[len(before) :] / prepared.typical_gap
            self.time = float(timestamps[-1])
        filled = values
        if not observed.all():
            extended = np.concatenate([self.last[None], values])
            filled = hold(extended, np.concatenate([np.ones_like(observed[:1]), observed]))[1:]
        self.last = filled[-1]
        mask = observed if prepared.missing == "mask" else None
        return PreparedSamples(filled.astype(np.float32), dt, mask)


def _channel_moments(training: SeriesSet) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of every channel in two passes, block by block."""
    width = len(training.channels)
    count, total = np.zeros(width), np.zeros(width)
    for block in training.each_block():
        values = np.asarray(block, dtype=np.float64)
        observed = ~np.isnan(values)
        count += observed.sum(0)
        total += np.where(observed, values, 0.0).sum(0)
    for name, number, value in zip(training.channels, count, total, strict=True):
        channel = f"{training.source}: channel '{shortened(name)}'"
        if number == 0:
            raise DataError(
                f"{channel} has only missing values in the training split. Leave it out with "
                "channels=."
            )
        if not np.isfinite(value):
            raise DataError(f"{channel} has an infinite value. Mark missing values as NaN.")
    mean = total / count
    squares = np.zeros(width)
    for block in training.each_block():
        deviation = np.asarray(block, dtype=np.float64) - mean
        squares += np.where(np.isnan(deviation), 0.0, deviation * deviation).sum(0)
    std = np.sqrt(squares / count)
    # A deviation below the resolution of float32 is that of a constant.
    return mean, np.where(std > 1e-6 * np.maximum(1e-30, np.abs(mean)), std, 0.0)


def _target_moments(training: SeriesSet) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of the targets; a deviation of 0 becomes 1."""
    targets = training.targets
    assert targets is not None
    columns = targets if isinstance(targets, list) else [targets]
    values = np.concatenate([np.asarray(c, dtype=np.float64).ravel() for c in columns])
    values = values[~np.isnan(values)]
    std = values.std()
    return np.array([values.mean()]), np.array([std if std > 0 else 1.0])


def _gap_and_span(training: SeriesSet) -> tuple[float, float]:
    """Return the median time between two steps, and the longest duration in such gaps."""
    assert training.times is not None
    gaps = np.concatenate([np.diff(times) for times in training.times])
    gap = float(np.median(gaps)) if len(gaps) else 1.0
    longest = max(float(times[-1] - times[0]) for times in training.times)
    return gap, longest / gap if longest > 0 else 1.0
