"""The base of models with features by a transform of aeon and predictions by a ridge regression.

The fitted parameters of a transform are stored as arrays, so that a run contains data and no
objects of another library.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped.lab.baselines.ridge import error_covariance, fit_ridge, logit_scale, sample_weights
from undamped.lab.baselines.whole_series import (
    LabelledSeries,
    WholeSeriesModel,
    preserve_global_state,
)

_MOST_BYTES = 2 << 30
_CHUNK = 1 << 22  # samples of series that are transformed together


class TransformRidge(WholeSeriesModel):
    """Features by a transform of aeon, predictions by a ridge regression.

    Args:
        shape: The shape of the task.
    """

    packages = ("aeon", "sklearn")
    penalties: ClassVar[Tensor]
    """The candidates of aeon's classifier for the penalty."""

    def __init__(self, shape: Any) -> None:
        super().__init__(shape)
        self._transform: Any = None
        self._features: Tensor | None = None

    # The transform

    @abstractmethod
    def _prepare(self, series: list[np.ndarray]) -> Any:
        """Return a sequence of series as the transform reads them, or refuse them."""

    @abstractmethod
    def _fit_transform(self, series: Any, labels: np.ndarray, seed: int) -> Any:
        """Return a transform fitted to prepared series, and store its arrays.

        Args:
            series: The series.
            labels: (series,) classes, or numbers.
            seed: The seed of the transform.
        """

    @abstractmethod
    def _load_transform(self, series: Any) -> Any:
        """Return the transform from the stored arrays; `series` has its channels and lengths."""

    @abstractmethod
    def _apply_transform(self, transform: Any, series: Any) -> Tensor:
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
            series, classes = self._prepare(data.series), self.shape.answer == "class"
            labels = data.targets.argmax(1) if classes else data.targets[:, 0]
            seed = int(torch.randint(1 << 31, ()))
            with preserve_global_state():
                self._transform = self._fit_transform(series, labels.numpy(), seed)
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
        ridge = fit_ridge(self._scale(features), data.targets, penalty, self.penalties, weights)
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
        prepared = self._prepare(series)
        features = []
        step = max(1, _CHUNK // max(values.size for values in prepared))
        with preserve_global_state():
            if self._transform is None:
                self._transform = self._load_transform(prepared)
            for begin in range(0, len(prepared), step):
                chunk = prepared[begin : begin + step]
                features.append(self._apply_transform(self._transform, chunk))
        return torch.cat(features)

    def _refuse_too_many(self, count: int) -> None:
        size = 4 * count * self._feature_count()
        if size > _MOST_BYTES:
            raise OptionError(
                f"The features of {type(self).__name__} for {count:,} series need "
                f"{size / 2**30:.1f} GB, more than {_MOST_BYTES >> 30} GB. Use fewer series "
                "(train.steps for infinite data), or fewer features (model.kernels, "
                "model.shapelets)."
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

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._transform = None  # it is built again from the new arrays
        super()._load_from_state_dict(*args, **kwargs)
