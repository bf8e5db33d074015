"""The base of the ROCKET models: pooled random convolutions and a ridge regression.

The transforms are aeon's. Their fitted parameters are stored as arrays, so that a run contains data
and no objects of another library.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import DataError, OptionError
from undamped.lab.baselines.closed_form import Batches
from undamped.lab.baselines.ridge import error_covariance, fit_ridge, logit_scale, sample_weights
from undamped.lab.baselines.whole_series import (
    LabelledSeries,
    WholeSeriesModel,
    lengths_of,
    preserve_global_state,
)

PENALTIES = 10.0 ** torch.linspace(-3, 3, 10, dtype=torch.float64)
"""The candidates of aeon's classifiers."""
_MOST_BYTES = 2 << 30
_CHUNK = 1 << 22  # samples of series that are transformed together


class RocketModel(WholeSeriesModel):
    """Features by a transform of aeon, predictions by a ridge regression.

    Args:
        shape: The shape of the task.
    """

    packages = ("aeon", "sklearn")
    shortest: ClassVar[int] = 9
    """Steps that a kernel spans."""

    def __init__(self, shape: Any) -> None:
        super().__init__(shape)
        self._transform: Any = None
        self._features: Tensor | None = None

    @classmethod
    def check_data(cls, batches: Batches) -> None:
        """Refuse series of unequal length, and series that are shorter than a kernel."""
        lengths = {length for batch in batches for length in lengths_of(batch)}
        if len(lengths) > 1:
            raise _unequal_lengths(cls, f"{min(lengths)} to {max(lengths)} steps")
        if lengths and min(lengths) < cls.shortest:
            raise DataError(
                f"{cls.__name__} needs series of at least {cls.shortest} steps, got "
                f"{min(lengths)}. Choose another model, such as bank."
            )

    # The transform

    @abstractmethod
    def _fit_transform(self, series: np.ndarray, seed: int) -> Any:
        """Return a transform fitted to series (series, channels, time), and store its arrays."""

    @abstractmethod
    def _load_transform(self, channels: int, length: int) -> Any:
        """Return the transform from the stored arrays."""

    @abstractmethod
    def _apply_transform(self, transform: Any, series: np.ndarray) -> Tensor:
        """Return features (series, features) before they are scaled."""

    @abstractmethod
    def _fit_scale(self, features: Tensor) -> None:
        """Compute the scale of the features, and store it."""

    @abstractmethod
    def _scale(self, features: Tensor) -> Tensor:
        """Return scaled features."""

    @abstractmethod
    def _feature_count(self) -> int:
        """Return the approximate number of features of a series."""

    # Fit and predictions

    @property
    def error_covariance(self) -> Tensor | None:
        """Mean products (outputs, outputs) of leave-one-out errors."""
        return dict(self.arrays.named_buffers()).get("error_covariance")

    def _fit_series(self, data: LabelledSeries, *, select: bool) -> None:
        if select:
            series = self._stack(data.series)
            seed = int(torch.randint(1 << 31, ()))
            with preserve_global_state():
                self._transform = self._fit_transform(series, seed)
            self.arrays.store(length=series.shape[2])
        before = None if select else self._features
        new = data.series if before is None else data.series[len(before) :]
        self._refuse_too_many(len(data.series))
        features = self._features_of(new)
        if select:
            self._fit_scale(features)
            self._features = features
        elif before is not None:
            features, self._features = torch.cat((before, features)), None
        penalty = None if select else float(self.arrays["penalty"])
        weights = sample_weights(self.shape, data.targets, data.weights)
        ridge = fit_ridge(self._scale(features), data.targets, penalty, PENALTIES, weights)
        factor = logit_scale(self.shape, ridge, data.targets, weights)
        self.arrays.store(
            weight=(ridge.weight * factor).float(),
            penalty=torch.tensor(ridge.penalty, dtype=torch.float64),
            error_covariance=error_covariance(ridge, data.targets, factor),
        )
        self.offset.copy_(ridge.bias * factor)

    def _predict(self, series: list[np.ndarray], observed: list[np.ndarray]) -> Tensor:
        weight = self.arrays["weight"]
        return self._scale(self._features_of(series)).to(weight.dtype) @ weight.T

    def _features_of(self, series: list[np.ndarray]) -> Tensor:
        array = self._stack(series)
        length = int(self.arrays["length"])
        if array.shape[2] != length:
            raise _unequal_lengths(
                type(self), f"one of {array.shape[2]} steps after a fit to {length}"
            )
        features = []
        step = max(1, _CHUNK // (array.shape[1] * array.shape[2]))
        with preserve_global_state():
            if self._transform is None:
                self._transform = self._load_transform(array.shape[1], length)
            for begin in range(0, len(array), step):
                chunk = array[begin : begin + step]
                features.append(self._apply_transform(self._transform, chunk))
        return torch.cat(features)

    def _stack(self, series: list[np.ndarray]) -> np.ndarray:
        """Return (series, channels, time); unequal lengths and missing values are refused."""
        lengths = {values.shape[1] for values in series}
        if len(lengths) > 1:
            raise _unequal_lengths(type(self), f"{min(lengths)} to {max(lengths)} steps")
        array = np.stack(series)
        self._refuse_missing(array)
        return np.ascontiguousarray(array, dtype=np.float32)

    def _refuse_too_many(self, count: int) -> None:
        size = 4 * count * self._feature_count()
        if size > _MOST_BYTES:
            raise OptionError(
                f"The features of {type(self).__name__} for {count:,} series need "
                f"{size / 2**30:.1f} GB, more than {_MOST_BYTES >> 30} GB. Use fewer series "
                "(train.steps for infinite data), or fewer kernels (model.kernels)."
            )

    def findings(self) -> list[str]:
        if not len(self.arrays):
            return []
        return [
            f"{self.arrays['weight'].shape[1]:,} features; penalty "
            f"{float(self.arrays['penalty']):.1e} by leave-one-out cross-validation."
        ]

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self._transform = None  # it contains arrays that are moved or converted now
        return super()._apply(fn, recurse)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load arrays and weights; the transform is built again from them."""
        self._transform = None
        return super().load_state_dict(*args, **kwargs)


def _unequal_lengths(cls: type, got: str) -> DataError:
    return DataError(
        f"{cls.__name__} needs series of one length, in training and in prediction, got {got}. "
        "Cut windows (window=STEPS), or choose a model for any length, such as bank."
    )
