"""Small networks on a busy machine: how much a pass is slowed by other programs on its cores.

Every pass is timed while nothing else of this benchmark runs, and again next to one busy process
per core. A loop of plain Python, which has one thread, shows the slowdown of fair scheduling; a
pass whose threads wait for each other is slowed many times as much. Run it on an otherwise idle
machine.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from undamped.lab.benchmarks.timing import (
    TORCH_NETWORKS,
    Candidates,
    Shape,
    benchmark,
    build_network,
    recurrent_networks,
)
from undamped.lab.report.charts import bar_chart
from undamped.lab.report.table import Progress, Report, Table, silent

LOOP = "a loop of plain Python"
LIMIT = 1.5
"""Largest slowdown of a network, as a multiple of that of the loop."""
SHAPE = Shape(100, 8, 6, 32)
SECONDS = 0.4
QUICK = "unicornn,indrnn,rnn,lstm,exprnn"
HEADER = ("candidate", "alone, ms", "busy, ms", "slowdown", "times the loop's", "target")
BUSY_PROGRAM = "import os\nhome = os.getppid()\nwhile os.getppid() == home:\n    sum(range(10**5))"
"""A program that ends when its parent process has ended."""


@dataclass(frozen=True)
class Slowdown:
    """One candidate.

    Args:
        name: Its name.
        idle: Seconds of a pass on the idle machine, the median of all rounds' means.
        busy: The same next to other processes.
        slowdown: Busy over idle, the median of all rounds.
    """

    name: str
    idle: float
    busy: float
    slowdown: float

    @classmethod
    def of(cls, name: str, measured: Sequence[tuple[float, float]]) -> Slowdown:
        """Return the medians of pairs of idle and busy seconds."""
        idle, busy = (statistics.median(column) for column in zip(*measured, strict=True))
        return cls(name, idle, busy, statistics.median(busy / idle for idle, busy in measured))

    def row(self, loop: float) -> tuple[str, ...]:
        """Return the row of the table, given the slowdown of the loop."""
        ratio = self.slowdown / loop
        target = ""
        if self.name not in (LOOP, *TORCH_NETWORKS):
            target = "met" if ratio <= LIMIT else f"above {LIMIT:g}"
        numbers = (f"{1000 * self.idle:.2f}", f"{1000 * self.busy:.2f}", f"{self.slowdown:.2f}")
        return (self.name, *numbers, f"{ratio:.2f}", target)


@benchmark("busy")
def run(
    *, networks: str = "", rounds: int = 3, quick: bool = False, progress: Progress = silent
) -> Report:
    """Small networks next to one busy process per core: the slow-down of a pass.

    Args:
        networks: Names separated by commas; all recurrent networks by default.
        rounds: How often everything is measured.
        quick: Five networks, briefly.
        progress: Called with a name after every measurement.

    Example:
        >>> result = run(networks="lstm", rounds=1)
    """
    candidates = _candidates(recurrent_networks(networks or (QUICK if quick else "")))
    for work in candidates.values():  # compiles the kernels
        work()
    processes, seconds = os.cpu_count() or 1, SECONDS / 8 if quick else SECONDS
    pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in candidates}
    for _ in range(rounds):
        idle = _measure(candidates, seconds, progress)
        with _busy_processes(processes):
            busy = _measure(candidates, seconds, progress)
        for name in candidates:
            pairs[name].append((idle[name], busy[name]))
    records = [Slowdown.of(name, measured) for name, measured in pairs.items()]
    loop, threads = records[0].slowdown, torch.get_num_threads()
    title = (
        f"Forward and backward pass, {SHAPE.steps} steps, batch {SHAPE.batch}, "
        f"{SHAPE.units} units, {threads} threads, next to {processes} busy processes."
    )
    bars = {"": {record.name: record.slowdown for record in records}}
    limits = {f"{LIMIT:g} times {LOOP}": LIMIT * loop}
    unit = "times as long on a busy machine"
    return Report(
        records,
        [Table(HEADER, [record.row(loop) for record in records], title)],
        {"busy": lambda: bar_chart(bars, unit, log=True, limits=limits)},
        settings={"processes": processes},
    )


def _candidates(names: Sequence[str]) -> dict[str, Callable[[], Any]]:
    torch.manual_seed(0)
    x = torch.randn(SHAPE.steps, SHAPE.batch, SHAPE.inputs)
    networks = {name: build_network(name, SHAPE) for name in (*names, *TORCH_NETWORKS)}
    passes = {n: partial(_train, net, x, _last_gradient(net, x)) for n, net in networks.items()}
    return {LOOP: _python_loop, **passes}


def _python_loop() -> int:
    total = 0
    for i in range(40_000):
        total += i * i
    return total


def _last_gradient(network: nn.Module, x: Tensor) -> Tensor:
    """Return the gradient of the sum of the last outputs.

    Computed once: `output[-1].sum().backward()` fills it with zeros in the backward pass, for which
    torch starts its threads where outputs are wide. That time is not the network's.
    """
    gradient = torch.zeros_like(network(x)[0])
    gradient[-1] = 1
    return gradient


def _train(network: nn.Module, x: Tensor, gradient: Tensor) -> None:
    network(x)[0].backward(gradient)


def _measure(candidates: Candidates, seconds: float, progress: Progress) -> dict[str, float]:
    """Return the mean time of each candidate, measured for some seconds."""
    means = {}
    for name, work in candidates.items():
        start, count = time.perf_counter(), 0
        while count < 3 or time.perf_counter() - start < seconds:
            work()
            count += 1
        means[name] = (time.perf_counter() - start) / count
        progress(name)
    return means


@contextmanager
def _busy_processes(count: int) -> Iterator[None]:
    """Keep a number of processes busy."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY_PROGRAM]) for _ in range(count)]
    time.sleep(0.5)  # until they have started
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
