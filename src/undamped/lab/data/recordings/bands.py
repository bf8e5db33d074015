"""Prediction intervals of forecasts, calibrated on the errors of held-out data.

Split conformal prediction: with r the errors (truth minus forecast) of n held-out windows, the
bound at level q is the forecast plus the ⌈(n + 1) q⌉-th smallest of them (for q < ½ the
⌊(n + 1) q⌋-th). If future errors have the same distribution, a value lies below the bound with a
probability of at least q. Every step of the horizon has its own errors. With few windows, steps
differ in scale only: the errors of all of them are divided by their typical size, pooled, and
multiplied again. With so few that the bound is beyond the largest error, it is that of Student's t
if that is wider; four steps of one window count as one error there, since they are correlated.

Series change, and errors with them. Where forecasts are made in sequence and the truth becomes
known, a bound that was exceeded moves outwards a little, and one that was not moves inwards by
less, so that in the long run each is exceeded as often as it should be for any distribution of
errors (`tracked`).

Errors often grow with the values. For values that are never negative, square roots and (if none is
zero) logarithms are tried too, and errors are measured on the scale on which the pinball loss of
the bands on the held-out windows is smallest.

The quantiles of a model are corrected in the same way, each by its own errors (conformalised
quantile regression, without its symmetry).

Reference:
    V. Vovk, A. Gammerman, G. Shafer. Algorithmic learning in a random world, 2005. Y. Romano,
    E. Patterson, E. Candès. Conformalized quantile regression. NeurIPS, 2019. A. Angelopoulos,
    E. Candès, R. Tibshirani. Conformal PID control for time series prediction. NeurIPS, 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from undamped._base.errors import RunError
from undamped._base.options import check_fields

Scale = Literal["plain", "root", "log"]
LEVELS = (0.1, 0.5, 0.9)
"""The default quantiles of a forecast."""
RATE = 0.05
"""The fraction of its width that a band moves by when a bound is exceeded."""
_LOWEST = 0.3  # of the lowest value: the smallest argument of a logarithm
_ENOUGH = 1000  # windows for separate quantiles of each step of the horizon
_CORRELATED = 4  # errors of adjacent steps that count as one
_FEW = 9  # windows, below which no order statistic bounds a tenth of the errors


@dataclass(frozen=True)
class Bands:
    """Prediction intervals around the forecasts of a model.

    Args:
        levels: The quantiles, increasing.
        offsets: (horizon, channels, levels), in the units of `scale`.
        windows: The number of held-out windows.
        scale: Whether offsets are added to values, to their square roots or to their logarithms.
        mean: The mean of every channel, by which values are standardised.
        std: Its standard deviation.
        floor: The smallest argument of a logarithm.

    Example:
        >>> errors = np.random.default_rng(0).normal(size=(999, 1, 1))
        >>> bands = Bands.fit(np.zeros((999, 1, 1)), errors, (0.1, 0.9))
        >>> [round(float(bound), 1) for bound in bands.around(np.zeros((1, 1, 1))).ravel()]
        [-1.3, 1.2]
    """

    levels: list[float]
    offsets: list[list[list[float]]]
    windows: int
    scale: Scale = "plain"
    mean: list[float] = field(default_factory=lambda: [0.0])
    std: list[float] = field(default_factory=lambda: [1.0])
    floor: float = 0.0

    @classmethod
    def fit(
        cls,
        forecasts: np.ndarray,
        truth: np.ndarray,
        levels: tuple[float, ...],
        mean: Sequence[float] = (0.0,),
        std: Sequence[float] = (1.0,),
    ) -> Bands:
        """Return bands from forecasts of windows that were not trained on.

        Args:
            forecasts: (windows, horizon, channels), or (windows, horizon, channels, levels).
            truth: (windows, horizon, channels), NaN where it is unknown.
            levels: The quantiles, increasing.
            mean: The mean of every channel, by which values are standardised.
            std: Its standard deviation.
        """
        original = (truth * std + mean)[~np.isnan(truth)]
        lowest = float(original.min()) if len(original) else -1.0
        units: dict[str, Any] = {
            "mean": [float(v) for v in mean],
            "std": [float(v) for v in std],
            "floor": _LOWEST * max(lowest, 0.0),
        }
        values, target = _with_levels(forecasts), truth[..., None]
        least = (values * np.array(std)[:, None] + np.array(mean)[:, None]).min(initial=np.inf)
        scales: list[Scale] = ["plain"]
        if lowest >= 0 and least >= 0:
            scales.append("root")
        if lowest > 0 and least > _LOWEST * lowest:  # a logarithm exaggerates errors near zero
            scales.append("log")
        best: tuple[float, Bands] | None = None
        for scale in scales:
            empty = cls([float(level) for level in levels], [], len(truth), scale, **units)
            errors = empty._to_scale(target) - empty._to_scale(values)
            errors = np.broadcast_to(errors, (*truth.shape, len(levels)))
            offsets = np.zeros(errors.shape[1:])
            for channel in range(truth.shape[2]):
                for index, level in enumerate(levels):
                    offsets[:, channel, index] = _offsets(errors[:, :, channel, index], level)
            bands = replace(empty, offsets=offsets.tolist())
            over = target - bands.around(forecasts)
            loss = np.maximum(np.array(levels) * over, (np.array(levels) - 1) * over)
            value = float(np.nanmean(loss)) if len(original) else 0.0
            if best is None or value < best[0]:
                best = value, bands
        assert best is not None
        return best[1]

    def around(self, forecasts: np.ndarray) -> np.ndarray:
        """Return bounds (windows, horizon, channels, levels) that do not cross.

        Args:
            forecasts: The forecasts of a model, as for `fit`.
        """
        bounds = self._to_scale(_with_levels(forecasts)) + np.asarray(self.offsets)
        return np.sort(self._from_scale(bounds), axis=-1)

    def _to_scale(self, values: np.ndarray) -> np.ndarray:
        """Return standardised values (…, channels, levels) on the scale of the errors."""
        if self.scale == "plain":
            return values
        original = values * np.array(self.std)[:, None] + np.array(self.mean)[:, None]
        if self.scale == "root":
            return np.sqrt(np.maximum(original, 0.0))
        return np.log(np.maximum(original, self.floor))

    def _from_scale(self, values: np.ndarray) -> np.ndarray:
        """Invert `_to_scale`."""
        if self.scale == "plain":
            return values
        if self.scale == "root":
            original = np.square(np.maximum(values, 0.0))
        else:
            original = np.exp(np.minimum(values, 700.0))
        return (original - np.array(self.mean)[:, None]) / np.array(self.std)[:, None]

    def tracked(
        self, forecasts: np.ndarray, truth: np.ndarray, begins: np.ndarray, rate: float = RATE
    ) -> tuple[np.ndarray, Bands]:
        """Return bounds of forecasts made in sequence, and the bands after the last.

        The bounds of a forecast depend only on values before its first step.

        Args:
            forecasts: The forecasts of a model, as for `fit`.
            truth: The true values, as for `fit`.
            begins: (windows,) the index of the first step of each forecast, for one series.
            rate: The fraction of its width that a band moves by when a bound is exceeded.
        """
        values, target = self._to_scale(_with_levels(forecasts)), self._to_scale(truth[..., None])
        levels, offsets = np.array(self.levels), np.array(self.offsets)
        reach = rate * self._widths
        bounds = np.zeros((*truth.shape, len(levels)))
        order = np.argsort(begins, kind="stable")
        horizon = truth.shape[1]
        pending: list[tuple[int, int]] = []  # forecasts, and their first step to be compared
        for number in [*order, -1]:
            now = begins[number] if number >= 0 else np.inf
            remaining = []
            for window, since in pending:
                until = int(min(now - begins[window], horizon))  # later steps are in the future
                fresh = slice(since, until)
                exceeded = target[window, fresh] > values[window, fresh] + offsets[fresh]
                moved = reach[fresh] * (exceeded - (1 - levels))
                offsets[fresh] += np.where(np.isnan(target[window, fresh]), 0.0, moved)
                if until < horizon:
                    remaining.append((window, until))
            pending = remaining
            if number >= 0:
                bounds[number] = np.sort(self._from_scale(values[number] + offsets), axis=-1)
                pending.append((int(number), 0))
        after = replace(self, offsets=offsets.tolist(), windows=self.windows + len(truth))
        return bounds, after

    def moved_since(self, before: Bands) -> np.ndarray:
        """Return the mean movement of each bound as a fraction of the width, (levels,)."""
        widths = np.where(before._widths > 0, before._widths, np.inf)
        return ((np.array(self.offsets) - np.array(before.offsets)) / widths).mean((0, 1))

    def moved(self, fractions: np.ndarray) -> Bands:
        """Return bands whose bounds are moved by fractions (levels,) of their width."""
        return replace(self, offsets=(np.array(self.offsets) + fractions * self._widths).tolist())

    @property
    def _widths(self) -> np.ndarray:
        """The distance between the outermost bounds, (horizon, channels, 1)."""
        offsets = np.array(self.offsets)
        return offsets[..., -1:] - offsets[..., :1]

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Bands:
        """Return the bands that `dataclasses.asdict` describes, after checking them."""
        earlier = {"zero": "mean", "one": "std"}  # names in runs of earlier versions
        bands = cls(**{earlier.get(name, name): value for name, value in stored.items()})
        check_fields("bands", bands)
        shape = np.array(bands.offsets).shape
        if len(shape) != 3 or shape[2] != len(bands.levels) or not min(bands.std, default=1) > 0:
            raise RunError(
                f"bands.offsets must have the shape (horizon, channels, {len(bands.levels)}) and a "
                f"positive std, got {shape} and {bands.std}. Restore run.json from a copy, or "
                "train the model again."
            )
        return bands


def _with_levels(forecasts: np.ndarray) -> np.ndarray:
    return forecasts[..., None] if forecasts.ndim == 3 else forecasts


def _offsets(errors: np.ndarray, level: float) -> np.ndarray:
    """Return the offset of each step of the horizon from errors (windows, horizon)."""
    if len(errors) >= _ENOUGH:
        return np.array([_bound(step, level, len(step)) for step in errors.T])
    if len(errors) < _FEW:  # too few for separate sizes of the steps
        valid = errors[~np.isnan(errors)]
        size = np.full(errors.shape[1], np.sqrt(np.square(valid).mean()) if len(valid) else np.nan)
    else:
        size = np.array([_size(step[~np.isnan(step)]) for step in errors.T])
    size = np.where(np.isnan(size), 0.0 if np.isnan(size).all() else np.nanmax(size), size)
    pooled = (errors / np.where(size > 0, size, 1.0)).ravel()
    # Errors of one window are correlated, so that windows are counted.
    return size * _bound(pooled, level, len(errors))


def _size(errors: np.ndarray) -> float:
    """Return the typical size of errors, which is robust to outliers."""
    if not len(errors):
        return np.nan
    return float(np.median(np.abs(errors))) or float(np.abs(errors).mean())


def _bound(errors: np.ndarray, level: float, windows: int) -> float:
    """Return the order statistic that bounds a further error at a level."""
    valid = np.sort(errors[~np.isnan(errors)])
    if not len(valid):
        return 0.0
    if level == 0.5:
        return float(np.median(valid))
    rank = np.ceil((windows + 1) * level) if level > 0.5 else np.floor((windows + 1) * level)
    if not 1 <= rank <= windows:
        return _beyond(valid, level, windows)
    position = rank / windows * len(valid)
    index = np.ceil(position) - 1 if level > 0.5 else np.floor(position) - 1
    return float(valid[int(np.clip(index, 0, len(valid) - 1))])


def _beyond(errors: np.ndarray, level: float, windows: int) -> float:
    """Return a bound beyond all of a few sorted errors, as if they were normal around zero."""
    from scipy.special import stdtrit

    dof = max(windows, len(errors) / _CORRELATED)
    spread = np.sqrt(np.square(errors).mean() * (1 + 1 / dof))
    bound = float(stdtrit(dof, level) * spread)
    return max(bound, float(errors[-1])) if level > 0.5 else min(bound, float(errors[0]))
