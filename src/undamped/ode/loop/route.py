"""The way of a solve through time: where steps have to end, and which outputs lie in them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from undamped.ode.state.times import coincide

NEXT_TO_NOTHING = 1e-200
# A step from t = 0 may be so much smaller, over the whole way, than one that can be told from none.
AT_ZERO = 1e-6
LONG = 1e3


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

    def before(self, time: float, other: float) -> bool:
        """Whether a time is passed before another."""
        return (other - time) * self.direction > 0

    def intervals(self) -> Iterator[tuple[float, float, int | None]]:
        """Yield from where to where steps go, and the number of the output at the end, if any."""
        stops = list(self._stops)
        for index in range(1, len(self.times)):
            begin, target = self.times[index - 1], self.times[index]
            while stops and self.before(stops[0], target):
                yield begin, stops[0], None
                begin = stops.pop(0)
            yield begin, target, index

    def target(self, t: float, index: int, *, lands_everywhere: bool) -> float:
        """Return where a step has to end at the latest.

        Args:
            t: Where it begins.
            index: The next output.
            lands_everywhere: Whether steps end at outputs; otherwise these may lie inside.
        """
        while self._stops and not self.before(t, self._stops[0]):
            del self._stops[0]
        target = self.times[index] if lands_everywhere else self.end
        return self._stops[0] if self._stops and self.before(self._stops[0], target) else target

    def outputs(self, t: float, index: int, after: float) -> tuple[tuple[int, float | None], ...]:
        """Return the outputs from one on that lie in a step.

        Args:
            t: Where it begins.
            index: The first output after that.
            after: Where it ends.

        Returns:
            Their numbers, each with the fraction of the step at which it lies, None for its end.
        """
        found = []
        for number in range(index, len(self.times)):
            time = self.times[number]
            if (time - after) * self.direction > 0:
                break
            found.append((number, None if time == after else (time - t) / (after - t)))
        return tuple(found)

    def smallest_step(self, t: float) -> float:
        """Return the smallest step that can be told from none.

        That depends on where it is, not on how far there is to go; only at zero itself everything
        can be told apart, and the whole way is what is left to go by.
        """
        whole = min(max(abs(self.start), abs(self.end)), LONG)
        return 16 * 2.3e-16 * max(abs(t), AT_ZERO * whole, NEXT_TO_NOTHING)

    def coincide(self, time: float, other: float) -> bool:
        """Whether two times are the same but for rounding."""
        ends = [abs(end) for end in (self.start, self.end) if math.isfinite(end)]
        return math.isfinite(time) and coincide(time, other, max(ends))
