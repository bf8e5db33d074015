"""Explanations by deletion: which segment of a recording changes the answer when it is replaced.

A segment is replaced by the mean of the recording. This works for every model, and it is also the
check of every explanation: replacing the deciding segment must change the answer, and replacing
other segments of the same length must not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

Evaluate = Callable[[list[np.ndarray]], np.ndarray]
"""Returns the explained value (copies,) of copies of a recording, each (time, channels)."""
_FRACTIONS = (8, 16)  # windows are 1/8 and 1/16 of a recording long
_LEAST_EFFECT = 0.5  # of the largest one; steps with more belong to the deciding segment
_MOST_OTHERS = 8  # further segments of a check


class Segment(NamedTuple):
    """The deciding segment of a recording, and the check of it.

    Args:
        first: Its first step.
        last: Its last step.
        change: How much the explained value falls when the segment is replaced.
        others: The same for other segments of this length, which do not overlap with it.
    """

    first: int
    last: int
    change: float
    others: tuple[float, ...]

    @property
    def decides(self) -> bool:
        """Whether replacing it changes the value more than twice as much as any other."""
        return abs(self.change) > 2 * max(map(abs, self.others), default=0.0)


def delete(series: np.ndarray, first: int, stop: int) -> np.ndarray:
    """Return a recording (time, channels) whose steps `first` to `stop` are its mean."""
    values = np.array(series, dtype=np.float64)
    measured = ~np.isnan(values)
    mean = np.where(measured, values, 0).sum(0) / np.maximum(measured.sum(0), 1)
    values[first:stop] = np.where(measured.any(0), mean, np.nan)
    return values.astype(series.dtype)


def deletion_effects(series: np.ndarray, evaluate: Evaluate) -> np.ndarray:
    """Return how much the explained value falls when the surroundings of a step go, (time,).

    Windows of two lengths are deleted, one after the other. The effect on a step is the mean over
    the windows that contain it, and both lengths count equally.

    Args:
        series: (time, channels).
        evaluate: Returns the explained value of copies of the recording.
    """
    steps = len(series)
    lengths = sorted({max(1, steps // fraction) for fraction in _FRACTIONS})
    windows = [
        (start, start + length)
        for length in lengths
        for start in sorted({*range(0, steps - length, max(1, length // 4)), steps - length})
    ]
    values = evaluate([series, *(delete(series, *window) for window in windows)])
    total = np.zeros(steps)
    for length in lengths:
        effect, count = np.zeros(steps), np.zeros(steps)
        for (start, stop), value in zip(windows, values[1:], strict=True):
            if stop - start == length:
                effect[start:stop] += values[0] - value
                count[start:stop] += 1
        total += effect / np.maximum(count, 1)
    return total / len(lengths)


def deciding_segment(series: np.ndarray, effects: np.ndarray, evaluate: Evaluate) -> Segment:
    """Return the segment of the largest effects, and what its deletion changes.

    Args:
        series: (time, channels).
        effects: (time,) the effects of `deletion_effects`.
        evaluate: Returns the explained value of copies of the recording.
    """
    least = max(1, len(series) // _FRACTIONS[-1])
    means = np.convolve(effects, np.full(least, 1 / least), "valid")
    first = int(means.argmax())
    last = first + least - 1
    inside = effects >= _LEAST_EFFECT * means[first]
    while first > 0 and inside[first - 1]:
        first -= 1
    while last < len(effects) - 1 and inside[last + 1]:
        last += 1
    length = last + 1 - first
    starts = [
        *range(first - length, -1, -length),
        *range(last + 1, len(series) - length + 1, length),
    ]
    others = [starts[i] for i in _spread(len(starts), _MOST_OTHERS)]
    copies = [delete(series, start, start + length) for start in (first, *others)]
    values = evaluate([series, *copies])
    change, *rest = (values[0] - values[1:]).tolist()
    return Segment(first, last, change, tuple(rest))


def _spread(count: int, most: int) -> Sequence[int]:
    """Return at most `most` evenly spread indices below `count`."""
    return range(0, count, -(-count // most)) if count else []
