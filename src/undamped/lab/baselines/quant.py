"""QUANT by Dempster, Schmidt and Webb, 2024: quantiles of intervals, and a forest of trees."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import TaskShape
from undamped._base.options import PositiveInt
from undamped._base.registry import models
from undamped.lab.baselines.ridge import sample_weights
from undamped.lab.baselines.trees import TREE_ARRAYS, tree_arrays, tree_values
from undamped.lab.baselines.whole_series import (
    LabelledSeries,
    WholeSeriesModel,
    preserve_global_state,
)

_FEWEST_STEPS = 8  # that second differences and intervals of them need
_CHUNK = 1 << 22  # samples of series that are transformed together
_ROWS = 256  # series that the forest answers together


@models.register("quant")
class QUANT(WholeSeriesModel):
    """QUANT: quantiles of dyadic intervals, and a forest of extremely randomised trees.

    Equation:
        φ = quantiles of x, Δx, Δ²x and |F x| over every interval
        answer = log of the mean over the trees of the class frequencies in the leaf of φ

    Symbols:
        x a series, Δ differences, F the Fourier transform; intervals are halves, quarters, … of a
        series, and the same shifted by half their length; a quarter as many quantiles as an
        interval has samples. A number is the mean of the leaves.

    Promise:
        None.

    The transform is aeon's and the forest scikit-learn's (`pip install 'undamped[aeon]'`), with
    the settings of aeon's classifier. A run stores the trees as arrays. Series of other lengths
    than the median of the training series are resampled to it by linear interpolation; missing
    values are refused, and streams are not supported.

    Args:
        shape: The shape of the task.
        trees: Number of trees.
        depth: Number of halvings of the series, and one.

    Example:
        >>> model = undamped.lab.baselines.QUANT(undamped.models.TaskShape(3, 2))
        >>> model(torch.randn(100, 8, 3)).shape
        torch.Size([8, 2])

    Reference:
        A. Dempster, D. F. Schmidt, G. I. Webb. QUANT: a minimalist interval method for time series
        classification. Data Mining and Knowledge Discovery, 2024.
    """

    packages = ("aeon", "sklearn")

    @checked
    def __init__(
        self, shape: TaskShape, *, trees: PositiveInt = 200, depth: PositiveInt = 6
    ) -> None:
        super().__init__(shape)
        self.trees, self.depth = trees, depth
        self._features: np.ndarray | None = None

    def _fit_series(self, data: LabelledSeries, *, select: bool) -> None:
        if select:
            length = int(np.median([values.shape[1] for values in data.series]))
            seed = torch.randint(1 << 31, ())
            self.arrays.store(length=max(length, _FEWEST_STEPS), seed=seed)
        before = None if select else self._features
        new = data.series if before is None else data.series[len(before) :]
        x = self._transform(new) if len(new) else np.empty((0, 0), dtype=np.float32)
        if before is not None:
            x = np.concatenate((before, x)) if len(new) else before
        self._features = x if select else None
        weights = sample_weights(self.shape, data.targets, data.weights)
        self._fit_forest(x, data.targets, None if weights is None else weights.numpy())

    def _fit_forest(self, x: np.ndarray, targets: Tensor, weights: np.ndarray | None) -> None:
        from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

        settings: dict[str, Any] = {
            "n_estimators": self.trees,
            "max_features": 0.1,
            "random_state": int(self.arrays["seed"]),
            "n_jobs": torch.get_num_threads(),
        }
        if self.shape.answer == "class":
            classes = targets.argmax(1).numpy()
            forest = ExtraTreesClassifier(criterion="entropy", **settings).fit(x, classes, weights)
            outputs = forest.classes_
        else:
            forest = ExtraTreesRegressor(**settings).fit(x, targets.numpy(), weights)
            outputs = np.arange(targets.shape[1])
        trees = [tree.tree_ for tree in forest.estimators_]
        leaves = [tree.children_left < 0 for tree in trees]
        # The value of a node is the number of its leaf, and the answers are stored for leaves only.
        ends = np.cumsum([leaf.sum() for leaf in leaves])
        values = [
            leaf.cumsum() - 1 + end - leaf.sum() for leaf, end in zip(leaves, ends, strict=True)
        ]
        answers = np.concatenate([t.value[leaf] for t, leaf in zip(trees, leaves, strict=True)])
        answers = answers[:, 0] if self.shape.answer == "class" else answers[:, :, 0]
        self.arrays.store(
            outputs=outputs, answers=answers.astype(np.float32), **tree_arrays(trees, values)
        )

    def _predict(self, series: list[np.ndarray], observed: list[np.ndarray]) -> Tensor:
        x = torch.from_numpy(self._transform(series))
        trees = [self.arrays[name] for name in TREE_ARRAYS]
        answers, outputs = self.arrays["answers"], self.arrays["outputs"]
        means = torch.zeros(len(x), self.shape.output_size, dtype=torch.float64)
        for begin in range(0, len(x), _ROWS):
            leaves = tree_values(x[begin : begin + _ROWS], *trees)
            means[begin : begin + _ROWS, outputs] = answers[leaves].double().mean(1)
        if self.shape.answer != "class":
            return means
        # As if one more tree knew nothing, so that no class is impossible.
        return ((self.trees * means + 1 / self.shape.output_size) / (self.trees + 1)).log()

    def _transform(self, series: list[np.ndarray]) -> np.ndarray:
        """Return features (series, features)."""
        from aeon.transformations.collection.interval_based import QUANTTransformer

        length = int(self.arrays["length"])
        for values in series:
            self._refuse_missing(values)
        array = np.stack([_resample(values, length) for values in series])
        step = max(1, _CHUNK // array[0].size)
        with preserve_global_state():
            transform: Any = QUANTTransformer(interval_depth=self.depth)
            transform.fit(array[:1])
            chunks = [transform.transform(array[i : i + step]) for i in range(0, len(array), step)]
        return np.concatenate(chunks)

    def findings(self) -> list[str]:
        if not len(self.arrays):
            return []
        leaves = len(self.arrays["answers"])
        return [f"{len(self.arrays['roots']):,} trees with {leaves:,} leaves."]


def _resample(values: np.ndarray, length: int) -> np.ndarray:
    """Return (channels, length) by linear interpolation from the first to the last sample."""
    steps = values.shape[1]
    if steps == length:
        return values.astype(np.float32)
    at = np.linspace(0, steps - 1, length)
    return np.stack([np.interp(at, np.arange(steps), row) for row in values]).astype(np.float32)
