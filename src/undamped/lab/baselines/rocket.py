"""The ROCKET models: pooled random convolutions and a ridge regression.

MiniROCKET is by Dempster, Schmidt and Webb, 2021; MultiROCKET by Tan et al., 2022; Hydra by
Dempster et al., 2023. The transforms are aeon's. Their fitted parameters are stored as arrays, so
that a run contains data and no objects of another library.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import TaskShape
from undamped._base.errors import DataError, OptionError
from undamped._base.options import PositiveInt
from undamped._base.registry import models
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

_PARAMETERS = (
    "channels_per_kernel",
    "channel_numbers",
    "dilations",
    "features_per_dilation",
    "biases",
)
_ONE_CHANNEL = ("dilations", "features_per_dilation", "biases")
_CHANNELS = ("channels_per_kernel", "channel_numbers", *_ONE_CHANNEL)
_NUM_POOLS = 4  # of MultiROCKET: fraction, longest run, mean and mean index of positive values
_RARE = 4  # the exponent that damps counts of Hydra that are mostly zero


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


@models.register("minirocket")
class MiniROCKET(RocketModel):
    """MiniROCKET: ten thousand fixed convolutions, pooled, and a ridge regression.

    Equation:
        φ_k = fraction of times at which (w_k * x)_t > b_k
        answer = W φ + b

    Symbols:
        w_k 84 kernels of nine weights, −1 and 2, at dilations of up to an eighth of the length; b_k
        quantiles of their responses to training series. W, b ridge regression with the penalty of
        the smallest leave-one-out error, for classes as ±1 and then scaled into logits.

    Promise:
        None.

    The transform is aeon's (`pip install 'undamped[aeon]'`), with the scaling and the penalties of
    its classifier. Series must have one length and no missing values; streams are not
    supported.

    Args:
        shape: The shape of the task.
        kernels: Number of features, rounded down to a multiple of 84.

    Example:
        >>> model = undamped.lab.baselines.MiniROCKET(undamped.models.TaskShape(3, 2))
        >>> model(torch.randn(100, 8, 3)).shape
        torch.Size([8, 2])

    Reference:
        A. Dempster, D. F. Schmidt, G. I. Webb. MiniRocket: a very fast (almost) deterministic
        transform for time series classification. KDD, 2021.
    """

    @checked
    def __init__(self, shape: TaskShape, *, kernels: PositiveInt = 10_000) -> None:
        super().__init__(shape)
        self.kernels = kernels

    def _feature_count(self) -> int:
        return max(84, self.kernels)

    def _fit_transform(self, series: np.ndarray, seed: int) -> Any:
        transform = self._new_transform(seed).fit(series)
        self.arrays.store(**dict(zip(_PARAMETERS, transform.parameters, strict=True)))
        return transform

    def _load_transform(self, channels: int, length: int) -> Any:
        transform = self._new_transform(0).fit(np.zeros((2, channels, length), dtype=np.float32))
        transform.parameters = self.arrays.numpy(*_PARAMETERS)
        return transform

    def _new_transform(self, seed: int) -> Any:
        from aeon.transformations.collection.convolution_based import MiniRocket

        return MiniRocket(n_kernels=self.kernels, random_state=seed)

    def _apply_transform(self, transform: Any, series: np.ndarray) -> Tensor:
        return torch.from_numpy(np.asarray(transform.transform(series), dtype=np.float32))

    def _fit_scale(self, features: Tensor) -> None:
        spread = features.std(0, correction=0)
        self.arrays.store(scale=torch.where(spread > 0, spread, 1.0))

    def _scale(self, features: Tensor) -> Tensor:
        return features / self.arrays["scale"]


@models.register("multirocket-hydra")
class MultiROCKETHydra(RocketModel):
    """MultiROCKET-Hydra: fifty thousand pooled convolutions and counts of competing kernels.

    Equation:
        φ = (four pools of each kernel on x and on Δx) ∥ (wins of each kernel of a group)
        answer = W φ + b

    Symbols:
        Kernels of MultiROCKET as in `minirocket`, pooled by fraction, mean, mean index and
        longest run of values above a bias; kernels of Hydra random, eight in each of 64 groups at
        dilations 1, 2, 4, …; W, b as in `minirocket`.

    Promise:
        None.

    The transforms are aeon's (`pip install 'undamped[aeon]'`), with the scaling and the penalties
    of its classifier. Series must have one length and no missing values; streams are not
    supported.

    Args:
        shape: The shape of the task.
        kernels: Kernels of MultiROCKET; eight features each.
        groups: Groups of Hydra's kernels.

    Example:
        >>> model = undamped.lab.baselines.MultiROCKETHydra(undamped.models.TaskShape(3, 2))
        >>> model(torch.randn(100, 8, 3)).shape
        torch.Size([8, 2])

    Reference:
        C. W. Tan, A. Dempster, C. Bergmeir, G. I. Webb. MultiRocket. DMKD, 2022. A. Dempster,
        D. F. Schmidt, G. I. Webb. Hydra: competing convolutional kernels. DMKD, 2023.
    """

    shortest = 10  # the differences have to span a kernel too

    @checked
    def __init__(
        self, shape: TaskShape, *, kernels: PositiveInt = 6_250, groups: PositiveInt = 64
    ) -> None:
        super().__init__(shape)
        self.kernels, self.groups = kernels, groups

    def _feature_count(self) -> int:
        return 2 * _NUM_POOLS * max(84, self.kernels)

    def _fit_transform(self, series: np.ndarray, seed: int) -> Any:
        rocket, hydra = self._new_transforms(seed)
        rocket.fit(series)
        hydra.fit(series)
        names = _ONE_CHANNEL if series.shape[1] == 1 else _CHANNELS
        for prefix, parameters in (("values_", rocket.parameter), ("changes_", rocket.parameter1)):
            self.arrays.store(**{prefix + n: a for n, a in zip(names, parameters, strict=True)})
        self.arrays.store(
            hydra_kernels=hydra._hydra.W, hydra_channels=torch.stack(hydra._hydra.idx)
        )
        return rocket, hydra

    def _load_transform(self, channels: int, length: int) -> Any:
        rocket, hydra = self._new_transforms(0)
        blank = np.zeros((2, channels, length), dtype=np.float32)
        rocket.fit(blank)
        hydra.fit(blank)
        names = _ONE_CHANNEL if channels == 1 else _CHANNELS
        rocket.parameter = self.arrays.numpy(*(f"values_{name}" for name in names))
        rocket.parameter1 = self.arrays.numpy(*(f"changes_{name}" for name in names))
        hydra._hydra.W = self.arrays["hydra_kernels"]
        hydra._hydra.idx = list(self.arrays["hydra_channels"])
        return rocket, hydra

    def _new_transforms(self, seed: int) -> tuple[Any, Any]:
        from aeon.transformations.collection.convolution_based import HydraTransformer, MultiRocket

        return (
            MultiRocket(n_kernels=max(84, self.kernels), random_state=seed),
            HydraTransformer(n_groups=self.groups, random_state=seed),
        )

    def _apply_transform(self, transform: Any, series: np.ndarray) -> Tensor:
        rocket, hydra = transform
        pooled = torch.from_numpy(np.asarray(rocket.transform(series), dtype=np.float32))
        counts = hydra.transform(series).clamp(0).sqrt()
        return torch.cat((counts, pooled), 1)

    def _fit_scale(self, features: Tensor) -> None:
        counts = features[:, : self._counts()]
        rarity = (counts == 0).float().mean(0) ** _RARE + 1e-8
        pooled = features[:, self._counts() :]
        spread = pooled.std(0, correction=0)
        self.arrays.store(
            centre=features.mean(0),
            scale=torch.cat((counts.std(0) + rarity, torch.where(spread > 0, spread, 1.0))),
        )

    def _scale(self, features: Tensor) -> Tensor:
        centred = features - self.arrays["centre"]
        centred[:, : self._counts()] *= features[:, : self._counts()] != 0
        return centred / self.arrays["scale"]

    def _counts(self) -> int:
        """Return how many of the features are Hydra's: two per kernel."""
        dilations, ways, kernels, _, _ = self.arrays["hydra_kernels"].shape
        return 2 * dilations * ways * kernels
