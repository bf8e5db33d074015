"""The loops of a bank of oscillators over time for the CPU, compiled by Numba.

The loops take their arrays in groups: `Inputs`, `Bank`, `Drivers` and `pools.Pools`. Callers pass
them as plain tuples, which the first lines unpack, because Numba needs 0.4 µs more per call for
each named tuple, and a stream calls the loops for every sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from numba.extending import register_jitable
from torch import Tensor

from undamped.kernels.shared.jit import KERNEL, PART, njit
from undamped.lab.baselines.bank.kernels.pools import Rates, rotate


class Inputs(NamedTuple):
    """The inputs of the oscillators."""

    drive: Any
    """(time, batch, oscillators)."""
    gaps: Any
    """(time, batch), time before each sample; read by the loop with gaps only."""
    lengths: Any
    """(batch,), samples per sequence."""


class Bank(NamedTuple):
    """The constants of the oscillators, (oscillators,) each."""

    cosine: Any
    """Re e^{−γ + iω}, the step of one unit of time."""
    sine: Any
    """Im e^{−γ + iω}."""
    output_cosine: Any
    """cos φ."""
    output_sine: Any
    """sin φ."""
    damping: Any
    frequency: Any
    thresholds: Any
    """(thresholds, oscillators)."""

    @classmethod
    def of(cls, rates: Rates, thresholds: Tensor) -> Bank:
        """Return the constants as NumPy arrays."""
        unit, zero = thresholds.new_ones(()), thresholds.new_zeros(())
        step = rotate(unit, zero, unit, rates.damping, rates.frequency)
        output = rates.phase.cos(), rates.phase.sin()
        parts = (*step, *output, rates.damping, rates.frequency, thresholds)
        return cls(*[part.contiguous().numpy() for part in parts])


class Drivers(NamedTuple):
    """How the channels of one stream drive the oscillators; sparse, since each has few drivers."""

    index: Any
    """(drivers, oscillators), which signal it is: the channels, then their changes."""
    weight: Any
    """(drivers, oscillators)."""
    mean: Any
    """(2 · channels,), of the signals."""
    std: Any
    """(2 · channels,)."""


@cache
def pools_loop(with_gaps: bool, locations: bool = False) -> Callable[..., None]:
    """Return the loop over the sequences `low` to `high`; it updates the pools in place."""

    @njit(**KERNEL)
    def bank_pools(inputs: Any, bank: Any, pools: Any, low: int, high: int) -> None:
        drive, gaps, lengths = inputs
        cosine, sine, output_cosine, output_sine, damping, frequency, thresholds = bank
        real, imaginary, current, total, peak, trough, above, streak, longest = pools[:9]
        peak_location, trough_location, count = pools[9:]
        unit, zero = drive.dtype.type(1), drive.dtype.type(0)
        width, levels = drive.shape[2], thresholds.shape[0]
        for b in range(low, high):
            for t in range(lengths[b]):
                gap = gaps[t, b] if with_gaps else unit
                first = count[b] == zero
                for k in range(width):
                    c, s = cosine[k], sine[k]
                    if with_gaps:
                        size = math.exp(-damping[k] * gap)
                        c = size * math.cos(frequency[k] * gap)
                        s = size * math.sin(frequency[k] * gap)
                    x, y = real[b, k], imaginary[b, k]
                    new_x = c * x - s * y + drive[t, b, k]
                    new_y = s * x + c * y
                    real[b, k], imaginary[b, k] = new_x, new_y
                    output = output_cosine[k] * new_x - output_sine[k] * new_y
                    current[b, k] = output
                    total[b, k] += output
                    if locations:
                        location = count[b] + unit
                        if first or output > peak[b, k]:
                            peak_location[b, k] = location
                        if first or output < trough[b, k]:
                            trough_location[b, k] = location
                    peak[b, k] = output if first or output > peak[b, k] else peak[b, k]
                    trough[b, k] = output if first or output < trough[b, k] else trough[b, k]
                for j in range(levels):
                    for k in range(width):
                        over = unit if current[b, k] > thresholds[j, k] else zero
                        now = (streak[b, j, k] + unit) * over
                        above[b, j, k] += over
                        streak[b, j, k] = now
                        longest[b, j, k] = max(now, longest[b, j, k])
                count[b] += unit

    return bank_pools


@cache
def drive_loop() -> Callable[..., None]:
    """Return the loop that computes the drive of every oscillator from the samples of a stream."""

    @njit(**KERNEL)
    def bank_drive(
        x: Any, observed: Any, drivers: Any, last: Any, has_last: Any, signals: Any, out: Any
    ) -> None:
        index, weight, mean, std = drivers
        channels, last_row = x.shape[1], observed.shape[0] - 1
        for t in range(x.shape[0]):
            for c in range(channels):
                value = x[t, c]
                signals[c] = 0
                signals[channels + c] = 0
                if not observed[min(t, last_row), c] or math.isnan(value):
                    continue
                signals[c] = (value - mean[c]) / std[c]
                if has_last[c]:
                    change = (value - last[c]) - mean[channels + c]
                    signals[channels + c] = change / std[channels + c]
                last[c] = value
                has_last[c] = True
            for k in range(out.shape[2]):
                out[t, 0, k] = weight[0, k] * signals[index[0, k]]
            for j in range(1, index.shape[0]):
                for k in range(out.shape[2]):
                    out[t, 0, k] += weight[j, k] * signals[index[j, k]]

    return bank_drive


@register_jitable(**PART, forceinline=True)
def _write(row: Any, count: Any, mean: Any, std: Any, limit: Any, out: Any) -> None:
    for k in range(len(row)):
        out[k] = min(max((row[k] / count - mean[k]) / std[k], -limit), limit)


@cache
def features_loop() -> Callable[..., None]:
    """Return the loop that writes the standardised, clipped features of the first sequence."""

    @njit(**KERNEL)
    def bank_features(pools: Any, levels: bool, mean: Any, std: Any, limit: Any, out: Any) -> None:
        _, _, current, total, peak, trough, above, _, longest = pools[:9]
        peak_location, trough_location, samples = pools[9:]
        width, thresholds = current.shape[1], above.shape[1]
        unit = out.dtype.type(1)
        count, at = max(samples[0], unit), 0
        if levels:
            _write(total[0], count, mean[:width], std[:width], limit, out[:width])
            at = 2 * width
            _write(current[0], unit, mean[width:at], std[width:at], limit, out[width:at])
        for row in (peak[0], trough[0]):
            end = at + width
            _write(row, unit, mean[at:end], std[at:end], limit, out[at:end])
            at = end
        for rows in (above[0], longest[0]):
            for j in range(thresholds):
                end = at + width
                _write(rows[j], count, mean[at:end], std[at:end], limit, out[at:end])
                at = end
        for row in (peak_location[0], trough_location[0]):  # empty without locations
            end = at + len(row)
            _write(row, count, mean[at:end], std[at:end], limit, out[at:end])
            at = end

    return bank_features
