"""The mean of several forecasts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import nn

from undamped._base.checked import checked
from undamped._base.contract import TaskShape
from undamped._base.errors import OptionError
from undamped._base.registry import models
from undamped.lab.baselines.closed_form import Batches
from undamped.lab.baselines.forecast_model import ForecastModel, History


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
