"""A bank fed with the samples of one stream, in arrays that were made beforehand.

The arithmetic is that of `Listeners.signals` and `pools.advance`; only what drives an oscillator is
summed in an order of its own, which is the same however many samples come at once: a stream has
the same bits in whatever blocks it comes.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undamped.kernels.shared.jit import KERNEL, njit
from undamped.lab.baselines.bank.kernels.compiled import kernel
from undamped.lab.baselines.bank.kernels.pools import Pools, Rates, turned


class PoolStream:
    """Constants and state of a bank of oscillators that hears one stream.

    Args:
        rates: What the oscillators are.
        drivers: (oscillators, 2 · channels) what drives each.
        centre: (2 · channels,) means of values and their changes.
        scale: (2 · channels,) their standard deviations.
        thresholds: (thresholds, oscillators).
    """

    def __init__(
        self, rates: Rates, drivers: Tensor, centre: Tensor, scale: Tensor, thresholds: Tensor
    ) -> None:
        rates = rates.to(thresholds.dtype)
        one = thresholds.new_ones(())
        turn = turned(one, thresholds.new_zeros(()), one, rates.damping, rates.frequency)
        shown = rates.phase.cos(), rates.phase.sin()
        constants = (*turn, *shown, rates.damping, rates.frequency, thresholds)
        self._constants = tuple(_copy(part) for part in constants)
        # Few signals drive each oscillator: their numbers and shares, (drivers, oscillators).
        most = int((drivers != 0).sum(1).max())
        index = (drivers == 0).byte().argsort(dim=1, stable=True)[:, :most]
        self._drivers = _copy(index.T), _copy(drivers.gather(1, index).T)
        self._standard = _copy(centre), _copy(scale)
        channels = drivers.shape[1] // 2
        kind = self._drivers[1].dtype
        self._held = np.zeros(channels, kind)
        self._known = np.zeros(channels, bool)
        self._pools = tuple(_copy(part) for part in Pools.empty(1, thresholds))
        self._drive, self._advance = _drive(), {flag: kernel(flag) for flag in (False, True)}
        self._signals = np.zeros(2 * channels, kind)
        self._even = np.ones((1, 1), kind)
        self._all = np.ones((1, channels), bool)

    @property
    def samples(self) -> int:
        """How many samples were heard."""
        return int(self._pools[-1][0])

    def push(self, x: np.ndarray, gaps: np.ndarray | None, observed: np.ndarray | None) -> None:
        """Hear samples.

        Args:
            x: (samples, channels) of the type of the bank.
            gaps: (samples,) usual gaps before each; one each if not given.
            observed: (samples, channels) what was measured; all but NaN if not given.
        """
        count, x = len(x), np.ascontiguousarray(x)
        seen = self._all if observed is None else np.ascontiguousarray(observed)
        drive = np.empty((count, 1, self._drivers[1].shape[1]), self._held.dtype)
        state = self._held, self._known, *self._standard, self._signals
        self._drive(x, seen, *state, *self._drivers, drive)
        timestamps = self._even if gaps is None else gaps.astype(drive.dtype)[:, None]
        until = np.array([count])
        run = self._advance[gaps is not None]
        run(drive, timestamps, until, *self._constants, *self._pools, 0, 1)

    def standard_features(
        self, levels: bool, centre: np.ndarray, scale: np.ndarray, farthest: float, out: np.ndarray
    ) -> None:
        """Write the features, standardised, into an array.

        Args:
            levels: Whether means and present values come first.
            centre: (features,).
            scale: (features,).
            farthest: To which multiple of the scale a feature is believed.
            out: (features,).
        """
        _features()(*self._pools[2:7], self._pools[8], levels, self.samples, centre, scale, out)
        np.clip(out, -farthest, farthest, out=out)

    @property
    def state(self) -> dict[str, Tensor]:
        """A copy of everything that changes, by name."""
        arrays = {"held": self._held, "known": self._known}
        arrays |= dict(zip(Pools._fields, self._pools, strict=True))
        return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from what `state` returned; shapes and types have been checked."""
        self._held, self._known = _copy(state["held"]), _copy(state["known"])
        self._pools = tuple(_copy(state[name]) for name in Pools._fields)


def _copy(tensor: Tensor) -> np.ndarray:
    return tensor.detach().contiguous().clone().numpy()


@cache
def _drive() -> Any:
    @njit(**KERNEL)
    def bank_drive(
        x: Any,
        observed: Any,
        held: Any,
        known: Any,
        centre: Any,
        scale: Any,
        signals: Any,
        index: Any,
        share: Any,
        out: Any,
    ) -> None:
        channels, last = x.shape[1], observed.shape[0] - 1
        for t in range(x.shape[0]):
            for c in range(channels):
                value = x[t, c]
                signals[c] = 0
                signals[channels + c] = 0
                if not observed[min(t, last), c] or math.isnan(value):
                    continue
                signals[c] = (value - centre[c]) / scale[c]
                if known[c]:
                    change = (value - held[c]) - centre[channels + c]
                    signals[channels + c] = change / scale[channels + c]
                held[c] = value
                known[c] = True
            for k in range(out.shape[2]):
                out[t, 0, k] = share[0, k] * signals[index[0, k]]
            for j in range(1, index.shape[0]):
                for k in range(out.shape[2]):
                    out[t, 0, k] += share[j, k] * signals[index[j, k]]

    return bank_drive


@cache
def _features() -> Any:
    @njit(**KERNEL)
    def bank_features(
        now: Any,
        total: Any,
        peak: Any,
        trough: Any,
        above: Any,
        longest: Any,
        levels: bool,
        samples: int,
        centre: Any,
        scale: Any,
        out: Any,
    ) -> None:
        width, thresholds = now.shape[1], above.shape[1]
        count = out.dtype.type(max(samples, 1))
        at = 0
        if levels:
            for k in range(width):
                out[k] = (total[0, k] / count - centre[k]) / scale[k]
                out[width + k] = (now[0, k] - centre[width + k]) / scale[width + k]
            at = 2 * width
        for k in range(width):
            out[at + k] = (peak[0, k] - centre[at + k]) / scale[at + k]
        at += width
        for k in range(width):
            out[at + k] = (trough[0, k] - centre[at + k]) / scale[at + k]
        at += width
        for j in range(thresholds):
            for k in range(width):
                out[at + k] = (above[0, j, k] / count - centre[at + k]) / scale[at + k]
            at += width
        for j in range(thresholds):
            for k in range(width):
                out[at + k] = (longest[0, j, k] / count - centre[at + k]) / scale[at + k]
            at += width

    return bank_features
