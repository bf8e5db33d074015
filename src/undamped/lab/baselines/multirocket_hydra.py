"""MultiROCKET and Hydra together: Tan et al., 2022; Dempster et al., 2023; by aeon."""

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

_ONE_CHANNEL = ("dilations", "features_per_dilation", "biases")
_CHANNELS = ("channels_per_kernel", "channel_numbers", *_ONE_CHANNEL)
_NUM_POOLS = 4  # of MultiROCKET: fraction, longest run, mean and mean index of positive values
_RARE = 4  # the exponent that damps counts of Hydra that are mostly zero


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
        from aeon.transformations.collection.convolution_based import (
            HydraTransformer,
            MultiRocket,
        )

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
