"""The base of forecasting baselines, which work in the units of the recordings."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from undamped._base.contract import Answer, Batch, Forecast, InputKind, TaskShape
from undamped._base.errors import DataError, OptionError
from undamped.lab.baselines.closed_form import ClosedFormModel, FittedArrays
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
                "choose another model; 'undamped list' shows all."
            )
        self.shape = shape
        self.forecast: Forecast = shape.forecast
        self.arrays = FittedArrays()
        self.offset = nn.Parameter(torch.zeros(shape.output_size))

    @classmethod
    def example_shape(cls) -> TaskShape:
        unit = ((0.0, 1.0),)
        return TaskShape(1, 3, answer="number", horizon=3, forecast=Forecast(4, (0,), unit, unit))

    @property
    def why_no_stream(self) -> str:
        return "one that needs the past before it answers"

    def parameter_count(self) -> int:
        return self.arrays.parameter_count()

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        values = self.continue_series(self._history(batch))
        mean, std = _units(self.forecast.answer_units)
        standard = torch.from_numpy((values - mean) / std).flatten(1)
        return standard.to(self.offset) + self.offset, None

    def continue_series(self, history: History) -> np.ndarray:
        """Return (series, horizon, channels) in the units of the recordings."""
        return self._forecast(history) if self.is_fitted else self._repeat(history, 1)

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
