"""The ROCKET models: pooled random convolutions and a ridge regression.

MiniROCKET is by Dempster, Schmidt and Webb, 2021; MultiROCKET by Tan et al., 2022; Hydra by
Dempster et al., 2023. The transforms are aeon's.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import TaskShape
from undamped._base.errors import DataError
from undamped._base.options import PositiveInt
from undamped._base.registry import models
from undamped.lab.baselines.closed_form import Batches
from undamped.lab.baselines.transform_ridge import TransformRidge
from undamped.lab.baselines.whole_series import LabelledSeries, lengths_of

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


class RocketModel(TransformRidge):
    """A ROCKET: its kernels need series of one length.

    Args:
        shape: The shape of the task.
    """

    penalties = 10.0 ** torch.linspace(-3, 3, 10, dtype=torch.float64)
    shortest: ClassVar[int] = 9
    """Steps that a kernel spans."""

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

    def _fit_series(self, data: LabelledSeries, *, select: bool) -> None:
        if select:
            self.arrays.store(length=data.series[0].shape[1])
        super()._fit_series(data, select=select)

    def _prepare(self, series: list[np.ndarray]) -> np.ndarray:
        """Return (series, channels, time); unequal lengths and missing values are refused."""
        lengths = {values.shape[1] for values in series}
        if len(lengths) > 1:
            raise _unequal_lengths(type(self), f"{min(lengths)} to {max(lengths)} steps")
        array, length = np.stack(series), int(self.arrays["length"])
        if array.shape[2] != length:
            got = f"one of {array.shape[2]} steps after a fit to {length}"
            raise _unequal_lengths(type(self), got)
        self._refuse_missing(array)
        return np.ascontiguousarray(array, dtype=np.float32)


def _blank(series: np.ndarray) -> np.ndarray:
    """Return two series of zeros with the same channels and length."""
    return np.zeros((2, *series.shape[1:]), dtype=np.float32)


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

    def _fit_transform(self, series: np.ndarray, labels: np.ndarray, seed: int) -> Any:
        transform = self._new_transform(seed).fit(series)
        self.arrays.store(**dict(zip(_PARAMETERS, transform.parameters, strict=True)))
        return transform

    def _load_transform(self, series: np.ndarray) -> Any:
        transform = self._new_transform(0).fit(_blank(series))
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

    def _fit_transform(self, series: np.ndarray, labels: np.ndarray, seed: int) -> Any:
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

    def _load_transform(self, series: np.ndarray) -> Any:
        rocket, hydra = self._new_transforms(0)
        blank = _blank(series)
        rocket.fit(blank)
        hydra.fit(blank)
        names = _ONE_CHANNEL if blank.shape[1] == 1 else _CHANNELS
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
