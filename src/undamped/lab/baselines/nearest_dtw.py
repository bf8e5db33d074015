"""The nearest training series under dynamic time warping, by aeon."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import TaskShape
from undamped._base.errors import OptionError
from undamped._base.options import Fraction
from undamped._base.registry import models
from undamped.lab.baselines.whole_series import (
    LabelledSeries,
    WholeSeriesModel,
    preserve_global_state,
)

_SAMPLE_SIZE = 100  # training series whose nearest neighbours estimate the accuracy
_LEAST_ACCURACY = 1.01  # times the chance level, so that the nearest series always decides


@models.register("dtw")
class NearestDTW(WholeSeriesModel):
    """Nearest neighbour: the target of the training series with the smallest warped distance.

    Equation:
        answer(x) = target of argmin_i DTW(x, x_i)

    Symbols:
        DTW the least sum of squared differences over all alignments of both series, whose offset
        is at most a fraction of the length. The predicted class gets the probability with which
        nearest neighbours were right among training series; the other classes share the rest.

    Promise:
        None.

    Distances are aeon's (`pip install 'undamped[aeon]'`). Lengths may differ; missing values are
    refused, and streams are not supported. Every prediction compares with all training series,
    which are stored in the run.

    Args:
        shape: The shape of the task.
        warping: The largest offset between both series, as a fraction of the length.

    Example:
        >>> model = undamped.lab.baselines.NearestDTW(undamped.models.TaskShape(3, 2))
        >>> model(torch.randn(100, 8, 3)).shape
        torch.Size([8, 2])

    Reference:
        H. Sakoe, S. Chiba. Dynamic programming algorithm optimization for spoken word recognition.
        IEEE Transactions on Acoustics, Speech, and Signal Processing, 1978.
    """

    packages: ClassVar[tuple[str, ...]] = ("aeon",)
    weighs_sequences = False

    @checked
    def __init__(self, shape: TaskShape, *, warping: Fraction = 0.1) -> None:
        super().__init__(shape)
        if shape.class_weights:
            raise OptionError(
                f"{type(self).__name__} cannot use class weights. Choose another model, or "
                "weights=equal."
            )
        self.warping = warping

    def _fit_series(self, data: LabelledSeries, *, select: bool) -> None:
        self.arrays.store(
            series=np.concatenate(data.series, axis=1).T,  # (all samples, channels)
            lengths=torch.tensor([values.shape[1] for values in data.series]),
            answers=data.targets.float(),
        )
        if select:
            accuracy = torch.tensor(self._accuracy(data), dtype=torch.float64)
            self.arrays.store(trust=accuracy)

    def _predict(self, series: list[np.ndarray], observed: list[np.ndarray]) -> Tensor:
        ends = self.arrays["lengths"].cumsum(0)[:-1].tolist()
        training_series = np.split(self.arrays.numpy("series")[0].T, ends, axis=1)
        nearest = self._distances(series, training_series).argmin(1)
        targets = self.arrays["answers"][torch.from_numpy(nearest)]
        if self.shape.answer != "class":
            return targets
        accuracy, others = float(self.arrays["trust"]), max(1, self.shape.output_size - 1)
        return torch.where(targets > 0, math.log(accuracy), math.log((1 - accuracy) / others))

    def _accuracy(self, data: LabelledSeries) -> float:
        """Return how often the nearest other training series has the right class."""
        if self.shape.answer != "class":
            return 1.0
        sample = torch.randperm(len(data.series))[:_SAMPLE_SIZE].tolist()
        distances = self._distances([data.series[i] for i in sample], data.series)
        distances[np.arange(len(sample)), sample] = np.inf
        classes = data.targets.argmax(1).numpy()
        right = int((classes[distances.argmin(1)] == classes[sample]).sum())
        return max((right + 1) / (len(sample) + 2), _LEAST_ACCURACY / self.shape.output_size)

    def _distances(self, series: list[np.ndarray], training_series: list[np.ndarray]) -> np.ndarray:
        """Return (series, training series)."""
        from aeon.distances import dtw_pairwise_distance

        for values in series:
            self._refuse_missing(values)
        doubles = [[x.astype(np.float64) for x in part] for part in (series, training_series)]
        with preserve_global_state():
            return np.asarray(dtw_pairwise_distance(*doubles, window=self.warping))

    def findings(self) -> list[str]:
        if not len(self.arrays):
            return []
        return [f"{len(self.arrays['lengths']):,} series are stored for comparison."]
