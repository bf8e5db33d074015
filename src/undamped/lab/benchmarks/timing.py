"""Timing that is robust on a noisy machine, and what benchmarks share around it.

Candidates are run in turn, round after round, so that a busy minute slows all of them alike; each
is summarised by its median. Ratios are the numbers to quote.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.memory import peak_memory
from undamped._base.registry import benchmarks, models
from undamped.lab.report.table import Progress, Table, reports, silent
from undamped.nn.recurrent import Recurrent

__all__ = ["Timing", "cpu_clock", "interleaved", "peak_memory", "recurrent_networks", "train_step"]

TORCH_NETWORKS = {"nn.RNN": nn.RNN, "nn.LSTM": nn.LSTM, "nn.GRU": nn.GRU}
Candidates = Mapping[str, Callable[[], Any]]
benchmark = partial(reports, benchmarks)
"""Return a decorator that registers a benchmark."""


@dataclass(frozen=True)
class Shape:
    """The size of a pass through a recurrent network."""

    steps: int
    batch: int
    inputs: int
    units: int

    def __str__(self) -> str:
        return f"{self.steps} steps, batch {self.batch}, {self.inputs} input, {self.units} units"


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

    def over(self, baseline: Timing) -> float:
        """Return the ratio of durations to those of another candidate: the median over rounds.

        Both are from one `interleaved` run, whose rounds are short: what slows the machine for
        longer than a round slows both, and hardly changes their ratio.
        """
        pairs = zip(self.seconds, baseline.seconds, strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)

    def to_dict(self) -> dict[str, float]:
        """Return median and spread for JSON."""
        low, high = self.spread
        return {"median_seconds": self.median, "low_seconds": low, "high_seconds": high}


def cpu_clock() -> Callable[[], float]:
    """Return the clock that other programs disturb least.

    Where torch has one thread, it counts the CPU seconds of this process alone.
    """
    return time.process_time if torch.get_num_threads() == 1 else time.perf_counter


def interleaved(
    candidates: Candidates,
    *,
    rounds: int = 7,
    warmup: int = 1,
    clock: Callable[[], float] = time.perf_counter,
    progress: Progress = silent,
) -> dict[str, Timing]:
    """Time each candidate once a round, in turn, and every other round in reverse.

    A candidate that always followed the same other one would always start with its caches.

    Args:
        candidates: Names and functions without arguments.
        rounds: How often each is timed.
        warmup: How often each runs before that, untimed.
        clock: Returns the seconds: `time.process_time` counts those of this process alone, for
            candidates of one thread.
        progress: Called with the name of the candidate after every single run.
    """
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(warmup + rounds):
        order = list(candidates.items())
        for name, run in order if number % 2 == 0 else reversed(order):
            start = clock()
            run()
            elapsed = clock() - start
            if number >= warmup:
                seconds[name].append(elapsed)
            progress(name)
    return {name: Timing(tuple(values)) for name, values in seconds.items()}


def timing_table(
    timings: Mapping[str, Timing],
    baseline: str,
    title: str,
    *notes: str,
    header: Sequence[str] = ("step", "ms", "as a multiple"),
    digits: int = 2,
) -> Table:
    """Return names, milliseconds, and multiples of a baseline.

    Args:
        timings: By candidate.
        baseline: The candidate that others are compared with.
        title: What was timed.
        notes: Sentences below the table.
        header: Headings of the three columns.
        digits: Decimal places.
    """
    rows = [
        (name, f"{1000 * t.median:.{digits}f}", f"{t.over(timings[baseline]):.{digits}f}")
        for name, t in timings.items()
    ]
    return Table(header, rows, title, notes)


def milliseconds(timings: Mapping[str, Timing]) -> dict[str, float]:
    """Return the median of each candidate in milliseconds."""
    return {name: 1000 * timing.median for name, timing in timings.items()}


def recurrent_networks(names: str = "") -> list[str]:
    """Return the recurrent networks that a benchmark measures; by default all of the registry.

    Args:
        names: Names separated by commas.
    """
    selected = [name.strip() for name in names.split(",") if name.strip()]
    for name in selected:
        models[name]  # raises for an unknown name
    return selected or [
        name
        for name in models
        if isinstance(models[name], type) and issubclass(models[name], Recurrent)
    ]


def build_network(name: str, shape: Shape, **options: Any) -> Any:
    """Return a recurrent network of torch or of the registry, with weights of seed 0.

    Args:
        name: "nn.RNN", "nn.LSTM", "nn.GRU" or a registry name.
        shape: Its size.
        options: Further options of a network of the registry.
    """
    torch.manual_seed(0)
    if name in TORCH_NETWORKS:
        return TORCH_NETWORKS[name](shape.inputs, shape.units)
    return models.build(name, input_size=shape.inputs, hidden_size=shape.units, **options)


def train_step(network: nn.Module, x: Tensor) -> None:
    """Run a forward and backward pass of the sum of all outputs."""
    network(x)[0].sum().backward()
