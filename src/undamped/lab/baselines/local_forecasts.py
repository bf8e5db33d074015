"""Forecasters of statsforecast, each of which is fitted to one past: theta, MSTL, Croston, TSB."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from undamped._base.checked import checked
from undamped._base.contract import TaskShape
from undamped._base.errors import DataError, OptionError
from undamped._base.options import PositiveInt
from undamped._base.registry import models
from undamped.lab.baselines.closed_form import Batches
from undamped.lab.baselines.forecast_model import ForecastModel, History
from undamped.lab.data.recordings.season import find_season

_PAST = 600
_RATES = (0.05, 0.1, 0.2, 0.3)


class LocalForecaster(ForecastModel):
    """A forecaster that is fitted to the past of every forecast, one channel at a time.

    Training is cheap, since only the form is chosen, and every prediction is a fit. It learns
    nothing from other series, and cannot follow a stream.

    Args:
        shape: The shape of the task.
        past: The largest number of past steps that is used.
    """

    packages = ("statsforecast",)
    reads_whole_past = True

    def __init__(self, shape: TaskShape, past: int = _PAST) -> None:
        super().__init__(shape)
        self.past = past
        # Every prediction is a fit, and some are requested twice.
        self._cache: dict[bytes, np.ndarray] = {}

    @property
    def name(self) -> str:
        """The name in the registry, for messages."""
        return type(self).__name__.lower()

    def fit_closed_form(self, batches: Batches) -> None:
        """Choose the form on the longest history of the training split."""
        self._fit_effects(batches)
        longest = np.zeros((0, 0))
        for batch in batches:
            for values in self._without_effects(self._history(batch)).values:
                longest = values if len(values) >= len(longest) else longest
        if not len(longest):
            raise DataError(f"{self.name} needs at least one series to be fitted to, got none.")
        self._cache.clear()
        self._choose_form(longest[-self.past :])

    def refit(self, batches: Batches) -> None:
        """Do nothing: the form stays, and everything else is fitted by each prediction."""

    @abstractmethod
    def _choose_form(self, values: np.ndarray) -> None:
        """Store in `arrays` what is chosen once, by the longest history (time, channels)."""

    @abstractmethod
    def _continue(self, values: np.ndarray, channel: int) -> np.ndarray:
        """Return the next values (horizon,) of one channel (time,)."""

    def _forecast(self, history: History) -> np.ndarray:
        channels = history.values[0].shape[1]
        forecasts = np.zeros((len(history.values), self.shape.horizon, channels))
        for index, values in enumerate(history.values):
            for channel in range(channels):
                past = np.ascontiguousarray(values[-self.past :, channel])
                key = bytes([channel % 256]) + past.tobytes()
                if key not in self._cache:
                    self._cache[key] = self._continue(past, channel)
                forecasts[index, :, channel] = self._cache[key]
        return forecasts

    def _predict(self, model: Any, values: np.ndarray) -> np.ndarray:
        """Fit a model of statsforecast, and return its forecast (horizon,)."""
        try:
            mean = model.forecast(values, self.shape.horizon)["mean"]
        except Exception as error:  # statsforecast raises various types for unsuitable values
            raise self._fit_error(error) from error
        return self._finite(mean)

    def _finite(self, forecast: Any) -> np.ndarray:
        values = np.asarray(forecast, dtype=np.float64)
        if not np.isfinite(values).all():
            raise self._fit_error("the forecast is not finite")
        return values

    def _fit_error(self, reason: object) -> DataError:
        first_line = str(reason).splitlines()[0] if str(reason) else "the fit failed"
        return DataError(
            f"{self.name} cannot be fitted to this past: {first_line}. Use a longer past, another "
            "season=, or ridge-lags."
        )


@models.register("theta")
class Theta(LocalForecaster):
    """Theta method: exponential smoothing with half of a linear trend, after the season is removed.

    Equation:
        ŷ_{T+h} = s_{T+h} (l_T + ½ b h),  l_t = α y_t / s_t + (1 − α) l_{t−1}

    Symbols:
        s seasonal factors or, where values are not positive, terms; l level, α smoothing rate, b
        slope of a line through the values.

    Promise:
        None.

    The implementation is statsforecast's AutoTheta (`pip install 'undamped[forecast]'`), which
    chooses between the standard, the optimised and the dynamic form for every past by its squared
    error. It won the M3 competition of forecasts.

    Args:
        shape: The shape of the task.
        season: Steps of the season; by default that of the task.
        past: The largest number of past steps that is used.

    Example:
        >>> shape = undamped.lab.baselines.Theta.example_shape()
        >>> model = undamped.lab.baselines.Theta(shape)
        >>> model(torch.randn(20, 8, 1)).shape
        torch.Size([8, 3])

    Reference:
        V. Assimakopoulos, K. Nikolopoulos. The theta model: a decomposition approach to
        forecasting. International Journal of Forecasting, 2000. J. A. Fiorucci et al. Models for
        optimising the theta method and their relationship to state space models. The same, 2016.
    """

    @checked
    def __init__(
        self, shape: TaskShape, *, season: PositiveInt | None = None, past: PositiveInt = _PAST
    ) -> None:
        super().__init__(shape, past)
        self.season = season or self.forecast.season

    def _choose_form(self, values: np.ndarray) -> None:
        self.arrays.store(multiplicative=torch.from_numpy((values > 0).all(0)))

    def findings(self) -> list[str]:
        season = f"A season of {self.season} steps" if self.season > 1 else "No season"
        return [f"{season}.", *self._effect_findings()] if self.is_fitted else []

    def _continue(self, values: np.ndarray, channel: int) -> np.ndarray:
        from statsforecast.models import AutoTheta

        # A seasonal decomposition needs two seasons, and factors need positive values.
        season = self.season if len(values) > 2 * self.season else 1
        positive = bool(self.arrays["multiplicative"][channel]) and values.min() > 0
        kind = "multiplicative" if positive else "additive"
        return self._predict(AutoTheta(season_length=season, decomposition_type=kind), values)


@models.register("mstl")
class MSTL(LocalForecaster):
    """MSTL: several seasons are removed by LOESS, and the trend is continued by smoothing.

    Equation:
        y_t = T_t + Σ_i S^i_t + R_t,  ŷ_{T+h} = ETS(T + R)_{T+h} + Σ_i S^i_{T+h−m_i k}

    Symbols:
        T trend, S^i season of m_i steps, R remainder; k the smallest number for which the season
        is known.

    Promise:
        None.

    The implementation is statsforecast's (`pip install 'undamped[forecast]'`), with exponential
    smoothing without a season for the trend. It is for series with two seasons, such as a day and
    a week of hours. By default the seasons are that of the task and, where the training split has
    one, a season that divides it or is seven times as long.

    Args:
        shape: The shape of the task.
        seasons: Steps of the seasons; by default those that are detected.
        past: The largest number of past steps that is used.

    Example:
        >>> shape = undamped.lab.baselines.MSTL.example_shape()
        >>> model = undamped.lab.baselines.MSTL(shape, seasons=(4, 8))
        >>> model(torch.randn(20, 8, 1)).shape
        torch.Size([8, 3])

    Reference:
        K. Bandara, R. J. Hyndman, C. Bergmeir. MSTL: a seasonal-trend decomposition algorithm for
        time series with multiple seasonal patterns. arXiv:2107.13462, 2021.
    """

    @checked
    def __init__(
        self, shape: TaskShape, *, seasons: Sequence[int] = (), past: PositiveInt = 4 * _PAST
    ) -> None:
        super().__init__(shape, past)
        self.seasons = tuple(sorted(set(seasons)))
        if self.seasons and self.seasons[0] < 2:
            raise OptionError(f"mstl.seasons must be at least 2 steps, got {self.seasons[0]}.")

    def _choose_form(self, values: np.ndarray) -> None:
        season, seasons = self.forecast.season, self.seasons
        if not seasons and season > 1:
            divisors = [steps for steps in range(2, season) if season % steps == 0]
            # The F test of a second season needs the first one removed.
            steps = np.arange(len(values)) % season
            means = np.stack([values[steps == phase].mean(0) for phase in range(season)])
            longer = find_season([values - means[steps]], [7 * season])
            shorter = find_season([values], divisors) if divisors else 1
            seasons = tuple(sorted({season, longer if longer > 1 else shorter} - {1}))
        if not seasons:
            raise OptionError(
                "mstl needs a season, but none was detected. Set model.seasons=, or use theta or "
                "ets."
            )
        self.arrays.store(seasons=torch.tensor(seasons))

    def findings(self) -> list[str]:
        if not self.is_fitted:
            return []
        steps = " and ".join(map(str, self.arrays["seasons"].tolist()))
        return [f"Seasons of {steps} steps.", *self._effect_findings()]

    def _continue(self, values: np.ndarray, channel: int) -> np.ndarray:
        from statsforecast import models as library

        seasons = [season for season in self.arrays["seasons"].tolist() if len(values) > 2 * season]
        if not seasons:
            needed = 2 * int(self.arrays["seasons"].min()) + 1
            raise self._fit_error(f"it has {len(values)} steps, and {needed} are needed")
        return self._predict(library.MSTL(season_length=seasons), values)


class _IntermittentForecaster(LocalForecaster):
    """A forecaster of demand that is zero at most steps."""

    def _fit_effects(self, batches: Batches) -> None:
        """Leave covariates out: without their effects, no value would be zero."""

    def _choose_form(self, values: np.ndarray) -> None:
        if values.min() < 0:
            raise DataError(
                f"{self.name} forecasts demand, which is zero or more, got {values.min():.6g}. "
                "Use ets, theta or ridge-lags."
            )
        self.arrays.store(zeros=torch.from_numpy((values == 0).mean(0)))

    def findings(self) -> list[str]:
        if not self.is_fitted:
            return []
        return [f"{100 * float(self.arrays['zeros'].mean()):.0f} % of the values are zero."]


@models.register("croston")
class Croston(_IntermittentForecaster):
    """Croston's method: mean demand over mean time between demands, both smoothed.

    Equation:
        ŷ_{T+h} = 0.95 z_T / p_T

    Symbols:
        z demands that are not zero and p steps between them, each smoothed with a rate of 0.1; 0.95
        corrects the bias of the ratio.

    Promise:
        None.

    For intermittent demand, which is zero at many steps. The implementation is statsforecast's
    CrostonSBA (`pip install 'undamped[forecast]'`). The forecast is a mean per step and changes
    only when there is demand, so that products that are no longer sold keep their forecast; see
    `tsb`. Covariates are not used.

    Args:
        shape: The shape of the task.
        past: The largest number of past steps that is used.

    Example:
        >>> shape = undamped.lab.baselines.Croston.example_shape()
        >>> model = undamped.lab.baselines.Croston(shape)
        >>> model(torch.randn(20, 8, 1)).shape
        torch.Size([8, 3])

    Reference:
        J. D. Croston. Forecasting and stock control for intermittent demands. Operational Research
        Quarterly, 1972. A. A. Syntetos, J. E. Boylan. The accuracy of intermittent demand
        estimates. International Journal of Forecasting, 2005.
    """

    @checked
    def __init__(self, shape: TaskShape, *, past: PositiveInt = _PAST) -> None:
        super().__init__(shape, past)

    def _continue(self, values: np.ndarray, channel: int) -> np.ndarray:
        from statsforecast.models import CrostonSBA

        return self._predict(CrostonSBA(), values)


@models.register("tsb")
class TSB(_IntermittentForecaster):
    """TSB: the probability of demand times its mean, both smoothed.

    Equation:
        ŷ_{T+h} = d_T z_T,  d_t = d_{t−1} + β (1[y_t > 0] − d_{t−1})
        z_t = z_{t−1} + α (y_t − z_{t−1}) where y_t > 0

    Symbols:
        d probability of demand, z its mean, α and β smoothing rates.

    Promise:
        None.

    For intermittent demand, which is zero at many steps. The forecast falls while there is none.
    The implementation is statsforecast's (`pip install 'undamped[forecast]'`); the rates are those
    of 0.05, 0.1, 0.2 and 0.3 with the smallest squared error one step ahead, on the longest history
    of the training split. Covariates are not used.

    Args:
        shape: The shape of the task.
        past: The largest number of past steps that is used.

    Example:
        >>> shape = undamped.lab.baselines.TSB.example_shape()
        >>> model = undamped.lab.baselines.TSB(shape)
        >>> model(torch.randn(20, 8, 1)).shape
        torch.Size([8, 3])

    Reference:
        R. H. Teunter, A. A. Syntetos, M. Z. Babai. Intermittent demand: linking forecasting to
        inventory obsolescence. European Journal of Operational Research, 2011.
    """

    @checked
    def __init__(self, shape: TaskShape, *, past: PositiveInt = _PAST) -> None:
        super().__init__(shape, past)

    def _choose_form(self, values: np.ndarray) -> None:
        super()._choose_form(values)
        rates = [min(_pairs(), key=lambda pair: _squared_error(y, *pair)) for y in values.T]
        self.arrays.store(rates=torch.tensor(rates))

    def _continue(self, values: np.ndarray, channel: int) -> np.ndarray:
        from statsforecast import models as library

        size, probability = self.arrays["rates"][channel].tolist()
        return self._predict(library.TSB(alpha_d=size, alpha_p=probability), values)


def _pairs() -> list[tuple[float, float]]:
    return [(size, probability) for size in _RATES for probability in _RATES]


def _squared_error(values: np.ndarray, size: float, probability: float) -> float:
    """Return the mean squared error of TSB one step ahead."""
    from statsforecast import models as library

    model = library.TSB(alpha_d=size, alpha_p=probability)
    fitted = model.forecast(np.ascontiguousarray(values), 1, fitted=True)["fitted"]
    return float(np.nanmean(np.square(values - fitted))) if len(values) > 1 else 0.0
