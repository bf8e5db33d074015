"""Timing that a noisy machine cannot fool much, and `peak_memory` beside it.

Candidates are run in turn, round after round, so that a busy minute slows all of them alike;
each is summed up by its median. Ratios are what to quote.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from undamped._base.memory import peak_memory

__all__ = ["Timing", "interleaved", "own_clock", "peak_memory"]


@dataclass(frozen=True)
class Timing:
    """Seconds of one candidate over all rounds."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The number to quote."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> tuple[float, float]:
        """The fastest and the slowest round."""
        return min(self.seconds), max(self.seconds)

    def over(self, other: Timing) -> float:
        """Return how many times as long as another this takes: the median over rounds.

        Both are of one `interleaved` run, whose rounds are short: what slows the machine for
        longer than that slows both, and their ratio hardly notices.
        """
        pairs = zip(self.seconds, other.seconds, strict=True)
        return statistics.median(mine / its for mine, its in pairs)

    def to_dict(self) -> dict[str, float]:
        """Return median and spread for JSON."""
        low, high = self.spread
        return {"median_seconds": self.median, "low_seconds": low, "high_seconds": high}


def own_clock() -> Callable[[], float]:
    """Return the clock that other programs disturb least.

    Where torch has one thread, seconds are those of this process alone.
    """
    import torch

    return time.process_time if torch.get_num_threads() == 1 else time.perf_counter


def interleaved(
    candidates: Mapping[str, Callable[[], Any]],
    *,
    rounds: int = 7,
    warmup: int = 1,
    clock: Callable[[], float] = time.perf_counter,
    tick: Callable[[str], None] | None = None,
) -> dict[str, Timing]:
    """Time each candidate once a round, in turn, and every other round in reverse.

    A candidate that always followed the same one would always find the caches as that left them.

    Args:
        candidates: Names and functions without arguments.
        rounds: How often each is timed.
        warmup: How often each runs before that, untimed.
        clock: Tells the seconds: `time.process_time` counts those of this process alone, for
            candidates of one thread.
        tick: Called with the candidate's name after every single run, for a progress bar.
    """
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(warmup + rounds):
        order = list(candidates.items())
        for name, run in order if turn % 2 == 0 else reversed(order):
            start = clock()
            run()
            elapsed = clock() - start
            if turn >= warmup:
                seconds[name].append(elapsed)
            if tick is not None:
                tick(name)
    return {name: Timing(tuple(values)) for name, values in seconds.items()}
