"""Whether single precision can tell the values of a channel apart.

Recordings are kept in single precision: seven digits. A signal of a few units upon an offset of a
billion is gone in it, and nobody would notice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_WORST = 0.01  # of the range of a channel may be lost by rounding


class Resolution:
    """Looks at the values of channels piece by piece, before and after rounding."""

    def __init__(self) -> None:
        self._low = self._high = self._error = np.full(1, np.nan)

    def add(self, exact: np.ndarray, rounded: np.ndarray) -> None:
        """Take some rows (rows, channels), as they were and as they are kept."""
        if exact.dtype == rounded.dtype or not exact.size:
            return
        values = exact.astype(np.float64, copy=False)
        # fmin and fmax pass over what is missing.
        self._low = np.fmin(self._low, np.fmin.reduce(values))
        self._high = np.fmax(self._high, np.fmax.reduce(values))
        with np.errstate(invalid="ignore"):  # what became infinite is refused elsewhere
            lost = np.fmax.reduce(np.abs(values - rounded))
        self._error = np.fmax(self._error, lost)

    def blurred(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the channels of which too little is left."""
        spread = self._high - self._low
        with np.errstate(invalid="ignore"):
            lost = np.broadcast_to((spread > 0) & (self._error > _WORST * spread), len(names))
        return tuple(name for name, one in zip(names, lost, strict=True) if one)
