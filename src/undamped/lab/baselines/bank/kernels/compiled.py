"""The bank's loop over time for the CPU, compiled by Numba."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from undamped.kernels.shared.jit import KERNEL, njit


@cache
def kernel(timed: bool) -> Callable[..., None]:
    """The loop; what it counts is changed in place. Oscillators are one vector after the other."""

    @njit(**KERNEL)
    def bank_pools(
        drive: Any,
        gaps: Any,
        until: Any,
        cosine: Any,
        sine: Any,
        show_real: Any,
        show_imaginary: Any,
        damping: Any,
        frequency: Any,
        thresholds: Any,
        real: Any,
        imaginary: Any,
        now: Any,
        total: Any,
        peak: Any,
        trough: Any,
        above: Any,
        stretch: Any,
        longest: Any,
        count: Any,
        low: int,
        high: int,
    ) -> None:
        one, zero = drive.dtype.type(1), drive.dtype.type(0)
        width, levels = drive.shape[2], thresholds.shape[0]
        for b in range(low, high):
            for t in range(until[b]):
                gap = gaps[t, b] if timed else one
                first = count[b] == zero
                for k in range(width):
                    c, s = cosine[k], sine[k]
                    if timed:
                        size = math.exp(-damping[k] * gap)
                        c = size * math.cos(frequency[k] * gap)
                        s = size * math.sin(frequency[k] * gap)
                    x, y = real[b, k], imaginary[b, k]
                    moved = c * x - s * y + drive[t, b, k]
                    beside = s * x + c * y
                    real[b, k], imaginary[b, k] = moved, beside
                    shown = show_real[k] * moved - show_imaginary[k] * beside
                    now[b, k] = shown
                    total[b, k] += shown
                    peak[b, k] = shown if first or shown > peak[b, k] else peak[b, k]
                    trough[b, k] = shown if first or shown < trough[b, k] else trough[b, k]
                for j in range(levels):
                    for k in range(width):
                        over = one if now[b, k] > thresholds[j, k] else zero
                        lasting = (stretch[b, j, k] + one) * over
                        above[b, j, k] += over
                        stretch[b, j, k] = lasting
                        longest[b, j, k] = max(lasting, longest[b, j, k])
                count[b] += one

    return bank_pools
