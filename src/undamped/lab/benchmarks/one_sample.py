"""Streaming inference: how many samples per second pass `step` and a stream.

`step` takes a state and returns the next, and checks its cached values against the parameters. A
stream is a snapshot that checks nothing. A call of a network of torch with a sequence of one step
is the baseline. Everything runs in one thread, and seconds are CPU seconds, which other programs on
the machine change little.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from undamped.lab.benchmarks.timing import (
    TORCH_NETWORKS,
    Shape,
    Timing,
    benchmark,
    build_network,
    interleaved,
    recurrent_networks,
)
from undamped.lab.report.charts import bar_chart
from undamped.lab.report.table import Progress, Report, Table, silent

SHAPE, SAMPLES = Shape(1, 1, 6, 32), 200
QUICK = "unicornn,lstm,exprnn"
BASELINE = "nn.LSTM"
HEADER = ("network", "step", "stream", f"stream, times {BASELINE}")


@benchmark("one-sample")
def run(
    *, networks: str = "", rounds: int = 3, quick: bool = False, progress: Progress = silent
) -> Report:
    """Streaming inference: how many samples per second pass `step` and a stream.

    Args:
        networks: Names separated by commas; all recurrent networks by default.
        rounds: How often each is timed.
        quick: Three networks, briefly.
        progress: Called with a name after every measurement.

    Example:
        >>> result = run(networks="lstm", rounds=1)
    """
    torch.manual_seed(0)
    count = SAMPLES // 10 if quick else SAMPLES
    samples = list(torch.randn(count, SHAPE.inputs))
    candidates: dict[str, Callable[[], None]] = {}
    for name in recurrent_networks(networks or (QUICK if quick else "")):
        network = build_network(name, SHAPE).eval()
        candidates[f"{name} step"] = partial(_step, network, samples)
        candidates[f"{name} stream"] = partial(_stream, network, samples)
    for name in TORCH_NETWORKS:
        candidates[f"{name} call"] = partial(_call, build_network(name, SHAPE), samples)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        timings = interleaved(candidates, rounds=rounds, clock=time.process_time, progress=progress)
    finally:
        torch.set_num_threads(threads)
    rates = {name: count / timing.median for name, timing in timings.items()}
    title = (
        f"Samples per second of CPU, one at a time: {SHAPE.inputs} inputs, {SHAPE.units} units, "
        "one layer, float32, one thread, medians."
    )
    rows = _rows(timings, rates)
    return Report(
        [],
        [Table(HEADER, rows, title)],
        {"one_sample": lambda: _figure([row[0] for row in rows], rates)},
        {"samples_per_second": rates},
        {"samples": count},
    )


def _rows(timings: dict[str, Timing], rates: dict[str, float]) -> list[tuple[str, ...]]:
    """Return a row for each network, fastest first, by its stream where it has one."""
    fastest = {name.rpartition(" ")[0]: timing for name, timing in timings.items()}
    rows = []
    for name in sorted(fastest, key=lambda name: fastest[name].median):
        ratio = f"{timings[f'{BASELINE} call'].over(fastest[name]):.2f}"
        if name in TORCH_NETWORKS:
            rows.append((name, f"{rates[f'{name} call']:,.0f}", "", ratio))
        else:
            both = (f"{rates[f'{name} {way}']:,.0f}" for way in ("step", "stream"))
            rows.append((name, *both, ratio))
    return rows


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


def _figure(names: list[str], rates: dict[str, float]) -> Any:
    bars = {
        way: {n: rates[f"{n} {way}"] for n in names if f"{n} {way}" in rates}
        for way in ("stream", "step", "call")
    }
    return bar_chart(bars, "samples per second of CPU", log=True)
