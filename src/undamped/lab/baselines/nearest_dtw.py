"""The nearest training series under dynamic time warping, by aeon."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import TaskShape
from undamped._base.errors import DataError, OptionError, explain
from undamped._base.options import Fraction
from undamped._base.registry import models
from undamped.lab.baselines.undisturbed import undisturbed
from undamped.lab.baselines.whole_series import Collected, WholeSeriesModel

_ASKED = 100  # training series whose nearest other one tells how far to trust an answer

_LEAST_TRUST = 1.01  # times an even chance: the nearest series decides, however bad its record


@models.register("dtw")
class NearestDTW(WholeSeriesModel):
    """Nearest neighbour: the answer of the training series that is closest when both are warped.

    Equation:
        answer(x) = answer of argmin_i DTW(x, x_i)

    Symbols:
        DTW the least sum of squared differences over all ways to walk through both series together,
        at most a share of the length apart. A class gets the probability with which nearest
        neighbours were right among training series, the others share the rest.

    Promise:
        None.

    Distances are aeon's (`pip install 'undamped[aeon]'`). Lengths may differ; gaps are refused, and
    a stream cannot be answered. Every answer looks at all training series, which the run keeps.

    Args:
        shape: The shape of the task.
        warping: How far the two may be apart, as a share of the length.

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
                explain(
                    type(self).__name__,
                    expected="a task whose classes count alike",
                    got="one with weights",
                    remedy="A neighbour has no weight: choose another model, or weights=equal.",
                )
            )
        self.warping = warping

    def _learn_from(self, collected: Collected, *, choose: bool) -> None:
        lengths = [one.shape[1] for one in collected.series]
        self.learnt.keep(
            series=np.concatenate(collected.series, axis=1).T,  # (all samples, channels)
            lengths=torch.tensor(lengths),
            answers=collected.answers.float(),
        )
        if choose:
            self.learnt.keep(trust=torch.tensor(self._trust(collected), dtype=torch.float64))

    def _answers(self, series: list[np.ndarray], observed: list[np.ndarray]) -> Tensor:
        ends = self.learnt["lengths"].cumsum(0)[:-1].tolist()
        known = np.split(self.learnt.numpy("series")[0].T, ends, axis=1)
        nearest = self._distances(series, known).argmin(1)
        answers = self.learnt["answers"][torch.from_numpy(nearest)]
        if self.shape.answer != "class":
            return answers
        trust, others = float(self.learnt["trust"]), max(1, self.shape.output_size - 1)
        return torch.where(answers > 0, math.log(trust), math.log((1 - trust) / others))

    def _trust(self, collected: Collected) -> float:
        """Return how often the nearest other training series has the right class."""
        if self.shape.answer != "class":
            return 1.0
        count = len(collected.series)
        asked = torch.randperm(count)[:_ASKED].tolist()
        distances = self._distances([collected.series[i] for i in asked], collected.series)
        distances[np.arange(len(asked)), asked] = np.inf
        classes = collected.answers.argmax(1).numpy()
        right = int((classes[distances.argmin(1)] == classes[asked]).sum())
        return max((right + 1) / (len(asked) + 2), _LEAST_TRUST / self.shape.output_size)

    def _distances(self, series: list[np.ndarray], known: list[np.ndarray]) -> np.ndarray:
        """Return (series, known)."""
        from aeon.distances import dtw_pairwise_distance

        if any(np.isnan(one).any() for one in series):
            raise DataError(
                explain(
                    type(self).__name__,
                    expected="series without gaps",
                    got="missing values",
                    remedy="Fill them (missing=interpolate), or choose bank or boosting.",
                )
            )
        doubles = [[one.astype(np.float64) for one in part] for part in (series, known)]
        with undisturbed():
            return np.asarray(dtw_pairwise_distance(*doubles, window=self.warping))

    def findings(self) -> list[str]:
        """Say how many series are kept."""
        if not len(self.learnt):
            return []
        return [f"{len(self.learnt['lengths']):,} series are kept to be compared with."]
