"""Timing that a noisy machine cannot fool much, and memory measured in a process of its own.

Candidates are run in turn, round after round, so that a busy minute slows all of them alike;
each is summed up by its median. Ratios of medians are what to quote.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from undamped.memory import memory_use, reset_peak_memory


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

    def to_dict(self) -> dict[str, float]:
        """Return median and spread for JSON."""
        low, high = self.spread
        return {"median_seconds": self.median, "low_seconds": low, "high_seconds": high}


def interleaved(
    candidates: Mapping[str, Callable[[], Any]],
    *,
    rounds: int = 7,
    warmup: int = 1,
    tick: Callable[[str], None] | None = None,
) -> dict[str, Timing]:
    """Time each candidate once a round, in turn.

    Args:
        candidates: Names and functions without arguments.
        rounds: How often each is timed.
        warmup: How often each runs before that, untimed.
        tick: Called with the candidate's name after every single run, for a progress bar.
    """
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(warmup + rounds):
        for name, run in candidates.items():
            start = time.perf_counter()
            run()
            elapsed = time.perf_counter() - start
            if turn >= warmup:
                seconds[name].append(elapsed)
            if tick is not None:
                tick(name)
    return {name: Timing(tuple(values)) for name, values in seconds.items()}


def peak_memory(function: Callable[..., Any], *arguments: Any) -> int:
    """Return by how many bytes `function` raised the peak memory of a fresh process.

    `function` must be importable (module level): it runs in a spawned process. Whatever it
    needs loaded beforehand (libraries, compiled kernels, its input) it may return from a first
    call with no measuring: a function that returns a callable is measured in that callable.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(sender, function, arguments))
    process.start()
    sender.close()
    try:
        result = receiver.recv()
    except EOFError:
        process.join()
        raise RuntimeError(
            f"{function.__name__}: the measuring process ended with code {process.exitcode}"
        ) from None
    process.join()
    if isinstance(result, Exception):
        raise result
    return result


def _measure(sender: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        work = function(*arguments)
        before, _ = memory_use()
        reset_peak_memory()
        if callable(work):
            work()
        _, peak = memory_use()
        sender.send(max(0, peak - before))
    except Exception as error:
        sender.send(error)
    finally:
        sender.close()
