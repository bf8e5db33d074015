"""The base of forecasting baselines, the seasonal naive forecast and the mean of forecasts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import Answer, Batch, Forecast, InputKind, TaskShape
from undamped._base.errors import DataError, OptionError
from undamped._base.registry import models
from undamped.lab.baselines.closed_form import Batches, ClosedFormModel, FittedArrays
from undamped.lab.baselines.covariate_effects import Effects, fit_effects
from undamped.lab.baselines.whole_series import lengths_of


class History(NamedTuple):
    """The past of some series.

    Args:
        values: Each (time, forecast channels), in the units of the recordings, float64.
        inputs: Each (time, channels), all channels as the model gets them, float64.
    """

    values: list[np.ndarray]
    inputs: list[np.ndarray]


class ForecastModel(ClosedFormModel):
    """A model that makes forecasts only.

    Args:
        shape: The shape of the task, a forecast of regular steps.
    """

    answers: ClassVar[frozenset[Answer]] = frozenset({"number"})
    input_kinds = frozenset[InputKind]({"vectors"})
    sequential = True

    def __init__(self, shape: TaskShape) -> None:
        super().__init__()
        if shape.forecast is None or not shape.horizon or shape.forecast.quantiles:
            raise OptionError(
                f"{type(self).__name__} can only forecast one value per step. Set horizon=, or "
                "choose another model; 'undamped list models' shows all."
            )
        self.shape = shape
        self.forecast: Forecast = shape.forecast
        self.arrays = FittedArrays()
        self.effects = FittedArrays()
        self.offset = nn.Parameter(torch.zeros(shape.output_size))

    @classmethod
    def example_shape(cls) -> TaskShape:
        unit = ((0.0, 1.0),)
        return TaskShape(1, 3, answer="number", horizon=3, forecast=Forecast(4, (0,), unit, unit))

    @property
    def why_no_stream(self) -> str:
        return "one that needs the past before it answers"

    def parameter_count(self) -> int:
        return self.arrays.parameter_count() + self.effects.parameter_count()

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        values = self.continue_series(self._history(batch))
        mean, std = _units(self.forecast.answer_units)
        standard = torch.from_numpy((values - mean) / std).flatten(1)
        return standard.to(self.offset) + self.offset, None

    def continue_series(self, history: History) -> np.ndarray:
        """Return (series, horizon, channels) in the units of the recordings.

        The effects of covariates are removed from the past, and added to the forecast.
        """
        if not self.is_fitted:
            return self._repeat(history, 1)
        effects, _, later = self._covariates(history)
        values = self._forecast(self._without_effects(history))
        return values if effects is None else effects.restore(values, later)

    @torch.no_grad()
    def _fit_effects(self, batches: Batches) -> None:
        """Estimate the effects of covariates with known future values, if there are any."""
        histories = [self._history(batch) for batch in batches] if self.forecast.covariates else []
        values = [past for history in histories for past in history.values]
        if values:
            now = [now for now, _ in self.forecast.covariates]
            past = [inputs[:, now] for history in histories for inputs in history.inputs]
            effects = fit_effects(values, past, self.forecast.season, self.shape.horizon)
            self.effects.store(**effects._asdict())

    def _covariates(self, history: History) -> tuple[Effects | None, list[np.ndarray], np.ndarray]:
        """Return effects, and covariates of the past and of the future (series, horizon, k)."""
        if not len(self.effects):
            return None, [], np.empty(0)
        now, later = (list(column) for column in zip(*self.forecast.covariates, strict=True))
        past = [inputs[:, now] for inputs in history.inputs]
        future = [inputs[-self.shape.horizon :, later] for inputs in history.inputs]
        return Effects(*self.effects.numpy("slopes", "factors")), past, np.stack(future)

    def _without_effects(self, history: History) -> History:
        """Return the history without the effects of covariates."""
        effects, past, _ = self._covariates(history)
        if effects is None:
            return history
        pairs = zip(history.values, past, strict=True)
        return history._replace(values=[effects.remove(*pair) for pair in pairs])

    def _effect_findings(self) -> list[str]:
        """Return how many covariates have an effect."""
        if not len(self.effects):
            return []
        count, size = int(self.effects["slopes"].any(1).sum()), len(self.forecast.covariates)
        return [f"{count} of {size} covariates with known future values have an effect (t > 2)."]

    @property
    def is_fitted(self) -> bool:
        """Whether the model is fitted; before that, it repeats the last value."""
        return len(self.arrays) > 0

    @abstractmethod
    def _forecast(self, history: History) -> np.ndarray:
        """Return the values of `continue_series` for a fitted model."""

    def _repeat(self, history: History, season: int) -> np.ndarray:
        """Return the last season, repeated up to the horizon, (series, horizon, channels)."""
        steps = np.arange(self.shape.horizon) % season
        return np.stack([values[len(values) - season + steps] for values in history.values])

    def _refuse_short(self, history: History, needed: int, why: str) -> None:
        """Refuse a history of less than the needed steps; `why` is a part of the message."""
        steps = min(map(len, history.values))
        if steps < needed:
            raise DataError(
                f"{type(self).__name__} needs a past of at least {needed} steps, {why}, got "
                f"{steps}. Use longer series, a larger window= or a shorter season=."
            )

    def _history(self, batch: Batch) -> History:
        values = batch.inputs.detach().cpu().double().permute(1, 0, 2).numpy()
        inputs = [row[:length] for row, length in zip(values, lengths_of(batch), strict=True)]
        mean, std = _units(self.forecast.input_units)
        channels = list(self.forecast.channels)
        return History([values[:, channels] * std + mean for values in inputs], inputs)

    def _targets(self, batch: Batch) -> np.ndarray:
        """Return the true values (series, horizon, channels), in the units of the recordings."""
        mean, std = _units(self.forecast.answer_units)
        rows = batch.targets.detach().cpu().double().numpy()
        return rows.reshape(len(rows), self.shape.horizon, -1) * std + mean


def _units(units: Any) -> tuple[np.ndarray, np.ndarray]:
    mean, std = (np.array(part) for part in zip(*units, strict=True))
    return mean, std


@models.register("seasonal-naive")
class SeasonalNaive(ForecastModel):
    """Seasonal naive forecast: the values of the last season, repeated.

    Equation:
        ŷ_{T+h} = y_{T+h−ms},  m the smallest whole number for which that is known

    Symbols:
        s the season in steps, 1 where there is none: then the last value stays.

    Promise:
        None.

    Only effects of covariates with known future values are fitted, if there are any. It needs a
    past of at least a season, and cannot follow a stream.

    Args:
        shape: The shape of the task.

    Example:
        >>> shape = undamped.lab.baselines.SeasonalNaive.example_shape()
        >>> model = undamped.lab.baselines.SeasonalNaive(shape)
        >>> model(torch.randn(20, 8, 1)).shape
        torch.Size([8, 3])

    Reference:
        R. J. Hyndman, G. Athanasopoulos. Forecasting: principles and practice, 3rd edition, 2021,
        section 5.2.
    """

    @checked
    def __init__(self, shape: TaskShape) -> None:
        super().__init__(shape)

    def fit_closed_form(self, batches: Batches) -> None:
        """Estimate the effects of covariates with known future values; nothing else is fitted."""
        self._fit_effects(batches)

    def refit(self, batches: Batches) -> None:
        """Do nothing: there are no parameters."""

    @property
    def is_fitted(self) -> bool:
        """Always true: there are no parameters."""
        return True

    def _forecast(self, history: History) -> np.ndarray:
        self._refuse_short(history, self.forecast.season, "a season")
        return self._repeat(history, self.forecast.season)

    def findings(self) -> list[str]:
        season = self.forecast.season
        text = f"A season of {season} steps is repeated." if season > 1 else "No season."
        return [text, *self._effect_findings()]


@models.register("combination")
class Combination(ForecastModel):
    """Combination of forecasts: the mean over several forecasters.

    Equation:
        ŷ_{T+h} = (1/n) Σ_i ŷ^i_{T+h}

    Symbols:
        ŷ^i the forecast of the i-th of n forecasters.

    Promise:
        None.

    Where past data cannot tell which of two forecasters is better, their mean is seldom worse than
    both and often better than either, because different errors cancel. Each forecaster is fitted
    separately. The combination cannot follow a stream.

    Args:
        shape: The shape of the task.
        of: The names of the forecasters; each must use a window of the past only.

    Example:
        >>> shape = undamped.lab.baselines.Combination.example_shape()
        >>> model = undamped.lab.baselines.Combination(shape)
        >>> model(torch.randn(20, 8, 1)).shape
        torch.Size([8, 3])

    Reference:
        J. M. Bates, C. W. J. Granger. The combination of forecasts. Operational Research Quarterly,
        1969.
    """

    @checked
    def __init__(
        self, shape: TaskShape, *, of: Sequence[str] = ("seasonal-naive", "ridge-lags")
    ) -> None:
        super().__init__(shape)
        if len(set(of)) != len(of) or len(of) < 2:
            raise OptionError(
                "combination.of must name two or more different forecasters, got "
                f"{', '.join(of) or 'none'}. For example seasonal-naive,ridge-lags."
            )
        self.forecasters = nn.ModuleList(_forecaster_class(name)(shape) for name in of)

    def _forecast_models(self) -> list[ForecastModel]:
        return [model for model in self.forecasters if isinstance(model, ForecastModel)]

    @property
    def is_fitted(self) -> bool:
        """Always true: the forecasters know whether they are fitted."""
        return True

    def parameter_count(self) -> int:
        return sum(model.parameter_count() for model in self._forecast_models())

    def fit_closed_form(self, batches: Batches) -> None:
        for model in self._forecast_models():
            model.fit_closed_form(batches)

    def refit(self, batches: Batches) -> None:
        for model in self._forecast_models():
            model.refit(batches)

    def findings(self) -> list[str]:
        return [sentence for model in self._forecast_models() for sentence in model.findings()]

    def _forecast(self, history: History) -> np.ndarray:
        return np.mean(
            [model.continue_series(history) for model in self._forecast_models()], axis=0
        )


def _forecaster_class(name: str) -> type[ForecastModel]:
    if name in models and _reads_window(models[name]):
        return models[name]
    names = [name for name in models if _reads_window(models[name])]
    raise OptionError(
        "combination.of must name forecasters that use a window of the past only, got "
        f"{name}. Choose from {', '.join(names)}."
    )


def _reads_window(model_class: object) -> bool:
    is_forecaster = isinstance(model_class, type) and issubclass(model_class, ForecastModel)
    return is_forecaster and not (
        model_class is Combination or getattr(model_class, "reads_whole_past", False)
    )
