"""Bands around forecasts, as wide as the errors on data that was held out while learning.

Split conformal prediction: with r the errors (truth minus answer) of n held-out windows, the bound
at level q is the answer plus the ⌈(n + 1) q⌉-th smallest of them (for q < ½ the ⌊(n + 1) q⌋-th).
If errors to come are like those, a value lies below the bound with a probability of q at least.
Every step ahead has its own errors. Where windows are few, steps ahead differ in scale alone: the
errors of all of them are divided by their mean size, pooled, and multiplied again.

A model that answers quantiles itself is corrected in the same way, each of them by the errors of
its own (conformalised quantile regression, without its symmetry).

Reference:
    V. Vovk, A. Gammerman, G. Shafer. Algorithmic learning in a random world, 2005. Y. Romano,
    E. Patterson, E. Candès. Conformalized quantile regression. NeurIPS, 2019.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

LEVELS = (0.1, 0.5, 0.9)
"""The quantiles of a forecast where nobody asked for others."""
_ENOUGH = 1000  # windows for a step ahead to have quantiles of its own


@dataclass(frozen=True)
class Bands:
    """What is added to the answers of a model, in standardised units.

    Args:
        levels: The quantiles, rising.
        offsets: (horizon, channels, levels).
        windows: How many held-out windows they come from.

    Example:
        >>> errors = np.random.default_rng(0).normal(size=(999, 1, 1))
        >>> bands = Bands.fit(np.zeros((999, 1, 1)), errors, (0.1, 0.9))
        >>> [round(float(bound), 1) for bound in bands.around(np.zeros((1, 1, 1))).ravel()]
        [-1.3, 1.3]
    """

    levels: list[float]
    offsets: list[list[list[float]]]
    windows: int

    @classmethod
    def fit(cls, answers: np.ndarray, truth: np.ndarray, levels: tuple[float, ...]) -> Bands:
        """Read the offsets from answers to windows that were not learnt from.

        Args:
            answers: (windows, horizon, channels), or (windows, horizon, channels, levels).
            truth: (windows, horizon, channels), NaN where nobody knows.
            levels: The quantiles, rising.
        """
        said = answers[..., None] if answers.ndim == 3 else answers
        errors = np.broadcast_to(truth[..., None] - said, (*truth.shape, len(levels)))
        offsets = np.zeros(errors.shape[1:])
        for channel in range(truth.shape[2]):
            for place, level in enumerate(levels):
                offsets[:, channel, place] = _offsets(errors[:, :, channel, place], level)
        return cls([float(level) for level in levels], offsets.tolist(), len(truth))

    def around(self, answers: np.ndarray) -> np.ndarray:
        """Return bounds (windows, horizon, channels, levels) that do not cross.

        Args:
            answers: What a model said, as for `fit`.
        """
        said = answers[..., None] if answers.ndim == 3 else answers
        return np.sort(said + np.asarray(self.offsets), axis=-1)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for run.json."""
        return asdict(self)


def _offsets(errors: np.ndarray, level: float) -> np.ndarray:
    """Return what to add at each step ahead, from errors (windows, horizon)."""
    if len(errors) >= _ENOUGH:
        return np.array([_bound(one, level, len(one)) for one in errors.T])
    size = np.array(
        [np.abs(one[~np.isnan(one)]).mean() if _any(one) else np.nan for one in errors.T]
    )
    size = np.where(np.isnan(size), np.nanmax(size) if _any(size) else 0.0, size)
    pooled = (errors / np.where(size > 0, size, 1.0)).ravel()
    # Errors of one window hang together, so that windows are what is counted.
    return size * _bound(pooled, level, len(errors))


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
    share = min(max(rank / windows, 0.0), 1.0)
    place = np.ceil(share * len(known)) - 1 if level > 0.5 else np.floor(share * len(known)) - 1
    return float(known[int(np.clip(place, 0, len(known) - 1))])
