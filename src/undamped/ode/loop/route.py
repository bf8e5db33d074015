"""The route of a solve through time: where steps have to end, and which outputs lie in them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped.ode.state.times import coincide

TINY = 1e-200
# A step from t = 0 may be smaller by this factor, relative to the span of the solve.
AT_ZERO = 1e-6
LONG = 1e3
Outputs = tuple[tuple[int, float | None], ...]
"""Outputs in a step: their numbers, with the fraction of the step or None for its end."""
Window = tuple[float, float]


class Route:
    """From the first of some times to the last.

    Args:
        times: Output times, the first of which is the start; increasing or decreasing.
        stops: Further times at which a step has to end, in increasing order.
    """

    def __init__(self, times: Sequence[float], stops: Sequence[float] = ()) -> None:
        self.times, self.start, self.end = times, times[0], times[-1]
        self.direction = 1.0 if self.end >= self.start else -1.0
        inside = [stop for stop in stops if self.before(self.start, stop)]
        inside = [stop for stop in inside if self.before(stop, self.end)]
        self._stops = inside if self.direction > 0 else inside[::-1]

    def before(self, first: float, second: float) -> bool:
        """Whether a time is passed before another."""
        return (second - first) * self.direction > 0

    def intervals(self) -> Iterator[tuple[float, float, int | None]]:
        """Yield begin and end of every interval, and the number of the output there, if any."""
        stops = list(self._stops)
        for index in range(1, len(self.times)):
            begin, target = self.times[index - 1], self.times[index]
            while stops and self.before(stops[0], target):
                yield begin, stops[0], None
                begin = stops.pop(0)
            yield begin, target, index

    def target(self, t: float, index: int, *, lands_everywhere: bool) -> float:
        """Return the time at which a step from t has to end at the latest.

        Args:
            t: Time at which it begins.
            index: The next output.
            lands_everywhere: Whether steps end at outputs; otherwise these may lie inside.
        """
        while self._stops and not self.before(t, self._stops[0]):
            del self._stops[0]
        target = self.times[index] if lands_everywhere else self.end
        return self._stops[0] if self._stops and self.before(self._stops[0], target) else target

    def outputs(self, t: float, index: int, after: float) -> Outputs:
        """Return the outputs that lie in a step from t to `after`, of which `index` is the next."""
        inside = []
        for number in range(index, len(self.times)):
            time = self.times[number]
            if (time - after) * self.direction > 0:
                break
            inside.append((number, None if time == after else (time - t) / (after - t)))
        return tuple(inside)

    def smallest_step(self, t: float) -> float:
        """Return the smallest step that changes the time by more than rounding.

        It depends on the time, not on the remaining span; only near zero, where rounding vanishes,
        the span of the solve sets the scale.
        """
        span = min(max(abs(self.start), abs(self.end)), LONG)
        return 16 * 2.3e-16 * max(abs(t), AT_ZERO * span, TINY)

    def coincide(self, first: float, second: float) -> bool:
        """Whether two times are the same but for rounding."""
        ends = [abs(end) for end in (self.start, self.end) if math.isfinite(end)]
        return math.isfinite(first) and coincide(first, second, max(ends))


def read_stops(value: Any, name: str) -> tuple[float, ...]:
    """Return times, sorted, from a tensor or a sequence that a user gave as an option `name`."""
    try:
        times = torch.as_tensor(value, dtype=torch.float64).detach().reshape(-1).tolist()
    except (TypeError, ValueError, RuntimeError):
        times = [math.nan]
    if not all(math.isfinite(time) for time in times):
        raise OptionError(
            f"options.{name} must be finite times in a tensor or a list, got "
            f"{'NaN or infinity' if isinstance(value, Tensor) else f'a {type(value).__name__}'}."
        )
    return tuple(sorted(set(times)))


class Jumps:
    """On which side of a jump a step evaluates its field.

    Args:
        times: Times at which the field jumps.
        everywhere: Whether the end of every step counts as a jump.
    """

    def __init__(self, times: Sequence[float] = (), *, everywhere: bool = False) -> None:
        self.times, self.everywhere = frozenset(times), everywhere

    def __bool__(self) -> bool:
        """Whether there are any jumps."""
        return self.everywhere or bool(self.times)

    def window(self, t: Any, h: Any) -> Window | None:
        """Return the times of a step within which its field may be evaluated, or None for all."""
        if not self or isinstance(t, Tensor):
            return None
        begin, end = t, t + h
        starts = self.everywhere or begin in self.times
        ends = self.everywhere or any(abs(end - time) <= 1e-14 * abs(end) for time in self.times)
        if not (starts or ends):
            return None
        return begin if starts else -math.copysign(math.inf, h), (
            end if ends else math.copysign(math.inf, h)
        )


def inside(t: Tensor, window: Window) -> Tensor:
    """Return a time, moved to the next number inside where it is at the edge of a window."""
    low, high = window
    kind = np.float32 if t.dtype == torch.float32 else np.float64
    number, begin, end = kind(t.item()), kind(low), kind(high)
    if number == begin:
        moved = np.nextafter(number, kind(math.inf if high > low else -math.inf))
    elif abs(number - end) <= np.spacing(abs(end)) if np.isfinite(end) else False:
        moved = np.nextafter(end, kind(-math.inf if high > low else math.inf))
    else:
        return t
    return torch.full_like(t, float(moved))
