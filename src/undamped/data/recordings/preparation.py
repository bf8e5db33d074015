"""Preparation: from raw recordings to what a network reads, and from its answers back.

Everything is fitted on the training part alone and is small enough to be stored in a run, so a
model answers in original labels and units without the data it was trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

import numpy as np

from undamped.data.recordings.gaps import hold, interpolate
from undamped.data.recordings.labels import as_labels, comparable, sorted_labels
from undamped.data.recordings.moments import channel_moments, target_moments, typical_gap
from undamped.data.recordings.series import SeriesSet
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
        return cls(
            kind=kind,
            raw_channels=list(training.channels),
            channels=[training.channels[i] for i in used],
            mean=[float(mean[i]) for i in used],
            std=[float(scale[i]) for i in used],
            missing=missing,
            time_channel=time_channel,
            typical_gap=typical_gap(training) if time_channel else 1.0,
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

    def transform(self, series: np.ndarray, times: np.ndarray | None = None) -> np.ndarray:
        """Return the features (time, features) of one raw series (time, channels), float32."""
        values = self._standardised(np.asarray(series, dtype=np.float64))
        there = ~np.isnan(values)
        filled = hold(values, there) if self.missing == "mask" else interpolate(values, there)
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
