"""Filling what is missing in a standardised recording, where 0 is the mean."""

from __future__ import annotations

import numpy as np


def hold(values: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Fill gaps with the last value; before the first one, with the mean, which is 0 here."""
    steps = np.arange(len(values))[:, None]
    last = np.maximum.accumulate(np.where(there, steps, -1), axis=0)
    held = np.take_along_axis(values, np.maximum(last, 0), axis=0)
    return np.where(last >= 0, held, 0.0)


def interpolate(
    values: np.ndarray, there: np.ndarray, times: np.ndarray | None = None
) -> np.ndarray:
    """Fill gaps along lines; at the ends with the nearest value; all missing, with the mean.

    Args:
        values: (time, channels).
        there: Which of them are.
        times: (time,) when they were, rising; even steps if none are given.
    """
    if there.all():
        return values
    filled, steps = values.copy(), np.arange(len(values)) if times is None else times
    for channel in np.flatnonzero(~there.all(0)):
        known = there[:, channel]
        filled[:, channel] = (
            np.interp(steps, steps[known], values[known, channel]) if known.any() else 0.0
        )
    return filled
