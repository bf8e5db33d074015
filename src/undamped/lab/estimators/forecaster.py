"""`SequenceForecaster`: how series go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from undamped._base.errors import DataError, OptionError, explain
from undamped._base.options import PositiveInt, convert
from undamped._base.registry import models
from undamped.lab.baselines.learns_at_once import LearnsAtOnce
from undamped.lab.data.recordings.bands import Bands
from undamped.lab.data.recordings.preparation import Missing
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.estimators.estimator import SequenceEstimator
from undamped.lab.estimators.future_index import following, index_of, seconds_of
from undamped.lab.estimators.inputs import Collection, collect, one_or_many
from undamped.lab.estimators.selection import ChangesToCome, EstimatorTask, ValuesToCome
from undamped.lab.training import Run
from undamped.lab.training.fit import AUTO

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_MINUTES = 0.5
"""The budget of a race where none is given; networks take part from about a minute on."""


class SequenceForecaster(SequenceEstimator):
    """Continue series; `score` says how much better than repeating the last value.

    Direct: the model reads the past and says the next `horizon` values of all channels at once.
    More values than that are made in blocks, each reading the forecasts before it. The future of
    every series is held back to compare models and to see how far off they are; what is chosen
    learns from all of it in the end if it learns at once, as plain forecasters do. Networks that
    are named learn changes from the last value, and never from what is held back. Steps count, not
    the time between them: for values at given times train a model that uses those, such as
    ode-rnn, on recordings with time stamps.

    Args:
        horizon: How many values to come the model learns to say.
        window: How many values of the past it reads; chosen from the lengths if left out.
        season: After how many steps a series is much like itself, 1 for none; looked for in the
            series if left out, where an index of dates or periods names what is possible.
        model: The registry name of a model, such as "ridge-lags", "ets" or "unicornn"; 'undamped
            list' shows all. "auto" races plain forecasters and others on what is held back, and
            `tried_` tells how it went.
        hidden_size: Size of the hidden state of a network.
        num_layers: Number of its layers.
        model_options: Other options of the model, by name.
        epochs: Train for so many passes over the data.
        steps: Or for so many batches.
        minutes: Or for so many minutes; a race without a budget has half a minute, and networks
            take part from about one on.
        batch_size: Windows per batch.
        learning_rate: Step size of the optimiser.
        train_options: Other options of training, by name; see `undamped.lab.training.TrainOptions`.
        validation_fraction: Share of every series, at its end, that is held back; with 0, or if
            the series are too short for it, a network trains to the end of its budget, a race
            ends with the last season again, and there are no quantiles.
        patience: Stop when so many validations in a row brought nothing better.
        missing: What to do about NaN: "interpolate" draws a line over the gap, "mask" tells the
            network what is missing.
        random_state: Where random numbers come from; with a whole number two fits of one model
            agree bit for bit.
        verbose: Whether to show a progress bar.
        device: Where to train: "auto", "cpu", "gpu", …; answers are given on the CPU.
        run_folder: Keep the run in a new folder below this one, for `undamped show` and the like.

    Example:
        >>> import numpy as np
        >>> wave = np.sin(np.arange(200) / 5)
        >>> forecaster = SequenceForecaster(horizon=10, model="ridge-lags").fit(wave)
        >>> forecaster.predict().shape
        (10,)
        >>> forecaster.predict(wave[:150], horizon=25).shape
        (25,)
        >>> forecaster.predict(quantiles=(0.1, 0.9)).shape
        (10, 2)
    """

    kind = "forecast"

    def __init__(
        self,
        horizon: int = 1,
        *,
        window: int | None = None,
        season: int | None = None,
        model: str = AUTO,
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
        self.season = season

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn how series go on.

        Args:
            X: One series (time,), a pandas series or a frame with one row per time step; or
                several: (n, time), (n, time, channels), a list of (time, channels), or a frame
                with an index of (series, time).
            y: Not used; there for pipelines.
        """
        many, shape = one_or_many(X)
        horizon = convert(PositiveInt, self.horizon, "SequenceForecaster.horizon")
        window = convert(PositiveInt | None, self.window, "SequenceForecaster.window")
        season = convert(PositiveInt | None, self.season, "SequenceForecaster.season")
        self._refuse_race_without_validation()
        collection = collect(many)
        index = index_of(X)
        times = collection.times
        if index is not None and index.nlevels == 1:
            seconds = seconds_of(index)
            times = None if seconds is None else [seconds]
        whole = SeriesSet(
            collection.series,
            collection.names(),
            source="X",
            times=times,
            blurred=collection.blurred,
        )
        self._remember_channels(collection)
        self._learn(
            whole, horizon=horizon, window=window, season=season, split="time", stamps=False
        )
        self.horizon_ = horizon
        # What forecasts go on from, without an argument.
        self._past = [self._read(one).copy() for one in collection.series]
        self._form = _Form(X, shape)
        return self

    def _refuse_race_without_validation(self) -> None:
        if self.model == AUTO and self.validation_fraction == 0:
            raise OptionError(
                explain(
                    "SequenceForecaster.validation_fraction",
                    expected="a share above 0, on which models are compared",
                    got=0,
                    remedy="Give a share, or name a model.",
                )
            )

    @property
    def task_class(self) -> type[EstimatorTask]:
        """What is learnt: values, or of networks that are named their changes."""
        at_once = self.model == AUTO or issubclass(models[self.model], LearnsAtOnce)
        return ValuesToCome if at_once else ChangesToCome

    def _said_to_training(self) -> dict[str, Any]:
        given = super()._said_to_training()
        budgets = ("epochs", "steps", "seconds", "minutes")
        if self.model == AUTO and not any(name in given for name in budgets):
            given["minutes"] = DEFAULT_MINUTES
        return given

    def _keep(self, run: Run, task: EstimatorTask) -> None:
        super()._keep(run, task)
        self._adds_last = isinstance(task, ChangesToCome)
        self._bands: Bands | None = run.bands()
        self.window_, self.season_ = task.preparation.window, task.season

    def predict(
        self,
        X: Any = None,
        horizon: int | None = None,
        *,
        quantiles: Sequence[float] | None = None,
    ) -> np.ndarray | pd.Series | pd.DataFrame:
        """Continue series.

        Args:
            X: The series to continue; those of `fit` if left out.
            horizon: How many values; as in `fit` if left out.
            quantiles: Return these quantiles of every value, such as (0.1, 0.9) for a band that
                holds four of five, as wide as errors on held-back values were.

        Returns:
            (horizon,) for one series of numbers, (horizon, channels) for one frame, (n, horizon)
            for (n, time), otherwise (n, horizon, channels); with quantiles as a further axis. Of
            pandas series and frames, one whose index goes on where theirs ends; quantiles are
            columns.
        """
        check_is_fitted(self, "model_")
        steps = self.horizon_ if horizon is None else horizon
        steps = convert(PositiveInt, steps, "horizon")
        if X is None:
            past, form = self._past, self._form
        else:
            many, shape = one_or_many(X)
            collection = collect(many)
            self._check_channels(collection)
            past, form = collection.series, _Form(X, shape)
        if quantiles is None:
            return form.values(self._continued(past, steps), self._names())
        levels = self._levels(quantiles, steps)
        return form.quantiles(self._bounds(past, steps, levels), self._names(), levels)

    def _names(self) -> list[str]:
        return self.preparation_.forecast

    def _levels(self, quantiles: Sequence[float], steps: int) -> list[float]:
        """Return quantiles as numbers, or say why there are none."""
        if self._bands is None:
            raise DataError(
                explain(
                    "quantiles",
                    expected="a fit that held values back, whose errors say how wide a band is",
                    got="one that held back none",
                    remedy="Give a validation_fraction above 0 and longer series.",
                )
            )
        if steps > self.horizon_:
            raise OptionError(
                explain(
                    "quantiles",
                    expected=f"a horizon of at most {self.horizon_} steps, as in fit",
                    got=steps,
                    remedy="Fit with a longer horizon.",
                )
            )
        low, high = self._bands.levels[0], self._bands.levels[-1]
        levels = [float(level) for level in quantiles]
        if not levels or not all(low <= level <= high for level in levels):
            raise OptionError(
                explain(
                    "quantiles",
                    expected=f"numbers from {low:g} to {high:g}",
                    got=", ".join(f"{level:g}" for level in levels) or "none",
                    remedy="For example (0.1, 0.9).",
                )
            )
        return levels

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

    def _read(self, series: np.ndarray) -> np.ndarray:
        """Return what of a past the model looks at."""
        if self.model_.reads_whole_past or self.window_ is None:
            return series
        return series[-self.window_ :]

    def _last(self, past: np.ndarray) -> np.ndarray:
        """Return the last value of each channel, standardised; gaps are filled as in training."""
        return self.preparation_.transform(self._read(past))[-1, : past.shape[1]].astype(float)

    def _added(self, past: list[np.ndarray]) -> np.ndarray:
        """Return what is added to answers (n, 1, channels): the last value, or nothing."""
        if not self._adds_last:
            return np.zeros((len(past), 1, self.n_features_in_))
        return np.stack([self._last(one) for one in past])[:, None]

    def _continued(self, series: list[np.ndarray], horizon: int) -> np.ndarray:
        """Return (n, horizon, channels): block after block, each reading what was said before."""
        prepared = self.preparation_
        past, blocks = [self._read(one) for one in series], []
        for _ in range(-(-horizon // self.horizon_)):
            answers = prepared.ahead(self._outputs(past)) + self._added(past)
            block = answers * prepared.target_std + prepared.target_mean
            blocks.append(block)
            past = [
                self._read(np.concatenate([one, new])) for one, new in zip(past, block, strict=True)
            ]
        return np.concatenate(blocks, axis=1)[:, :horizon]

    def _bounds(self, series: list[np.ndarray], horizon: int, levels: list[float]) -> np.ndarray:
        """Return quantiles (n, horizon, channels, levels)."""
        assert self._bands is not None
        prepared, past = self.preparation_, [self._read(one) for one in series]
        around = self._bands.around(prepared.ahead(self._outputs(past)))[:, :horizon]
        around = around + self._added(past)[..., None]
        around = around * np.array(prepared.target_std)[:, None]
        around = around + np.array(prepared.target_mean)[:, None]
        return np.apply_along_axis(
            lambda bounds: np.interp(levels, self._bands.levels, bounds),  # type: ignore[union-attr]
            -1,
            around,
        )


class _Form:
    """What forecasts look like: an array or a pandas object, as what they continue.

    Args:
        X: What they continue.
        shape: What `one_or_many` took it for.
    """

    def __init__(self, X: Any, shape: str) -> None:
        index = index_of(X)
        self.shape, self.name, self.index, self.pairs = shape, None, None, None
        if index is not None and index.nlevels == 1 and shape in ("numbers", "frame"):
            self.index = index[-_REMEMBERED:]
            self.name = X.name if shape == "numbers" else None
        elif index is not None and index.nlevels == 2 and shape == "set":
            parts = X.groupby(level=0, sort=False)
            self.pairs = [
                (name, part.index.get_level_values(1).sort_values()[-_REMEMBERED:])
                for name, part in parts
            ]
            self.names = list(index.names)

    def values(self, ahead: np.ndarray, channels: list[str]) -> Any:
        """Return forecasts (n, horizon, channels) in this form."""
        if self.index is None and self.pairs is None:
            return _shaped(ahead, self.shape)
        import pandas as pd

        if self.index is not None and self.shape == "numbers":
            return pd.Series(ahead[0, :, 0], self._ahead(ahead), name=self.name)
        table = ahead.reshape(-1, ahead.shape[2])
        return pd.DataFrame(table, self._ahead(ahead), pd.Index(channels))

    def quantiles(self, bounds: np.ndarray, channels: list[str], levels: list[float]) -> Any:
        """Return quantiles (n, horizon, channels, levels) in this form."""
        if self.index is None and self.pairs is None:
            return _shaped(bounds, self.shape)
        import pandas as pd

        table = bounds.reshape(-1, len(channels) * len(levels))
        columns: Any = pd.Index(levels, name="quantile")
        if self.shape != "numbers":
            columns = pd.MultiIndex.from_product([channels, levels], names=[None, "quantile"])
        return pd.DataFrame(table, self._ahead(bounds), columns)

    def _ahead(self, values: np.ndarray) -> pd.Index:
        """Return the index of forecasts (n, horizon, …)."""
        import pandas as pd

        steps = values.shape[1]
        if self.index is not None:
            return following(self.index, steps)
        assert self.pairs is not None
        rows = [(name, when) for name, own in self.pairs for when in following(own, steps)]
        return pd.MultiIndex.from_tuples(rows, names=self.names)


_REMEMBERED = 64  # steps of an index, which tell its frequency


def _shaped(values: np.ndarray, shape: str) -> np.ndarray:
    if shape == "numbers":
        return values[0, :, 0]
    if shape == "frame":
        return values[0]
    return values[:, :, 0] if shape == "rows" else values
