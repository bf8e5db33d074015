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
_POOLS = 4  # of MultiROCKET: share, longest stretch, mean and mean place of what is positive
_RARE = 4  # the power by which counts of Hydra that are mostly zero are damped


@models.register("multirocket-hydra")
class MultiROCKETHydra(RocketModel):
    """MultiROCKET-Hydra: fifty thousand pooled convolutions and counts of competing kernels.

    Equation:
        φ = (four pools of each kernel on x and on Δx) ∥ (how often each kernel of a group wins)
        answer = W φ + b

    Symbols:
        Kernels of MultiROCKET as in `minirocket`, pooled by share, mean, mean place and longest
        stretch of what lies above a bias; kernels of Hydra random, eight in each of 64 groups at
        dilations 1, 2, 4, …; W, b as in `minirocket`.

    Promise:
        None.

    The transforms are aeon's (`pip install 'undamped[aeon]'`), with the scaling and the penalties
    of its classifier. Series must have one length and no gaps, and a stream cannot be answered.

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
        return 2 * _POOLS * max(84, self.kernels)

    def _choose(self, series: np.ndarray, seed: int) -> Any:
        rocket, hydra = self._empty(seed)
        rocket.fit(series)
        hydra.fit(series)
        names = _ONE_CHANNEL if series.shape[1] == 1 else _CHANNELS
        for prefix, chosen in (("values_", rocket.parameter), ("changes_", rocket.parameter1)):
            self.learnt.keep(**{prefix + n: a for n, a in zip(names, chosen, strict=True)})
        drawn = hydra._hydra
        self.learnt.keep(hydra_kernels=drawn.W, hydra_channels=torch.stack(drawn.idx))
        return rocket, hydra

    def _rebuild(self, channels: int, length: int) -> Any:
        rocket, hydra = self._empty(0)
        blank = np.zeros((2, channels, length), dtype=np.float32)
        rocket.fit(blank)
        hydra.fit(blank)
        names = _ONE_CHANNEL if channels == 1 else _CHANNELS
        rocket.parameter = self.learnt.numpy(*(f"values_{name}" for name in names))
        rocket.parameter1 = self.learnt.numpy(*(f"changes_{name}" for name in names))
        hydra._hydra.W = self.learnt["hydra_kernels"]
        hydra._hydra.idx = list(self.learnt["hydra_channels"])
        return rocket, hydra

    def _empty(self, seed: int) -> tuple[Any, Any]:
        from aeon.transformations.collection.convolution_based import (
            HydraTransformer,
            MultiRocket,
        )

        return (
            MultiRocket(n_kernels=max(84, self.kernels), random_state=seed),
            HydraTransformer(n_groups=self.groups, random_state=seed),
        )

    def _transform(self, built: Any, series: np.ndarray) -> Tensor:
        rocket, hydra = built
        pooled = torch.from_numpy(np.asarray(rocket.transform(series), dtype=np.float32))
        counts = hydra.transform(series).clamp(0).sqrt()
        return torch.cat((counts, pooled), 1)

    def _fit_scale(self, features: Tensor) -> None:
        counts = features[:, : self._counts()]
        rarity = (counts == 0).float().mean(0) ** _RARE + 1e-8
        pooled = features[:, self._counts() :]
        spread = pooled.std(0, correction=0)
        self.learnt.keep(
            centre=features.mean(0),
            scale=torch.cat((counts.std(0) + rarity, torch.where(spread > 0, spread, 1.0))),
        )

    def _scaled(self, features: Tensor) -> Tensor:
        moved = features - self.learnt["centre"]
        moved[:, : self._counts()] *= features[:, : self._counts()] != 0
        return moved / self.learnt["scale"]

    def _counts(self) -> int:
        """Return how many of the features are Hydra's: two for every kernel."""
        dilations, ways, kernels, _, _ = self.learnt["hydra_kernels"].shape
        return 2 * dilations * ways * kernels
