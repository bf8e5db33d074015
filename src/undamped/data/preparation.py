"""Preparation: from raw recordings to what a network reads, and from its answers back.

Everything is fitted on the training part alone and is small enough to be stored in a run, so a
model answers in original labels and units without the data it was trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

import numpy as np

from undamped.data.series import SeriesSet, pieces
from undamped.errors import DataError, ShapeError, explain
from undamped.options import unknown_name

Kind = Literal["classification", "regression", "steps", "step-regression", "forecast"]
Missing = Literal["interpolate", "mask"]


@dataclass(frozen=True)
class Preparation:
    """What was done to the data before a network saw it.

    Features of a step are the standardised channels; with `missing="mask"` one flag per channel
    that says whether its value was there; with `time_channel` the logarithm of the time since the
    step before, relative to the typical one.

    Args:
        kind: What is asked: one class or number per series, one per step, or the values to come.
        raw_channels: The channels of a recording as it comes.
        channels: Those that are used.
        mean: Mean of each used channel.
        std: Standard deviation of each used channel.
        missing: How gaps are filled: along a line between their neighbours, or with the last
            value and a flag.
        time_channel: Whether the time between steps is a feature.
        typical_gap: The median time between steps.
        classes: The labels, for classification.
        target_mean: Mean of the target; for forecasts, of each channel that is predicted.
        target_std: Its standard deviation.
        horizon: How many values to come are predicted.
        forecast: The channels that are predicted.
        window: Steps of a window, where recordings were cut into such.

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
    time_channel: bool = False
    typical_gap: float = 1.0
    classes: list[str] | None = None
    target_mean: list[float] = field(default_factory=lambda: [0.0])
    target_std: list[float] = field(default_factory=lambda: [1.0])
    horizon: int = 0
    forecast: list[str] = field(default_factory=list)
    window: int | None = None

    @classmethod
    def fit(
        cls,
        training: SeriesSet,
        *,
        kind: Kind,
        missing: Missing = "interpolate",
        standardise: bool = True,
        time_channel: bool = False,
        classes: Sequence[str] | None = None,
        horizon: int = 0,
        forecast: Sequence[str] | None = None,
        window: int | None = None,
    ) -> Preparation:
        """Learn means, scales and labels from the training part.

        Args:
            training: The training part and nothing else.
            kind: What is asked.
            missing: How gaps are filled.
            standardise: Whether channels are brought to mean 0 and standard deviation 1.
            time_channel: Whether the time between steps becomes a feature.
            classes: All labels there are, should the training part lack some.
            horizon: For forecasts, how many values.
            forecast: For forecasts, which channels; all if none are named.
            window: Steps of the windows that recordings were cut into.
        """
        predicted = list(forecast or training.channels) if kind == "forecast" else []
        for name in predicted:
            if name not in training.channels:
                raise unknown_name("channel", name, training.channels)
        mean, std = _moments(training)
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
            target_mean, target_std = _target_moments(training)
        if not standardise:
            mean, scale = np.zeros_like(mean), np.ones_like(scale)
        return cls(
            kind=kind,
            raw_channels=list(training.channels),
            channels=[training.channels[i] for i in used],
            mean=[float(mean[i]) for i in used],
            std=[float(scale[i]) for i in used],
            missing=missing,
            time_channel=time_channel,
            typical_gap=_typical_gap(training) if time_channel else 1.0,
            classes=list(classes) if classes is not None else None,
            target_mean=[float(v) for v in target_mean],
            target_std=[float(v) for v in target_std],
            horizon=horizon,
            forecast=predicted,
            window=window,
        )

    # Sizes and storage

    @property
    def input_size(self) -> int:
        """Features per step."""
        flags = len(self.channels) if self.missing == "mask" else 0
        return len(self.channels) + flags + self.time_channel

    @property
    def output_size(self) -> int:
        """Numbers a network answers with."""
        if self.classes is not None:
            return len(self.classes)
        return max(1, self.horizon * len(self.forecast))

    @property
    def readout(self) -> Literal["last", "every"]:
        """Whether there is an answer at every step."""
        return "every" if self.kind in ("steps", "step-regression") else "last"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for run.json."""
        return {**asdict(self), "input_size": self.input_size, "output_size": self.output_size}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Preparation:
        """Return what `to_dict` wrote down."""
        known = {one.name for one in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})

    # Towards the network

    def transform(self, series: np.ndarray, times: np.ndarray | None = None) -> np.ndarray:
        """Return the features (time, features) of one raw series (time, channels), float32."""
        values = self._standardised(np.asarray(series, dtype=np.float64))
        there = ~np.isnan(values)
        filled = _hold(values, there) if self.missing == "mask" else _interpolate(values, there)
        features = [filled, there] if self.missing == "mask" else [filled]
        if self.time_channel:
            features.append(self._gaps(times, len(values))[:, None])
        return np.concatenate(features, axis=1, dtype=np.float32)

    def stream(self) -> Stream:
        """Return the causal form: one raw sample in, one row of features out."""
        return Stream(self)

    def _standardised(self, values: np.ndarray) -> np.ndarray:
        width = values.shape[-1] if values.ndim else 0
        if width == len(self.raw_channels):
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

    def _gaps(self, times: np.ndarray | None, steps: int) -> np.ndarray:
        if times is None:
            raise DataError(
                "time stamps: expected one per step, since the model was trained with them, got "
                "none. Name their column with time=."
            )
        gaps = np.diff(np.asarray(times, dtype=np.float64))
        if len(gaps) != steps - 1 or not (gaps > 0).all():
            raise DataError(
                "time stamps: expected one per step, each later than the one before, got others. "
                "Sort the rows and remove repeated stamps."
            )
        return np.concatenate([[0.0], np.log(gaps / self.typical_gap)])

    # Targets, and the way back

    def encode(self, targets: np.ndarray) -> np.ndarray:
        """Return labels as class numbers (-100 where missing), or numbers standardised."""
        if self.classes is None:
            numbers = np.asarray(targets, dtype=np.float64)
            return ((numbers - self.target_mean[0]) / self.target_std[0]).astype(np.float32)
        place = {label: number for number, label in enumerate(self.classes)}
        kinds, numbers = np.unique(_comparable(targets), return_inverse=True)
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
            return [
                {
                    "label": self.classes[int(row.argmax())],
                    "probabilities": dict(zip(self.classes, row.tolist(), strict=True)),
                }
                for row in rows
            ]
        if self.kind != "forecast":
            values = rows[..., 0] * self.target_std[0] + self.target_mean[0]
            return [{"value": float(value)} for value in values]
        shaped = rows.reshape(len(rows), self.horizon, len(self.forecast))
        shaped = shaped * self.target_std + self.target_mean
        return [
            {"forecast": {name: row[:, i].tolist() for i, name in enumerate(self.forecast)}}
            for row in shaped
        ]


class Stream:
    """One sample at a time: nothing of the future is used, so gaps are filled with the last value.

    With `missing="mask"`, or where nothing is missing, the rows are those of `transform`.

    Args:
        preparation: What to do to a sample.
    """

    def __init__(self, preparation: Preparation) -> None:
        self.preparation = preparation
        self._held = np.zeros(len(preparation.channels))
        self._time: float | None = None

    def push(self, sample: Any, time: float | None = None) -> np.ndarray:
        """Take one raw sample (channels,); return its features (features,), float32."""
        prepared = self.preparation
        values = prepared._standardised(np.asarray(sample, dtype=np.float64))
        there = ~np.isnan(values)
        features = [np.where(there, values, self._held)]
        if prepared.missing == "mask":
            features.append(there)
        if prepared.time_channel:
            known = None if time is None else np.array([time])
            if self._time is not None and time is not None:
                known = np.array([self._time, time])
            features.append(prepared._gaps(known, 0 if known is None else len(known))[-1:])
        self._held, self._time = features[0], time
        return np.concatenate(features, dtype=np.float32)


def label_of(value: Any) -> str:
    """Return a label as text: whole numbers without a decimal point."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def is_missing(value: Any) -> bool:
    """Whether a label is not there."""
    return value is None or value == "" or (isinstance(value, float) and np.isnan(value))


