"""Bands around forecasts, as wide as the errors on data that was held out while learning.

Split conformal prediction: with r the errors (truth minus answer) of n held-out windows, the bound
at level q is the answer plus the ⌈(n + 1) q⌉-th smallest of them (for q < ½ the ⌊(n + 1) q⌋-th).
If errors to come are like those, a value lies below the bound with a probability of q at least.
Every step ahead has its own errors. Where windows are few, steps ahead differ in scale alone: the
errors of all of them are divided by their usual size, pooled, and multiplied again. Where they are
so few that the bound lies beyond the largest error, it is that of Student's t, if that is further
out; four steps ahead of one window count as one error there, since they hang together.

Series change, and errors with them. Where forecasts are made one after the other and what comes
becomes known, a bound that was missed moves out by a little, and one that was not moves in by less,
so that in the long run each is missed as often as it should be, whatever the errors are like
(`tracked`).

Errors often grow with the values. Of values that are never negative, roots and (where none is
zero) logarithms are looked at too, and errors are measured where the pinball loss of the bands on
the held-out windows is smallest.

A model that answers quantiles itself is corrected in the same way, each of them by the errors of
its own (conformalised quantile regression, without its symmetry).

Reference:
    V. Vovk, A. Gammerman, G. Shafer. Algorithmic learning in a random world, 2005. Y. Romano,
    E. Patterson, E. Candès. Conformalized quantile regression. NeurIPS, 2019. A. Angelopoulos,
    E. Candès, R. Tibshirani. Conformal PID control for time series prediction. NeurIPS, 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from undamped._base.errors import RunError, explain
from undamped._base.options import check_fields

Scale = Literal["plain", "root", "log"]
LEVELS = (0.1, 0.5, 0.9)
"""The quantiles of a forecast where nobody asked for others."""
RATE = 0.05
"""How much of its width a band moves by when a bound is missed."""
_LOWEST = 0.3  # of the lowest value: what logarithms are taken of
_ENOUGH = 1000  # windows for a step ahead to have quantiles of its own
_HANG_TOGETHER = 4  # errors of neighbouring steps
_FEW = 9  # windows, below which no order statistic bounds a tenth of the errors


@dataclass(frozen=True)
class Bands:
    """What is added to the answers of a model.

    Args:
        levels: The quantiles, rising.
        offsets: (horizon, channels, levels), in the units of `scale`.
        windows: How many held-out windows they come from.
        scale: Where they are added: to values as they are, to their roots or their logarithms.
        zero: What 0 is in the units of the recordings, for every channel.
        one: How large 1 is there.
        floor: What smaller answers are taken for, where logarithms are.

    Example:
        >>> errors = np.random.default_rng(0).normal(size=(999, 1, 1))
        >>> bands = Bands.fit(np.zeros((999, 1, 1)), errors, (0.1, 0.9))
        >>> [round(float(bound), 1) for bound in bands.around(np.zeros((1, 1, 1))).ravel()]
        [-1.3, 1.3]
    """

    levels: list[float]
    offsets: list[list[list[float]]]
    windows: int
    scale: Scale = "plain"
    zero: list[float] = field(default_factory=lambda: [0.0])
    one: list[float] = field(default_factory=lambda: [1.0])
    floor: float = 0.0

    @classmethod
    def fit(
        cls,
        answers: np.ndarray,
        truth: np.ndarray,
        levels: tuple[float, ...],
        zero: Sequence[float] = (0.0,),
        one: Sequence[float] = (1.0,),
    ) -> Bands:
        """Read the offsets from answers to windows that were not learnt from.

        Args:
            answers: (windows, horizon, channels), or (windows, horizon, channels, levels).
            truth: (windows, horizon, channels), NaN where nobody knows.
            levels: The quantiles, rising.
            zero: What 0 is in the units of the recordings, for every channel.
            one: How large 1 is there.
        """
        said, came = _with_levels(answers), truth[..., None]
        units: dict[str, Any] = {
            "zero": [float(v) for v in zero],
            "one": [float(v) for v in one],
        }
        original = (truth * one + zero)[~np.isnan(truth)]
        lowest = float(original.min()) if len(original) else -1.0
        units["floor"] = _LOWEST * max(lowest, 0.0)
        answered = (answers * _like(one, answers) + _like(zero, answers)).min(initial=np.inf)
        scales: list[Scale] = ["plain"]
        if lowest >= 0 and answered >= 0:
            scales.append("root")
        if lowest > 0 and answered > _LOWEST * lowest:  # near zero a logarithm makes much of little
            scales.append("log")
        best: tuple[float, Bands] | None = None
        for scale in scales:
            empty = cls([float(level) for level in levels], [], len(truth), scale, **units)
            errors = empty._seen(came) - empty._seen(said)
            errors = np.broadcast_to(errors, (*truth.shape, len(levels)))
            offsets = np.zeros(errors.shape[1:])
            for channel in range(truth.shape[2]):
                for place, level in enumerate(levels):
                    offsets[:, channel, place] = _offsets(errors[:, :, channel, place], level)
            found = replace(empty, offsets=offsets.tolist())
            over = came - found.around(answers)
            loss = np.maximum(np.array(levels) * over, (np.array(levels) - 1) * over)
            value = float(np.nanmean(loss)) if len(original) else 0.0
            if best is None or value < best[0]:
                best = value, found
        assert best is not None
        return best[1]

    def around(self, answers: np.ndarray) -> np.ndarray:
        """Return bounds (windows, horizon, channels, levels) that do not cross.

        Args:
            answers: What a model said, as for `fit`.
        """
        seen = self._seen(_with_levels(answers)) + np.asarray(self.offsets)
        return np.sort(self._unseen(seen), axis=-1)

    def _seen(self, values: np.ndarray) -> np.ndarray:
        """Return standardised values (…, channels, levels) where errors are measured."""
        if self.scale == "plain":
            return values
        original = values * np.array(self.one)[:, None] + np.array(self.zero)[:, None]
        if self.scale == "root":
            return np.sqrt(np.maximum(original, 0.0))
        return np.log(np.maximum(original, self.floor))

    def _unseen(self, values: np.ndarray) -> np.ndarray:
        """Return what `_seen` made of values as it was."""
        if self.scale == "plain":
            return values
        if self.scale == "root":
            original = np.square(np.maximum(values, 0.0))
        else:
            original = np.exp(np.minimum(values, 700.0))
        return (original - np.array(self.zero)[:, None]) / np.array(self.one)[:, None]

    def tracked(
        self, answers: np.ndarray, truth: np.ndarray, begins: np.ndarray, rate: float = RATE
    ) -> tuple[np.ndarray, Bands]:
        """Return bounds of forecasts made one after the other, and the bands after the last.

        Each knows what had come when it was made, and nothing later.

        Args:
            answers: What a model said, as for `fit`.
            truth: What came, as for `fit`.
            begins: (windows,) the number of the first step each is about, for one series.
            rate: How much of its width a band moves by when a bound is missed.
        """
        said, seen = self._seen(_with_levels(answers)), self._seen(truth[..., None])
        levels, offsets = np.array(self.levels), np.array(self.offsets)
        reach = rate * (offsets[..., -1:] - offsets[..., :1])
        bounds = np.zeros((*truth.shape, len(levels)))
        order = np.argsort(begins, kind="stable")
        steps = np.arange(truth.shape[1])
        waiting: list[
            tuple[int, int]
        ] = []  # forecasts of which something is to come, and from where
        for number in [*order, -1]:
            now = begins[number] if number >= 0 else np.inf
            left = []
            for other, since in waiting:
                known = int(min(now - begins[other], len(steps)))  # steps that have come
                fresh = slice(since, known)
                came = seen[other, fresh]
                missed = came > said[other, fresh] + offsets[fresh]
                moved = reach[fresh] * (missed - (1 - levels))
                offsets[fresh] += np.where(np.isnan(came), 0.0, moved)
                if known < len(steps):
                    left.append((other, known))
            waiting = left
            if number >= 0:
                bounds[number] = np.sort(self._unseen(said[number] + offsets), axis=-1)
                waiting.append((int(number), 0))
        after = replace(self, offsets=offsets.tolist(), windows=self.windows + len(truth))
        return bounds, after

    def moved_since(self, before: Bands) -> np.ndarray:
        """Return by what share of its width each bound has moved, the mean over all; (levels,)."""
        start = np.array(before.offsets)
        width = start[..., -1:] - start[..., :1]
        moved = (np.array(self.offsets) - start) / np.where(width > 0, width, np.inf)
        return moved.mean((0, 1))

    def moved(self, shares: np.ndarray) -> Bands:
        """Return bands whose bounds are moved by shares (levels,) of their width."""
        offsets = np.array(self.offsets)
        width = offsets[..., -1:] - offsets[..., :1]
        return replace(self, offsets=(offsets + shares * width).tolist())

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for run.json."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Bands:
        """Return what `to_dict` wrote, checked."""
        bands = cls(**stored)
        check_fields("bands", bands)
        shape = np.array(bands.offsets).shape
        if len(shape) != 3 or shape[2] != len(bands.levels) or not min(bands.one, default=1) > 0:
            raise RunError(
                explain(
                    "bands.offsets",
                    expected=f"(horizon, channels, {len(bands.levels)}), and positive units",
                    got=f"{shape} and {bands.one}",
                    remedy="Restore run.json from a copy, or train anew.",
                )
            )
        return bands


def _with_levels(answers: np.ndarray) -> np.ndarray:
    return answers[..., None] if answers.ndim == 3 else answers


def _like(unit: Sequence[float], answers: np.ndarray) -> np.ndarray:
    return np.array(unit) if answers.ndim == 3 else np.array(unit)[:, None]


def _offsets(errors: np.ndarray, level: float) -> np.ndarray:
    """Return what to add at each step ahead, from errors (windows, horizon)."""
    if len(errors) >= _ENOUGH:
        return np.array([_bound(one, level, len(one)) for one in errors.T])
    if len(errors) < _FEW:  # too few for steps ahead to be told apart
        known = errors[~np.isnan(errors)]
        size = np.full(errors.shape[1], np.sqrt(np.square(known).mean()) if len(known) else np.nan)
    else:
        size = np.array([_size(one[~np.isnan(one)]) for one in errors.T])
    size = np.where(np.isnan(size), np.nanmax(size) if _any(size) else 0.0, size)
    pooled = (errors / np.where(size > 0, size, 1.0)).ravel()
    # Errors of one window hang together, so that windows are what is counted.
    return size * _bound(pooled, level, len(errors))


def _size(errors: np.ndarray) -> float:
    """Return the usual size of errors, to which a few wild ones do not matter."""
    if not len(errors):
        return np.nan
    return float(np.median(np.abs(errors))) or float(np.abs(errors).mean())


def _any(values: np.ndarray) -> bool:
    return bool((~np.isnan(values)).any())


def _bound(errors: np.ndarray, level: float, windows: int) -> float:
    """Return the order statistic that bounds a further error at a level."""
    known = np.sort(errors[~np.isnan(errors)])
    if not len(known):
        return 0.0
    if level == 0.5:
        return float(np.median(known))
    rank = np.ceil((windows + 1) * level) if level > 0.5 else np.floor((windows + 1) * level)
    if not 1 <= rank <= windows:
        return _beyond(known, level, windows)
    share = rank / windows
    place = np.ceil(share * len(known)) - 1 if level > 0.5 else np.floor(share * len(known)) - 1
    return float(known[int(np.clip(place, 0, len(known) - 1))])


def _beyond(known: np.ndarray, level: float, windows: int) -> float:
    """Return a bound beyond all of few errors, as if they were normal around zero."""
    from scipy.special import stdtrit

    free = max(windows, len(known) / _HANG_TOGETHER)
    spread = np.sqrt(np.square(known).mean() * (1 + 1 / free))
    bound = float(stdtrit(free, level) * spread)
    return max(bound, float(known[-1])) if level > 0.5 else min(bound, float(known[0]))
