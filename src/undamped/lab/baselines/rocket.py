"""Random convolutions, pooled, with a ridge regression: what the ROCKET models share.

The transforms are aeon's. What they chose on the training data is kept as arrays, so that a run
holds data and no objects of a library.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import DataError, OptionError, explain
from undamped.lab.baselines.learns_at_once import Part
from undamped.lab.baselines.ridge import error_covariance, fit_ridge, row_weights, sharpness
from undamped.lab.baselines.undisturbed import undisturbed
from undamped.lab.baselines.whole_series import Collected, WholeSeriesModel, lengths_of

PENALTIES = 10.0 ** torch.linspace(-3, 3, 10, dtype=torch.float64)
"""Those that aeon's classifiers choose from."""
_MOST_BYTES = 2 << 30
_AT_ONCE = 1 << 22  # samples of series that are transformed at once


class RocketModel(WholeSeriesModel):
    """Features by a transform of aeon's, answers by a ridge regression.

    Args:
        shape: The shape of the task.
    """

    packages = ("aeon", "sklearn")
    shortest: ClassVar[int] = 9
    """Steps that a kernel spans."""

    def __init__(self, shape: Any) -> None:
        super().__init__(shape)
        self._built: Any = None
        self._features: Tensor | None = None

    @classmethod
    def check_data(cls, part: Part) -> None:
        """Refuse series of unequal length, and those that are shorter than a kernel."""
        lengths = {length for batch in part for length in lengths_of(batch)}
        if len(lengths) > 1:
            raise _unequal(cls, f"{min(lengths)} to {max(lengths)} steps")
        if lengths and min(lengths) < cls.shortest:
            raise DataError(
                explain(
                    cls.__name__,
                    expected=f"series of at least {cls.shortest} steps",
                    got=min(lengths),
                    remedy="Choose another model, such as bank.",
                )
            )

    # What the transforms are

    @abstractmethod
    def _choose(self, series: np.ndarray, seed: int) -> Any:
        """Return a fitted transform of series (series, channels, time), and keep its arrays."""

    @abstractmethod
    def _rebuild(self, channels: int, length: int) -> Any:
        """Return the transform from the arrays that were kept."""

    @abstractmethod
    def _transform(self, built: Any, series: np.ndarray) -> Tensor:
        """Return features (series, features) before they are scaled."""

    @abstractmethod
    def _fit_scale(self, features: Tensor) -> None:
        """Choose how features are scaled, and keep it."""

    @abstractmethod
    def _scaled(self, features: Tensor) -> Tensor:
        """Return scaled features."""

    # Learning and answering

    @property
    def error_covariance(self) -> Tensor | None:
        """Mean products (outputs, outputs) of errors of answers to series that were left out."""
        return dict(self.learnt.named_buffers()).get("error_covariance")

    def _learn_from(self, collected: Collected, *, choose: bool) -> None:
        if choose:
            series = self._array(collected.series)
            seed = int(torch.randint(1 << 31, ()))
            with undisturbed():
                self._built = self._choose(series, seed)
            self.learnt.keep(length=series.shape[2])
        before = None if choose else self._features
        new = collected.series if before is None else collected.series[len(before) :]
        self._refuse_too_many(len(collected.series))
        features = self._features_of(new)
        if choose:
            self._fit_scale(features)
            self._features = features
        elif before is not None:
            features, self._features = torch.cat((before, features)), None
        self._solve(features, collected, choose)

    def _solve(self, features: Tensor, collected: Collected, choose: bool) -> None:
        penalty, answers = None if choose else float(self.learnt["penalty"]), collected.answers
        weights = row_weights(self.shape, answers, collected.weights)
        solved = fit_ridge(self._scaled(features), answers, penalty, PENALTIES, weights)
        factor = sharpness(self.shape, solved, answers, weights)
        self.learnt.keep(
            weight=(solved.weight * factor).float(),
            penalty=torch.tensor(solved.penalty, dtype=torch.float64),
            error_covariance=error_covariance(solved, answers, factor),
        )
        self.offset.copy_(solved.bias * factor)

    def _answers(self, series: list[np.ndarray], observed: list[np.ndarray]) -> Tensor:
        weight = self.learnt["weight"]
        return self._scaled(self._features_of(series)).to(weight.dtype) @ weight.T

    def _features_of(self, series: list[np.ndarray]) -> Tensor:
        array = self._array(series)
        wanted = int(self.learnt["length"])
        if array.shape[2] != wanted:
            raise _unequal(
                type(self), f"one of {array.shape[2]} steps after learning from {wanted}"
            )
        found = []
        step = max(1, _AT_ONCE // (array.shape[1] * array.shape[2]))
        with undisturbed():
            if self._built is None:
                self._built = self._rebuild(array.shape[1], wanted)
            for begin in range(0, len(array), step):
                found.append(self._transform(self._built, array[begin : begin + step]))
        return torch.cat(found)

    def _array(self, series: list[np.ndarray]) -> np.ndarray:
        """Return (series, channels, time), or refuse unequal lengths and gaps."""
        lengths = {one.shape[1] for one in series}
        if len(lengths) > 1:
            raise _unequal(type(self), f"{min(lengths)} to {max(lengths)} steps")
        array = np.stack(series)
        if np.isnan(array).any():
            raise DataError(
                explain(
                    type(self).__name__,
                    expected="series without gaps",
                    got="missing values",
                    remedy="Fill them (missing=interpolate), or choose bank or boosting.",
                )
            )
        return np.ascontiguousarray(array, dtype=np.float32)

    def _refuse_too_many(self, count: int) -> None:
        wide = 4 * count * self._feature_count()
        if wide > _MOST_BYTES:
            raise OptionError(
                explain(
                    type(self).__name__,
                    expected=f"features that fit into {_MOST_BYTES >> 30} GB",
                    got=f"{wide / 2**30:.1f} GB for {count:,} series",
                    remedy="Give fewer series (train.steps where the data has no end), or fewer "
                    "kernels (model.kernels).",
                )
            )

    @abstractmethod
    def _feature_count(self) -> int:
        """Return about how many features a series has."""

    def findings(self) -> list[str]:
        """Say how many features there are, and which penalty was chosen."""
        if not len(self.learnt):
            return []
        return [
            f"{self.learnt['weight'].shape[1]:,} features; penalty "
            f"{float(self.learnt['penalty']):.1e} chosen by leaving out one series after the other."
        ]

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self._built = None  # it holds arrays that are moved or converted now
        return super()._apply(fn, recurse)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load arrays and weights; the transform is built anew from them."""
        self._built = None
        return super().load_state_dict(*args, **kwargs)


def _unequal(cls: type, got: str) -> DataError:
    return DataError(
        explain(
            cls.__name__,
            expected="series of one length, all that are learnt from and all that are asked about",
            got=got,
            remedy="Cut windows (window=STEPS), or choose a model that takes any length, such as "
            "bank.",
        )
    )
