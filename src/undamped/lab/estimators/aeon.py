"""The estimators with aeon's interface (extra `[aeon]`): collections (n, channels, time).

They pass aeon's checks and can be used in its pipelines, benchmarks and ensembles.
"""

# aeon's abstract methods have no body and no annotation, so they seem to return None.
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from undamped.lab.estimators.classifier import SequenceClassifier, SequenceRegressor
from undamped.lab.estimators.estimator import TrainParams
from undamped.lab.estimators.forecaster import SequenceForecaster
from undamped.lab.training.fit import AUTO

try:
    from aeon.classification import BaseClassifier
    from aeon.forecasting import BaseForecaster
    from aeon.forecasting.base import IterativeForecastingMixin, SeriesToSeriesForecastingMixin
    from aeon.regression import BaseRegressor
except ModuleNotFoundError as error:
    if error.name != "aeon":
        raise
    raise ModuleNotFoundError(
        "undamped.lab.estimators.aeon needs aeon. Install it with pip install 'undamped[aeon]'.",
        name="aeon",
    ) from None

TINY = {"model": "unicornn", "hidden_size": 4, "num_layers": 1, "steps": 3, "random_state": 0}


class _CollectionEstimator(TrainParams):
    """The common part of classifier and regressor."""

    _tags: ClassVar[dict[str, Any]] = {
        "X_inner_type": ["np-list", "numpy3D"],
        "capability:multivariate": True,
        "capability:unequal_length": True,
        "capability:missing_values": True,
        "algorithm_type": "deeplearning",
    }
    estimator_class: ClassVar[Any]

    def _fit(self, X: Any, y: np.ndarray) -> Any:
        self.estimator_ = self.estimator_class(**self.get_params(deep=False))  # type: ignore
        self.estimator_.fit(_time_first(X), y)
        return self

    def _predict(self, X: Any) -> np.ndarray:
        return self.estimator_.predict(_time_first(X))

    @classmethod
    def _get_test_params(cls, parameter_set: str = "default") -> dict[str, Any]:
        return dict(TINY)  # small models for the checks of aeon


@dataclass(repr=False, eq=False)
class UndampedClassifier(_CollectionEstimator, BaseClassifier):
    """`SequenceClassifier` for aeon; the parameters are the same.

    Example:
        >>> from aeon.datasets import load_unit_test
        >>> X, y = load_unit_test(split="train")
        >>> UndampedClassifier("bank", random_state=0).fit(X, y).predict(X[:3]).shape
        (3,)
    """

    estimator_class = SequenceClassifier

    class_weight: Literal["balanced"] | Mapping[Any, float] | None = field(
        default=None, kw_only=True
    )

    def __post_init__(self) -> None:
        BaseClassifier.__init__(self)

    def _predict_proba(self, X: Any) -> np.ndarray:
        return self.estimator_.predict_proba(_time_first(X))


@dataclass(repr=False, eq=False)
class UndampedRegressor(_CollectionEstimator, BaseRegressor):
    """`SequenceRegressor` for aeon; the parameters are the same.

    Example:
        >>> from aeon.datasets import load_covid_3month
        >>> X, y = load_covid_3month(split="train")
        >>> UndampedRegressor("bank", random_state=0).fit(X, y).predict(X[:3]).shape
        (3,)
    """

    estimator_class = SequenceRegressor

    def __post_init__(self) -> None:
        BaseRegressor.__init__(self)


class UndampedForecaster(BaseForecaster, IterativeForecastingMixin, SeriesToSeriesForecastingMixin):
    """`SequenceForecaster` for aeon: one series in, the value `horizon` steps ahead out.

    Args:
        horizon: The number of steps ahead.
        window: The number of past values the model reads; by default chosen from the length.
        model: The registry name of a model; "auto" compares several.
        options: Other parameters of `SequenceForecaster`, by name.
        random_state: The source of random numbers.

    Example:
        >>> from aeon.datasets import load_airline
        >>> UndampedForecaster(horizon=3, options={"steps": 20}).forecast(load_airline())
    """

    _tags: ClassVar[dict[str, Any]] = {
        "capability:univariate": True,
        "capability:multivariate": False,
        "capability:missing_values": True,
        "capability:horizon": True,
        "capability:exogenous": False,
    }

    def __init__(
        self,
        horizon: int = 1,
        *,
        window: int | None = None,
        model: str = AUTO,
        options: Mapping[str, Any] | None = None,
        random_state: Any = None,
    ) -> None:
        self.window = window
        self.model = model
        self.options = options
        self.random_state = random_state
        super().__init__(horizon=horizon, axis=1)

    def _fit(self, y: np.ndarray, exog: None) -> UndampedForecaster:
        self.estimator_ = self._forecaster(self.horizon).fit(y.squeeze(0))
        return self

    def _predict(self, y: np.ndarray, exog: None) -> float:
        return float(np.asarray(self.estimator_.predict(y.squeeze(0)))[self.horizon - 1])

    def _series_to_series_forecast(self, y: Any, prediction_horizon: int, exog: None) -> np.ndarray:
        """Train one model that forecasts all values at once, and return its forecast."""
        series = np.asarray(y, dtype=np.float64).squeeze()
        return np.asarray(self._forecaster(prediction_horizon).fit(series).predict())

    def _forecaster(self, horizon: int) -> SequenceForecaster:
        return SequenceForecaster(
            horizon,
            window=self.window,
            model=self.model,
            random_state=self.random_state,
            **(self.options or {}),
        )

    @classmethod
    def _get_test_params(cls, parameter_set: str = "default") -> dict[str, Any]:
        options = {n: v for n, v in TINY.items() if n not in ("model", "random_state")}
        return {"model": TINY["model"], "options": options, "random_state": 0}


def _time_first(X: Any) -> list[np.ndarray]:
    return [np.asarray(series).T for series in X]
