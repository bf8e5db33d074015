"""`SequenceForecaster`: how series go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from undamped.data.recordings.preparation import Missing
from undamped.data.recordings.series import SeriesSet
from undamped.errors import DataError, explain
from undamped.estimators.estimator import SequenceEstimator
from undamped.estimators.inputs import Collection, collect, one_or_many
from undamped.estimators.selection import ChangesToCome
from undamped.options import PositiveInt, convert
from undamped.tasks.series_choices import forecast_window, stride_of


class SequenceForecaster(SequenceEstimator):
    """Continue series; `score` says how much better than repeating the last value.

    Direct: the network reads a window of the past and says the next `horizon` values of all
    channels at once, as changes from the last value. More values than that are made in blocks,
    each reading the forecasts before it. The future of every series is held back to choose the
    best weights; no held-back value is ever learned from. Steps count, not the time between them:
    for values at given times train a model that uses those, such as ode-rnn, on recordings with
    time stamps.

    Args:
        horizon: How many values to come the network learns to say.
        window: How many values of the past it reads; chosen from the lengths if left out.
        model: The registry name of the network; 'undamped list' shows all.
        hidden_size: Size of its hidden state.
        num_layers: Number of its layers.
        model_options: Its other options, by name.
        epochs: Train for so many passes over the data.
        steps: Or for so many batches.
        minutes: Or for so many minutes.
        batch_size: Windows per batch.
        learning_rate: Step size of the optimiser.
        train_options: Other options of training, by name; see `undamped.training.TrainOptions`.
        validation_fraction: Share of every series, at its end, that is held back; with 0, or if
            the series are too short for it, training goes on to the end of its budget.
        patience: Stop when so many validations in a row brought nothing better.
        missing: What to do about NaN: "interpolate" draws a line over the gap, "mask" tells the
            network what is missing.
        random_state: Where random numbers come from; with a whole number two fits agree bit for
            bit.
        verbose: Whether to show a progress bar.
        device: Where to train: "auto", "cpu", "gpu", …; answers are given on the CPU.
        run_folder: Keep the run in a new folder below this one, for `undamped show` and the like.

    Example:
        >>> import numpy as np
        >>> wave = np.sin(np.arange(200) / 5)
        >>> forecaster = SequenceForecaster(horizon=10, steps=30, random_state=0).fit(wave)
        >>> forecaster.predict().shape
        (10,)
        >>> forecaster.predict(wave[:150], horizon=25).shape
        (25,)
    """

    kind = "forecast"
    task_class = ChangesToCome

    def __init__(
        self,
        horizon: int = 1,
        *,
        window: int | None = None,
        model: str = "unicornn",
        hidden_size: int | None = None,
        num_layers: int | None = None,
        model_options: Mapping[str, Any] | None = None,
        epochs: float | None = None,
        steps: int | None = None,
        minutes: float | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        train_options: Mapping[str, Any] | None = None,
        validation_fraction: float = 0.2,
        patience: int | None = None,
        missing: Missing = "interpolate",
        random_state: Any = None,
        verbose: bool = False,
        device: str = "auto",
        run_folder: str | Path | None = None,
    ) -> None:
        super().__init__(
            model,
            hidden_size=hidden_size,
            num_layers=num_layers,
            model_options=model_options,
            epochs=epochs,
            steps=steps,
            minutes=minutes,
            batch_size=batch_size,
            learning_rate=learning_rate,
            train_options=train_options,
            validation_fraction=validation_fraction,
            patience=patience,
            missing=missing,
            random_state=random_state,
            verbose=verbose,
            device=device,
            run_folder=run_folder,
        )
        self.horizon = horizon
        self.window = window

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn how series go on.

        Args:
            X: One series (time,), a pandas series or a frame with one row per time step; or
                several: (n, time), (n, time, channels), a list of (time, channels), or a frame
                with an index of (series, time).
            y: Not used; there for pipelines.
        """
        many, _ = one_or_many(X)
        horizon = convert(PositiveInt, self.horizon, "SequenceForecaster.horizon")
        collection = collect(many)
        whole = SeriesSet(
            collection.series, collection.names(), source="X", blurred=collection.blurred
        )
        longest = int(whole.lengths.max())
        if longest < horizon + 2:
            raise DataError(
                explain(
                    "X",
                    expected=f"a series of at least {horizon + 2} steps for a horizon of {horizon}",
                    got=longest,
                    remedy="Give longer series or a shorter horizon.",
                )
            )
        window = forecast_window(whole, horizon) if self.window is None else self.window
        window = convert(PositiveInt, window, "SequenceForecaster.window")
        if window + horizon > longest:
            raise DataError(
                explain(
                    "SequenceForecaster.window",
                    expected=f"at most {longest - horizon}, which the longest series has room for",
                    got=window,
                    remedy="Choose a shorter window.",
                )
            )
        window = max(window, 2)
        self._remember_channels(collection)
        windows = self._divided(whole, window, horizon)
        self._learn(windows, horizon=horizon, window=window, split="given")
        self.horizon_, self.window_ = horizon, window
        self._past = [one[-window:].copy() for one in collection.series]
        self._shape = one_or_many(X)[1]
        return self

    def _divided(self, whole: SeriesSet, window: int, horizon: int) -> SeriesSet:
        """Cut windows; those whose values to come all lie in the last part are for validation.

        Windows that would learn from a held-back value are left out. The past that a validation
        window reads may have been learned from: it is known when a forecast is made.
        """
        windows = whole.windows(window + horizon, stride_of(whole, horizon))
        assert windows.origin is not None
        stop = windows.origin[:, 1] + window + horizon
        # Windows stand in the order of their series.
        steps = np.concatenate(
            [np.full(count, length) for count, length in self._counts(whole, window, horizon)]
        )
        held_back = np.round(steps * self.validation_fraction)
        held_back = np.where(held_back > 0, np.maximum(held_back, horizon), 0)
        first = steps - held_back
        parts = np.full(len(windows), "left out", dtype=object)
        parts[stop <= first] = "train"
        parts[stop - horizon >= first] = "valid"
        parts[held_back == 0] = "train"
        if not (parts == "train").any():
            parts[:] = "train"
        return replace(windows, parts=parts).take(np.flatnonzero(parts != "left out"))

    def _counts(self, whole: SeriesSet, window: int, horizon: int) -> list[tuple[int, int]]:
        stride = stride_of(whole, horizon)
        return [
            (max(0, (int(length) - window - horizon) // stride + 1), int(length))
            for length in whole.lengths
        ]

    def predict(self, X: Any = None, horizon: int | None = None) -> np.ndarray:
        """Continue series.

        Args:
            X: The series to continue; those of `fit` if left out.
            horizon: How many values; as in `fit` if left out.

        Returns:
            (horizon,) for one series of numbers, (horizon, channels) for one frame, (n, horizon)
            for (n, time), otherwise (n, horizon, channels).
        """
        check_is_fitted(self, "model_")
        asked = self.horizon_ if horizon is None else horizon
        asked = convert(PositiveInt, asked, "horizon")
        if X is None:
            return self._shaped(self._continued(self._past, asked), self._shape)
        many, shape = one_or_many(X)
        collection = collect(many)
        self._check_channels(collection)
        return self._shaped(self._continued(collection.series, asked), shape)

    def score(self, X: Any, y: Any = None) -> float:
        """Hide the last `horizon` values of each series, forecast them, and compare.

        Returns:
            1 − (mean squared error) / (that of repeating the last value), in standardised units:
            1 is perfect, 0 is no better than a guess.
        """
        check_is_fitted(self, "model_")
        collection: Collection = collect(one_or_many(X)[0], shortest=self.horizon_ + 2)
        self._check_channels(collection)
        past = [one[: -self.horizon_] for one in collection.series]
        ahead = np.stack([one[-self.horizon_ :] for one in collection.series])
        scale = np.asarray(self.preparation_.target_std)
        last = np.stack([self._last(one) for one in past])[:, None]
        errors = ahead - self._continued(past, self.horizon_)
        guesses = ahead - (last * scale + self.preparation_.target_mean)
        there = ~np.isnan(ahead)
        missed, guessed = (np.square((e / scale)[there]).sum() for e in (errors, guesses))
        return float(1 - missed / max(guessed, np.finfo(np.float64).tiny))

    def _last(self, past: np.ndarray) -> np.ndarray:
        """Return the last value of each channel, standardised; gaps are filled as in training."""
        return self.preparation_.transform(past[-self.window_ :])[-1, : past.shape[1]].astype(float)

    def _continued(self, series: list[np.ndarray], horizon: int) -> np.ndarray:
        """Return (n, horizon, channels): block after block, each reading what was said before."""
        prepared, channels = self.preparation_, self.n_features_in_
        past, blocks = [one[-self.window_ :] for one in series], []
        for _ in range(-(-horizon // self.horizon_)):
            changes = self._outputs(past).reshape(len(past), self.horizon_, channels)
            last = np.stack([self._last(one) for one in past])[:, None]
            block = (changes + last) * prepared.target_std + prepared.target_mean
            blocks.append(block)
            past = [
                np.concatenate([one, new])[-self.window_ :]
                for one, new in zip(past, block, strict=True)
            ]
        return np.concatenate(blocks, axis=1)[:, :horizon]

    @staticmethod
    def _shaped(values: np.ndarray, shape: str) -> np.ndarray:
        if shape == "numbers":
            return values[0, :, 0]
        if shape == "frame":
            return values[0]
        return values[:, :, 0] if shape == "rows" else values
