"""Small networks on a busy machine: how much a pass loses to other programs on the same cores.

Every pass is timed while nothing else of this benchmark runs, and again beside one process per core
that never stops counting. A loop of plain Python, which has one thread, says what a fair share is;
a pass whose threads wait for each other loses many times that. Run it on a machine that is idle
otherwise.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.registry import benchmarks, models
from undamped.lab.benchmarks.candidates import recurrent_networks
from undamped.lab.benchmarks.tables import markdown_table, terminal_table

LOOP = "a loop of plain Python"
WANTED = 1.5
"""How many times the slowdown of the loop a network's may be."""
STEPS, BATCH, INPUTS, UNITS = 100, 8, 6, 32
SECONDS = 0.4
FEW = "unicornn,indrnn,rnn,lstm,exprnn"
TORCH = {"nn.RNN": nn.RNN, "nn.LSTM": nn.LSTM, "nn.GRU": nn.GRU}
HEADER = ("candidate", "alone, ms", "busy, ms", "slowdown", "times the loop's", "wanted")
COUNTER = "import os\nhome = os.getppid()\nwhile os.getppid() == home:\n    sum(range(10**5))"
"""A program that ends when whoever started it is gone."""


@dataclass(frozen=True)
class Pass:
    """One candidate.

    Args:
        name: Its name.
        alone: Seconds of a pass, the median of all rounds' means.
        busy: The same beside other processes.
        slowdown: Busy over alone, the median of all rounds.
    """

    name: str
    alone: float
    busy: float
    slowdown: float


@dataclass(frozen=True)
class BusyBenchmark:
    """All candidates.

    Args:
        threads: How many threads torch has.
        processes: How many processes there were beside it.
        passes: One for each candidate, the loop first.
    """

    threads: int
    processes: int
    passes: tuple[Pass, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return asdict(self)

    def rows(self) -> list[tuple[str, ...]]:
        """Return the lines of a table."""
        fair, lines = self.passes[0].slowdown, []
        for one in self.passes:
            times = one.slowdown / fair
            wanted = ""
            if one.name not in (LOOP, *TORCH):
                wanted = "met" if times <= WANTED else f"above {WANTED:g}"
            numbers = (f"{1000 * one.alone:.2f}", f"{1000 * one.busy:.2f}", f"{one.slowdown:.2f}")
            lines.append((one.name, *numbers, f"{times:.2f}", wanted))
        return lines

    @property
    def title(self) -> str:
        """What was measured."""
        return (
            f"Forward and backward pass, {STEPS} steps, batch {BATCH}, {UNITS} units, "
            f"{self.threads} threads, beside {self.processes} processes that never stop."
        )

    def markdown(self) -> str:
        """Return the table for a document."""
        return f"{self.title}\n\n{markdown_table(HEADER, self.rows())}"

    def summary(self) -> Any:
        """Return a table for the terminal."""
        return terminal_table(HEADER, self.rows(), self.title)

    def figures(self) -> dict[str, Any]:
        """Return a picture: the slowdown of each candidate, and what is wanted."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 0.8 + 0.22 * len(self.passes)), layout="constrained")
        axis, places = figure.subplots(), range(len(self.passes))
        axis.barh(places, [one.slowdown for one in self.passes], color="#0072b2")
        axis.set_yticks(list(places), [one.name for one in self.passes], fontsize=7)
        limit = WANTED * self.passes[0].slowdown
        axis.axvline(limit, color="#bbbbbb", label=f"{WANTED:g} times a loop of plain Python")
        axis.set_xscale("log")
        axis.set_xlabel("times as long on a busy machine")
        axis.legend(fontsize=8)
        return {"busy": figure}


@benchmarks.register("busy")
def run(
    *,
    networks: str = "",
    rounds: int = 3,
    quick: bool = False,
    tick: Callable[[str], None] | None = None,
) -> BusyBenchmark:
    """Small networks beside one process per core that never stops: how much a pass loses.

    Args:
        networks: Names with commas between them; all recurrent networks by default.
        rounds: How often everything is measured.
        quick: Five networks, briefly.
        tick: Called with a name after every measurement, for a progress bar.

    Example:
        >>> result = run(networks="lstm", rounds=1)
    """
    candidates = _candidates(recurrent_networks(networks or (FEW if quick else "")))
    for work in candidates.values():  # compiles what has to be
        work()
    processes, seconds = os.cpu_count() or 1, SECONDS / 8 if quick else SECONDS
    rows: dict[str, list[tuple[float, float]]] = {name: [] for name in candidates}
    for _ in range(rounds):
        quiet = _measure(candidates, seconds, tick)
        with _counting(processes):
            busy = _measure(candidates, seconds, tick)
        for name in candidates:
            rows[name].append((quiet[name], busy[name]))
    passes = [_summed_up(name, measured) for name, measured in rows.items()]
    return BusyBenchmark(torch.get_num_threads(), processes, tuple(passes))


def _summed_up(name: str, measured: list[tuple[float, float]]) -> Pass:
    alone, busy = (statistics.median(one) for one in zip(*measured, strict=True))
    return Pass(name, alone, busy, statistics.median(two / one for one, two in measured))


def _candidates(names: Any) -> dict[str, Callable[[], Any]]:
    torch.manual_seed(0)
    x = torch.randn(STEPS, BATCH, INPUTS)
    networks = {n: models.build(n, input_size=INPUTS, hidden_size=UNITS) for n in names}
    networks |= {name: kind(INPUTS, UNITS) for name, kind in TORCH.items()}
    trained = {name: partial(_train, one, x, _of_last(one, x)) for name, one in networks.items()}
    return {LOOP: _count} | trained


def _count() -> int:
    total = 0
    for i in range(40_000):
        total += i * i
    return total


def _of_last(network: nn.Module, x: Tensor) -> Tensor:
    """Return the gradient of the sum of the last outputs.

    Made once: `output[-1].sum().backward()` fills it with zeros on the way back, for which torch
    wakes its threads where outputs are wide. That is no time of the network.
    """
    gradient = torch.zeros_like(network(x)[0])
    gradient[-1] = 1
    return gradient


def _train(network: nn.Module, x: Tensor, gradient: Tensor) -> None:
    network(x)[0].backward(gradient)


def _measure(
    candidates: Mapping[str, Callable[[], Any]],
    seconds: float,
    tick: Callable[[str], None] | None,
) -> dict[str, float]:
    """Return the mean time of each candidate, measured for some seconds."""
    found = {}
    for name, work in candidates.items():
        start, count = time.perf_counter(), 0
        while count < 3 or time.perf_counter() - start < seconds:
            work()
            count += 1
        found[name] = (time.perf_counter() - start) / count
        if tick is not None:
            tick(name)
    return found


@contextmanager
def _counting(processes: int) -> Iterator[None]:
    """Keep so many processes counting."""
    started = [subprocess.Popen([sys.executable, "-c", COUNTER]) for _ in range(processes)]
    time.sleep(0.5)  # until they count
    try:
        yield
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()
