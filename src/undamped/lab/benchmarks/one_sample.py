"""One sample at a time: how many a second go through `step` and through a stream.

`step` takes a state and returns the next, and compares what it remembers with the parameters, so
that no answer is stale. A stream is a snapshot that compares nothing. A call of torch's own
networks with a sequence of one step stands beside them. Everything runs in one thread and seconds
are those of the CPU, which other programs on the machine change little.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.registry import benchmarks, models
from undamped.lab.benchmarks.candidates import recurrent_networks
from undamped.lab.benchmarks.tables import markdown_table, terminal_table
from undamped.lab.benchmarks.timing import Timing, interleaved

INPUTS, UNITS, SAMPLES = 6, 32, 200
FEW = "unicornn,lstm,exprnn"
TORCH = {"nn.RNN": nn.RNN, "nn.LSTM": nn.LSTM, "nn.GRU": nn.GRU}
BESIDE = "nn.LSTM"
HEADER = ("network", "step", "stream", f"stream, times {BESIDE}")


@dataclass(frozen=True)
class OneSampleBenchmark:
    """All networks.

    Args:
        samples: How many samples a round has.
        timings: Seconds of a round, by network and way: step, stream or call.
    """

    samples: int
    timings: dict[tuple[str, str], Timing]

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        rates = {f"{name} {way}": self.rate(name, way) for name, way in self.timings}
        return {"samples": self.samples, "samples_per_second": rates}

    def rate(self, name: str, way: str) -> float:
        """Return the samples a second."""
        return self.samples / self.timings[name, way].median

    def rows(self) -> list[tuple[str, ...]]:
        """Return the lines of a table, fastest first."""
        lstm = self.timings[BESIDE, "call"]
        last = dict(self.timings.keys())  # the stream where there is one
        names = sorted(last, key=lambda name: self.timings[name, last[name]].median)
        rows = []
        for name in names:
            times = f"{lstm.over(self.timings[name, last[name]]):.2f}"
            step = "call" if name in TORCH else "step"
            stream = "" if name in TORCH else f"{self.rate(name, 'stream'):,.0f}"
            rows.append((name, f"{self.rate(name, step):,.0f}", stream, times))
        return rows

    @property
    def title(self) -> str:
        """What was measured."""
        return (
            f"Samples a second of CPU, one at a time: {INPUTS} inputs, {UNITS} units, one layer, "
            "float32, one thread, medians."
        )

    def markdown(self) -> str:
        """Return the table for a document."""
        return f"{self.title}\n\n{markdown_table(HEADER, self.rows())}"

    def summary(self) -> Any:
        """Return a table for the terminal."""
        return terminal_table(HEADER, self.rows(), self.title)

    def figures(self) -> dict[str, Any]:
        """Return a picture: both ways, fastest first."""
        from matplotlib.figure import Figure

        names = [row[0] for row in self.rows()]
        figure = Figure(figsize=(7, 0.8 + 0.22 * len(names)), layout="constrained")
        axis = figure.subplots()
        for way, colour in (("stream", "#0072b2"), ("step", "#bbbbbb"), ("call", "#d55e00")):
            own = [place for place, name in enumerate(names) if (name, way) in self.timings]
            axis.barh(own, [self.rate(names[at], way) for at in own], color=colour, label=way)
        axis.set_yticks(range(len(names)), names, fontsize=7)
        axis.set_xscale("log")
        axis.set_xlabel("samples a second of CPU")
        axis.legend(fontsize=8)
        return {"one_sample": figure}


@benchmarks.register("one-sample")
def run(
    *,
    networks: str = "",
    rounds: int = 3,
    quick: bool = False,
    tick: Callable[[str], None] | None = None,
) -> OneSampleBenchmark:
    """One sample at a time: how many a second go through `step` and through a stream.

    Args:
        networks: Names with commas between them; all recurrent networks by default.
        rounds: How often each is timed.
        quick: Three networks, briefly.
        tick: Called with a name after every measurement, for a progress bar.

    Example:
        >>> result = run(networks="lstm", rounds=1)
    """
    torch.manual_seed(0)
    count = SAMPLES // 10 if quick else SAMPLES
    samples = list(torch.randn(count, INPUTS))
    candidates: dict[tuple[str, str], Callable[[], None]] = {}
    for name in recurrent_networks(networks or (FEW if quick else "")):
        network = models.build(name, input_size=INPUTS, hidden_size=UNITS).eval()
        candidates[name, "step"] = partial(_step, network, samples)
        candidates[name, "stream"] = partial(_stream, network, samples)
    for name, kind in TORCH.items():
        candidates[name, "call"] = partial(_call, kind(INPUTS, UNITS), samples)
    keyed = {" ".join(key): run for key, run in candidates.items()}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        timed = interleaved(keyed, rounds=rounds, clock=time.process_time, tick=tick)
    finally:
        torch.set_num_threads(threads)
    return OneSampleBenchmark(count, {key: timed[" ".join(key)] for key in candidates})


@torch.no_grad()
def _step(network: Any, samples: list[Tensor]) -> None:
    state = None
    for sample in samples:
        _, state = network.step(sample, state)


def _stream(network: Any, samples: list[Tensor]) -> None:
    stream = network.stream()
    for sample in samples:
        stream.push(sample)


@torch.no_grad()
def _call(network: nn.Module, samples: list[Tensor]) -> None:
    state = None
    for sample in samples:
        _, state = network(sample.unsqueeze(0), state)
