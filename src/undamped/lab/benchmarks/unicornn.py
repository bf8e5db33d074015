"""UnICORNN beside what a user would otherwise pick: speed, memory against length, streaming.

Everything is measured in one run, candidates in turn, and quoted as ratios. The floor is what
the arithmetic alone costs: the matrix products that no pass can do without (forward, gradient of
the weights, gradient of the input) and the scans, on the same chunks, with nothing around them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.registry import benchmarks, models
from undamped.lab.benchmarks.timing import Timing, interleaved, peak_memory
from undamped.nn.bases.cell import reference_scan
from undamped.nn.oscillators import OscillatorNetwork

MODES = ("reversible", "checkpoint", "stored")
SLOW = ("plain loop", "torchrecurrent")
SLOW_ROUNDS = 2


@dataclass(frozen=True)
class Shape:
    """One line of the table."""

    steps: int
    batch: int
    inputs: int
    units: int
    layers: int

    def __str__(self) -> str:
        return f"{self.steps}, {self.batch}, {self.inputs}, {self.units}, {self.layers}"


SHAPES = (Shape(1000, 128, 1, 128, 2), Shape(17984, 8, 6, 32, 2), Shape(4000, 32, 2, 128, 3))
QUICK_SHAPES = (Shape(200, 16, 1, 32, 2), Shape(1000, 4, 6, 16, 2))
# What a release must reach: name of the candidate and how many times slower it has to be.
TARGETS = {
    SHAPES[0]: {"nn.LSTM, 1 layer": 4.0, "nn.LSTM": 9.0, "torchrecurrent": 6.0},
    SHAPES[1]: {"nn.LSTM": 8.0, "torchrecurrent": 120.0},
    SHAPES[2]: {"nn.LSTM": 10.0, "torchrecurrent": 12.0},
}
FLOOR_TARGET = 1.5
MEMORY_LENGTHS = (1024, 4096, 16384, 65536)
MEMORY_BATCH, MEMORY_INPUTS, MEMORY_UNITS, MEMORY_LAYERS = 8, 6, 128, 3
STREAM_STEPS = 20_000


@dataclass(frozen=True)
class UnicornnBenchmark:
    """All measurements of one run."""

    threads: int
    timings: dict[Shape, dict[str, Timing]]
    memory: dict[str, dict[int, int]]
    streaming: dict[str, float]
    device: str = "cpu"

    def targets(self, shape: Shape) -> dict[str, float]:
        """Return what a release must reach, which is known of the CPU alone."""
        return TARGETS.get(shape, {}) if self.device == "cpu" else {}

    def ratio(self, shape: Shape, name: str) -> float:
        """Return how many times longer a candidate takes than ours in reversible mode."""
        found = self.timings[shape]
        return found[name].median / found["reversible"].median

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            "device": self.device,
            "threads": self.threads,
            "shapes": [
                {
                    "shape": vars(shape),
                    "timings": {name: t.to_dict() for name, t in found.items()},
                    "ratios": {name: self.ratio(shape, name) for name in found},
                    "targets": self.targets(shape),
                }
                for shape, found in self.timings.items()
            ],
            "peak_memory_bytes": self.memory,
            "input_bytes": {
                steps: 4 * steps * MEMORY_BATCH * MEMORY_INPUTS
                for steps in next(iter(self.memory.values()), {})
            },
            "streaming_steps_per_second": self.streaming,
        }

    def _rows(self, shape: Shape) -> list[tuple[str, str, str, str]]:
        rows = []
        for name, timing in self.timings[shape].items():
            target = self.targets(shape).get(name)
            wanted = "" if target is None else f"≥ {target:g}"
            ratio = f"{self.ratio(shape, name):.2f}"
            if name == "floor":
                ratio, wanted = f"1/{1 / self.ratio(shape, name):.2f}", f"≥ 1/{FLOOR_TARGET:g}"
            rows.append((name, f"{timing.median:.3f}", ratio, wanted))
        return rows

    def summary(self) -> Any:
        """Return tables for the terminal."""
        from rich.console import Group
        from rich.table import Table

        tables = []
        for shape in self.timings:
            table = Table(title=f"steps, batch, inputs, units, layers = {shape}")
            for heading in ("candidate", "seconds", "times ours", "target"):
                table.add_column(heading, justify="left" if heading == "candidate" else "right")
            for row in self._rows(shape):
                table.add_row(*row)
            tables.append(table)
        table = Table(title="peak memory above the input, MB, last-state readout")
        lengths = list(next(iter(self.memory.values()), {}))
        for heading in ("candidate", *map(str, lengths)):
            table.add_column(heading, justify="right")
        for name, found in self.memory.items():
            table.add_row(name, *(f"{found[steps] / 1e6:.1f}" for steps in lengths))
        tables.append(table)
        if not self.streaming:
            return Group(*tables)
        table = Table(title="one sample at a time, 2 layers of 32")
        table.add_column("candidate")
        table.add_column("steps per second", justify="right")
        for name, rate in self.streaming.items():
            table.add_row(name, f"{rate:,.0f}")
        return Group(*tables, table)

    def markdown(self) -> str:
        """Return the tables for docs/performance.md."""
        where = f"{self.threads} threads" if self.device == "cpu" else self.device
        lines = [f"Forward and backward pass, float32, {where}, medians.", ""]
        lines += [
            "| steps, batch, inputs, units, layers | candidate | seconds | times ours | target |"
        ]
        lines += ["|---|---|---:|---:|---:|"]
        for shape in self.timings:
            lines += [f"| {shape} | {' | '.join(row)} |" for row in self._rows(shape)]
        lengths = list(next(iter(self.memory.values()), {}))
        lines += ["", "| peak memory above the input, MB | " + " | ".join(map(str, lengths)) + " |"]
        lines += ["|---|" + "---:|" * len(lengths)]
        for name, found in self.memory.items():
            numbers = " | ".join(f"{found[steps] / 1e6:.1f}" for steps in lengths)
            lines += [f"| {name} | {numbers} |"]
        if self.streaming:
            lines += ["", "| one sample at a time | steps per second |", "|---|---:|"]
        lines += [f"| {name} | {rate:,.0f} |" for name, rate in self.streaming.items()]
        return "\n".join(lines) + "\n"

    def figures(self) -> dict[str, Any]:
        """Return a picture for speed, memory and streaming."""
        from undamped.lab.benchmarks.unicornn_figures import (
            memory_figure,
            speed_figure,
            streaming_figure,
        )

        drawn = {"speed": speed_figure(self), "memory": memory_figure(self)}
        return {**drawn, "streaming": streaming_figure(self)} if self.streaming else drawn


@benchmarks.register("unicornn")
def run(
    *,
    rounds: int = 7,
    quick: bool = False,
    device: str = "cpu",
    tick: Callable[[str], None] | None = None,
) -> UnicornnBenchmark:
    """UnICORNN beside what a user would otherwise pick: speed, memory against length, streams.

    Args:
        rounds: How often each candidate is timed; the slow ones fewer times.
        quick: Small shapes and lengths, to see that everything runs.
        device: Where: cpu, or cuda for a GPU, without the floor and the streams.
        tick: Called with a name after every measurement, for a progress bar.

    Example:
        >>> result = run(quick=True)
    """
    timings = {}
    shapes = QUICK_SHAPES if quick else SHAPES
    lengths = (256, 1024) if quick else MEMORY_LENGTHS
    if device != "cpu":
        from undamped.lab.benchmarks.unicornn_gpu import run_on_gpu

        return run_on_gpu(device, shapes, lengths, rounds, tick)
    for shape in shapes:
        timings[shape] = _time_shape(shape, rounds, tick)
    memory: dict[str, dict[int, int]] = {}
    for name in (*MODES, "nn.LSTM"):
        memory[name] = {}
        for steps in lengths:
            memory[name][steps] = peak_memory(_memory_work, name, steps)
            if tick is not None:
                tick(f"memory {name}")
    streaming = _time_streams(1000 if quick else STREAM_STEPS)
    return UnicornnBenchmark(torch.get_num_threads(), timings, memory, streaming)


def _time_shape(shape: Shape, rounds: int, tick: Callable[[str], None] | None) -> dict[str, Timing]:
    candidates = _candidates(shape)
    fast = {name: work for name, work in candidates.items() if name not in SLOW}
    slow = {name: work for name, work in candidates.items() if name in SLOW}
    found = interleaved(fast, rounds=rounds, tick=tick)
    found.update(interleaved(slow, rounds=min(rounds, SLOW_ROUNDS), warmup=0, tick=tick))
    products, scans = found["products alone"].median, found["scans alone"].median
    return {**found, "floor": Timing((products + scans,))}


def _network(shape: Shape, gradient: str = "reversible") -> OscillatorNetwork:
    torch.manual_seed(0)
    network = models.build(
        "unicornn",
        input_size=shape.inputs,
        hidden_size=shape.units,
        num_layers=shape.layers,
        gradient=gradient,
    )
    assert isinstance(network, OscillatorNetwork)
    return network


def _candidates(shape: Shape) -> dict[str, Callable[[], None]]:
    torch.manual_seed(0)
    x = torch.randn(shape.steps, shape.batch, shape.inputs)
    candidates: dict[str, Callable[[], None]] = {
        mode: partial(_train, _network(shape, mode), x) for mode in MODES
    }
    candidates["products alone"], candidates["scans alone"] = _floor(shape, x)
    sizes = (shape.inputs, shape.units)
    candidates["nn.LSTM, 1 layer"] = partial(_train, nn.LSTM(*sizes, 1), x)
    candidates["nn.LSTM"] = partial(_train, nn.LSTM(*sizes, shape.layers), x)
    candidates["nn.GRU"] = partial(_train, nn.GRU(*sizes, shape.layers), x)
    candidates["plain loop"] = partial(_train_plain, _network(shape), x)
    if find_spec("torchrecurrent") is not None:
        import torchrecurrent

        theirs = torchrecurrent.UnICORNN(*sizes, shape.layers)
        candidates["torchrecurrent"] = partial(_train, theirs, x)
    return candidates


def _train(network: nn.Module, x: Tensor) -> None:
    output = network(x)[0]
    output.sum().backward()


def _train_plain(network: OscillatorNetwork, x: Tensor) -> None:
    for at in range(network.num_layers):
        cell = network.cell(at)
        x, _ = reference_scan(cell, x, cell.initial_state(x.shape[1], x))
    x.sum().backward()


def _floor(shape: Shape, x: Tensor) -> tuple[Callable[[], None], Callable[[], None]]:
    """The products and the scans of a pass, one after the other on one chunk."""
    from undamped.kernels.shared.chunks import chunk_length, ranges, scan_bytes
    from undamped.kernels.shared.threads import over_columns
    from undamped.kernels.unicornn import compiled as kernels

    columns = shape.batch * shape.units
    chunk = chunk_length(shape.steps, scan_bytes(columns, shape.layers, 4))
    chunks = len(ranges(shape.steps, chunk))
    rows = chunk * shape.batch
    weights = [torch.randn(shape.units, shape.inputs)]
    weights += [torch.randn(shape.units, shape.units) for _ in range(shape.layers - 1)]
    sources = [torch.randn(rows, weight.shape[1]) for weight in weights]
    targets = [torch.randn(rows, shape.units) for _ in weights]
    below = torch.empty(rows, shape.units)
    share = shape.steps / (chunk * chunks)  # the last chunk is shorter

    def products() -> None:
        for _ in range(max(1, round(chunks * share))):
            for at, weight in enumerate(weights):
                torch.mm(sources[at], weight.t(), out=targets[at])  # forward
                torch.mm(targets[at].t(), sources[at])  # gradient of the weight
                if at:
                    torch.mm(targets[at], weight, out=below)  # gradient of the input

    network = _network(shape)
    step = network.cell(0).constants()[0].detach().numpy()
    ones = torch.ones(shape.units).numpy()
    arrays = [torch.randn(chunk, columns).numpy() for _ in range(4)]
    state = torch.zeros(5, columns).numpy()
    sums = torch.zeros(3, columns, dtype=torch.float64).numpy()
    alpha = state.dtype.type(1)

    def scans() -> None:
        for _ in range(max(1, round(chunks * share))):
            for _ in range(shape.layers):
                constants = (ones, step, ones, alpha, state[0], state[1], state[2])
                over_columns(kernels.forward(False), chunk, columns, arrays[0], *constants)
                over_columns(kernels.forward_keep(False), chunk, columns, *arrays[:2], *constants)
                arguments = (*arrays, state[0], ones, step, alpha, state[1], *state[3:], *sums)
                over_columns(kernels.backward(False), chunk, columns, *arguments, state[2])
                state.fill(0)

    return products, scans


def _memory_work(name: str, steps: int) -> Callable[[], None]:
    """Prepare a pass in a fresh process: libraries, kernels and input are in place before."""
    shape = Shape(steps, MEMORY_BATCH, MEMORY_INPUTS, MEMORY_UNITS, MEMORY_LAYERS)
    x = torch.randn(steps, shape.batch, shape.inputs)
    if name == "nn.LSTM":
        lstm = nn.LSTM(shape.inputs, shape.units, shape.layers)
        _train(lstm, x[:64])
        return lambda: lstm(x)[0][-1].sum().backward()
    network = _network(shape, name)
    network.last(x[:64])[0].sum().backward()
    return lambda: network.last(x)[0].sum().backward()


def _time_streams(steps: int) -> dict[str, float]:
    shape = Shape(steps, 1, 6, 32, 2)
    network = _network(shape)
    samples = list(torch.randn(steps, shape.inputs))
    stream = network.stream()
    stream.push(samples[0])
    rates = {}
    start = time.perf_counter()
    for sample in samples:
        stream.push(sample)
    rates["stream"] = steps / (time.perf_counter() - start)
    lstm, fewer = nn.LSTM(shape.inputs, shape.units, shape.layers), samples[: steps // 10]
    with torch.no_grad():
        _, state = network.step(samples[0])
        start = time.perf_counter()
        for sample in fewer:
            _, state = network.step(sample, state)
        rates["step"] = len(fewer) / (time.perf_counter() - start)
        _, memory = lstm(samples[0].view(1, -1))
        start = time.perf_counter()
        for sample in fewer:
            _, memory = lstm(sample.view(1, -1), memory)
        rates["nn.LSTM"] = len(fewer) / (time.perf_counter() - start)
    return rates
