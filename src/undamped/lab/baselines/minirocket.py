"""MiniROCKET: Dempster, Schmidt and Webb, 2021, by aeon."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import TaskShape
from undamped._base.options import PositiveInt
from undamped._base.registry import models
from undamped.lab.baselines.rocket import RocketModel

_PARAMETERS = (
    "channels_per_kernel",
    "channel_numbers",
    "dilations",
    "features_per_dilation",
    "biases",
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
