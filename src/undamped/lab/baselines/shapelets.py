"""RDST by Guillaume, Vrain and Elloumi, 2022: distances to random dilated shapelets."""

from __future__ import annotations

from typing import Any

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
from undamped.lab.baselines.whole_series import lengths_of

_ARRAYS = (
    *("values", "starts", "lengths", "dilations", "thresholds"),
    *("normalised", "means", "spreads", "classes"),
)
_SHORTEST = 4  # steps, for shapelets of two samples


@models.register("rdst")
class RDST(TransformRidge):
    """RDST: distances to ten thousand random dilated shapelets, and a ridge regression.

    Equation:
        d_k(t) = Σ_i |x_{t + i δ_k} − s_{k,i}|
        φ_k = (min d_k, argmin d_k, number of t with d_k(t) < θ_k)
        answer = W φ + b

    Symbols:
        s_k shapelets: up to eleven samples of a training series, every δ_k-th, four fifths of them
        and of x there standardised; θ_k thresholds from distances to another series of the class.
        W, b ridge regression with the penalty of the smallest leave-one-out error, for classes as
        ±1 and then scaled into logits.

    Promise:
        None.

    The transform is aeon's (`pip install 'undamped[aeon]'`), with the scaling and the penalties of
    its classifier. Where a shapelet lies is a feature, so that the order of events counts. Lengths
    may differ; a series that is shorter than all training series is extended by its last value.
    Missing values are refused, and streams are not supported.

    Args:
        shape: The shape of the task.
        shapelets: Number of shapelets, three features each; fewer where training series are too
            short for as many.

    Example:
        >>> model = undamped.lab.baselines.RDST(undamped.models.TaskShape(3, 2))
        >>> model(torch.randn(100, 8, 3)).shape
        torch.Size([8, 2])

    Reference:
        A. Guillaume, C. Vrain, W. Elloumi. Random dilated shapelet transform: a new approach for
        time series shapelets. ICPRAI, 2022.
    """

    penalties = 10.0 ** torch.linspace(-4, 4, 20, dtype=torch.float64)
    first_use_seconds = 60.0

    @checked
    def __init__(self, shape: TaskShape, *, shapelets: PositiveInt = 10_000) -> None:
        super().__init__(shape)
        self.shapelets = shapelets

    @classmethod
    def check_data(cls, batches: Batches) -> None:
        """Refuse series that are shorter than the shortest shapelet."""
        shortest = min((min(lengths_of(batch)) for batch in batches), default=_SHORTEST)
        if shortest < _SHORTEST:
            raise DataError(
                f"{cls.__name__} needs series of at least {_SHORTEST} steps, got {shortest}. "
                "Choose another model, such as bank."
            )

    def _feature_count(self) -> int:
        return 3 * self.shapelets

    def _prepare(self, series: list[np.ndarray]) -> list[np.ndarray]:
        least = int(self.arrays["least_steps"]) if "least_steps" in self.arrays else 1
        prepared = []
        for values in series:
            self._refuse_missing(values)
            missing = max(0, least - values.shape[1])
            longer = np.pad(values, ((0, 0), (0, missing)), mode="edge")
            prepared.append(np.ascontiguousarray(longer, dtype=np.float64))
        return prepared

    def _fit_transform(self, series: list[np.ndarray], labels: np.ndarray, seed: int) -> Any:
        transform = _new_transform(self.shapelets, seed).fit(_collection(series), labels)
        self.arrays.store(
            **{n: np.asarray(a) for n, a in zip(_ARRAYS, transform.shapelets_, strict=True)},
            least_steps=int(transform.max_shapelet_length_) + 1,
        )
        return transform

    def _load_transform(self, series: list[np.ndarray]) -> Any:
        transform = _new_transform(1, 0)
        transform.is_fitted = True  # a fit, to any data, would compile for half a minute
        transform.shapelets_ = self.arrays.numpy(*_ARRAYS)
        transform.max_shapelet_length_ = int(self.arrays["least_steps"]) - 1
        return transform

    def _apply_transform(self, transform: Any, series: list[np.ndarray]) -> Tensor:
        return torch.from_numpy(transform.transform(_collection(series)).astype(np.float32))

    def _fit_scale(self, features: Tensor) -> None:
        spread = features.double().std(0, correction=0).float()
        self.arrays.store(
            centre=features.double().mean(0).float(), scale=torch.where(spread > 0, spread, 1.0)
        )

    def _scale(self, features: Tensor) -> Tensor:
        return (features - self.arrays["centre"]) / self.arrays["scale"]


def _collection(series: list[np.ndarray]) -> Any:
    """Return one array if all lengths are equal, since aeon's loops are faster then."""
    equal = len({values.shape for values in series}) == 1
    return np.stack(series) if equal else series


def _new_transform(shapelets: int, seed: int) -> Any:
    import numba
    from aeon.transformations.collection.shapelet_based import RandomDilatedShapeletTransform

    threads = min(torch.get_num_threads(), numba.get_num_threads())
    return RandomDilatedShapeletTransform(
        max_shapelets=shapelets, random_state=seed, n_jobs=threads
    )