def as_labels(targets: Any) -> list[str]:
    """Return labels as text, empty where missing."""
    values = np.asarray(targets).ravel().tolist()
    return ["" if is_missing(value) else label_of(value) for value in values]


def _comparable(targets: Any) -> np.ndarray:
    """Return labels as an array that can be sorted; text among other things becomes text."""
    array = np.asarray(targets).ravel()
    return np.array(as_labels(array)) if array.dtype == object else array


def sorted_labels(targets: Any) -> list[str]:
    """Return the labels that occur, numbers in the order of their size."""
    columns = targets if isinstance(targets, list) else [targets]
    kinds = (np.unique(_comparable(column)) for column in columns)
    found = {label for some in kinds for label in as_labels(some)} - {""}
    try:
        return sorted(found, key=float)
    except ValueError:
        return sorted(found)


def _moments(training: SeriesSet) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of every channel in two passes, piece by piece."""
    width = len(training.channels)
    count, total = np.zeros(width), np.zeros(width)
    for one in training.series:
        for piece in pieces(one):
            part = np.asarray(one[piece], dtype=np.float64)
            there = ~np.isnan(part)
            count += there.sum(0)
            total += np.where(there, part, 0.0).sum(0)
    for name, number, value in zip(training.channels, count, total, strict=True):
        if number == 0:
            raise DataError(
                explain(
                    f"{training.source}: channel '{name}'",
                    expected="numbers",
                    got="only missing values in the training part",
                    remedy="Leave it out with channels=.",
                )
            )
        if not np.isfinite(value):
            raise DataError(
                explain(
                    f"{training.source}: channel '{name}'",
                    expected="finite numbers",
                    got="an infinite one",
                    remedy="Mark what is missing as NaN.",
                )
            )
    mean = total / count
    squares = np.zeros(width)
    for one in training.series:
        for piece in pieces(one):
            away = np.asarray(one[piece], dtype=np.float64) - mean
            squares += np.where(np.isnan(away), 0.0, away * away).sum(0)
    std = np.sqrt(squares / count)
    # What varies less than float32 can tell apart is constant.
    return mean, np.where(std > 1e-6 * np.maximum(1e-30, np.abs(mean)), std, 0.0)


def _target_moments(training: SeriesSet) -> tuple[np.ndarray, np.ndarray]:
    targets = training.targets
    assert targets is not None
    columns = targets if isinstance(targets, list) else [targets]
    values = np.concatenate([np.asarray(c, dtype=np.float64).ravel() for c in columns])
    values = values[~np.isnan(values)]
    std = values.std()
    return np.array([values.mean()]), np.array([std if std > 0 else 1.0])


def _typical_gap(training: SeriesSet) -> float:
    assert training.times is not None
    gaps = np.concatenate([np.diff(times) for times in training.times])
    return float(np.median(gaps)) if len(gaps) else 1.0


def _hold(values: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Fill gaps with the last value; before the first one, with the mean, which is 0 here."""
    steps = np.arange(len(values))[:, None]
    last = np.maximum.accumulate(np.where(there, steps, -1), axis=0)
    held = np.take_along_axis(values, np.maximum(last, 0), axis=0)
    return np.where(last >= 0, held, 0.0)


def _interpolate(values: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Fill gaps along lines; at the ends with the nearest value; all missing, with the mean."""
    if there.all():
        return values
    filled, steps = values.copy(), np.arange(len(values))
    for channel in np.flatnonzero(~there.all(0)):
        known = there[:, channel]
        filled[:, channel] = (
            np.interp(steps, steps[known], values[known, channel]) if known.any() else 0.0
        )
    return filled
