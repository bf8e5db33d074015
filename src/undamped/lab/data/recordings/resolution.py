"""Whether single precision can represent the differences of a channel.

Recordings are stored in single precision: seven digits. It silently loses a signal of a few
units on an offset of a billion.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_WORST = 0.01  # largest rounding error, as a fraction of the range of a channel


class Resolution:
    """Compares the values of channels block by block, before and after rounding."""

    def __init__(self) -> None:
        self._low = self._high = self._error = np.full(1, np.nan)

    def add(self, exact: np.ndarray, rounded: np.ndarray) -> None:
        """Add some rows (rows, channels), before and after rounding."""
        if exact.dtype == rounded.dtype or not exact.size:
            return
        values = exact.astype(np.float64, copy=False)
        # fmin and fmax ignore missing values.
        self._low = np.fmin(self._low, np.fmin.reduce(values))
        self._high = np.fmax(self._high, np.fmax.reduce(values))
        with np.errstate(invalid="ignore"):  # infinite values raise an error elsewhere
            error = np.fmax.reduce(np.abs(values - rounded))
        self._error = np.fmax(self._error, error)

    def blurred(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the channels that lose too much by rounding."""
        spread = self._high - self._low
        with np.errstate(invalid="ignore"):
            blurred = np.broadcast_to((spread > 0) & (self._error > _WORST * spread), len(names))
        return tuple(name for name, flag in zip(names, blurred, strict=True) if flag)
