"""The seasonal naive forecast."""

from __future__ import annotations

import numpy as np

from undamped._base.checked import checked
from undamped._base.contract import TaskShape
from undamped._base.registry import models
from undamped.lab.baselines.closed_form import Batches
from undamped.lab.baselines.forecast_model import ForecastModel, History


@models.register("seasonal-naive")
class SeasonalNaive(ForecastModel):
    """Seasonal naive forecast: the values of the last season, repeated.

    Equation:
        ŷ_{T+h} = y_{T+h−ms},  m the smallest whole number for which that is known

    Symbols:
        s the season in steps, 1 where there is none: then the last value stays.

    Promise:
        None.

    Nothing is fitted. It needs a past of at least a season, and cannot follow a stream.

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
        """Do nothing: there are no parameters."""

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
        return [f"A season of {season} steps is repeated." if season > 1 else "No season."]
