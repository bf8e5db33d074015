"""UnICORNN compared with common alternatives: speed, memory against length, streaming.

Everything is measured in one run, candidates in turn, and quoted as ratios. The lower bound
("floor") is the cost of the arithmetic alone: the matrix products that every pass needs (forward,
gradient of the weights, gradient of the input) and the scans, on the same chunks.

On a GPU, Triton's kernels are compared with cuDNN's LSTM and the plain loop. That part has not been
run on a GPU; no numbers of it are quoted. A candidate is timed until the device has finished. The
first call of each, which compiles, is not counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError
from undamped._base.registry import models
from undamped.kernels.dispatch import has_triton, plain_loops
from undamped.lab.benchmarks.timing import (
    Candidates,
    Timing,
    benchmark,
    interleaved,
    peak_memory,
    train_step,
)
from undamped.lab.report.charts import DASHES, label, panels
from undamped.lab.report.table import Progress, Report, Table, silent
from undamped.nn.bases.cell import reference_scan
from undamped.nn.unicornn import OscillatorNetwork

MODES = ("reversible", "checkpoint", "stored")
SLOW = ("plain loop", "torchrecurrent")
SLOW_ROUNDS = 2

BOUND_TARGET = 1.5
MEMORY_LENGTHS = (1024, 4096, 16384, 65536)
MEMORY_BATCH, MEMORY_INPUTS, MEMORY_UNITS, MEMORY_LAYERS = 8, 6, 128, 3
STREAM_STEPS = 20_000
SIZES = "steps, batch, inputs, units, layers"
COLOUR, OTHER_COLOUR = "#0072B2", "#E69F00"


@dataclass(frozen=True)
class StackShape:
    """The size of a stack of layers."""

    steps: int
    batch: int
    inputs: int
    units: int
    layers: int

    def __str__(self) -> str:
        return f"{self.steps}, {self.batch}, {self.inputs}, {self.units}, {self.layers}"


SHAPES = (
    StackShape(1000, 128, 1, 128, 2),
    StackShape(17984, 8, 6, 32, 2),
    StackShape(4000, 32, 2, 128, 3),
)
QUICK_SHAPES = (StackShape(200, 16, 1, 32, 2), StackShape(1000, 4, 6, 16, 2))
# Targets of a release: the candidate, and how many times slower it has to be.
TARGETS = {
    SHAPES[0]: {"nn.LSTM, 1 layer": 4.0, "nn.LSTM": 9.0, "torchrecurrent": 6.0},
    SHAPES[1]: {"nn.LSTM": 8.0, "torchrecurrent": 120.0},
    SHAPES[2]: {"nn.LSTM": 10.0, "torchrecurrent": 12.0},
}


Timings = Mapping[StackShape, Mapping[str, Timing]]
Memory = Mapping[str, Mapping[int, int]]


@benchmark("unicornn")
def run(
    *, rounds: int = 7, quick: bool = False, device: str = "cpu", progress: Progress = silent
) -> Report:
    """UnICORNN compared with common alternatives: speed, memory against length, streaming.

    Args:
        rounds: How often each candidate is timed; the slow ones fewer times.
        quick: Small shapes and lengths.
        device: cpu, or cuda for a GPU, without the lower bound and the streams.
        progress: Called with a name after every measurement.

    Example:
        >>> result = run(quick=True)
    """
    shapes = QUICK_SHAPES if quick else SHAPES
    lengths = (256, 1024) if quick else MEMORY_LENGTHS
    if device != "cpu":
        return run_on_gpu(device, shapes, lengths, rounds, progress)
    timings = {shape: _time_shape(shape, rounds, progress) for shape in shapes}
    memory: dict[str, dict[int, int]] = {}
    for name in (*MODES, "nn.LSTM"):
        memory[name] = {}
        for steps in lengths:
            memory[name][steps] = peak_memory(memory_work, name, steps)
            progress(f"memory {name}")
    streaming = _time_streams(1000 if quick else STREAM_STEPS)
    return unicornn_report(timings, memory, streaming)


def unicornn_report(
    timings: Timings, memory: Memory, streaming: Mapping[str, float], device: str = "cpu"
) -> Report:
    """Return the report of all measurements.

    Args:
        timings: Of every shape and candidate.
        memory: Peak bytes above the input, by candidate and length.
        streaming: Steps per second, one sample at a time.
        device: Where it was measured; the targets are those of the CPU.
    """
    threads = torch.get_num_threads()
    processor = f"{threads} threads" if device == "cpu" else device
    ratios = {  # multiples of ours in reversible mode
        shape: {name: t.median / by_name["reversible"].median for name, t in by_name.items()}
        for shape, by_name in timings.items()
    }
    targets = {shape: TARGETS.get(shape, {}) if device == "cpu" else {} for shape in timings}
    rows = [
        (str(shape), *_row(name, timing, ratios[shape][name], targets[shape].get(name)))
        for shape, by_name in timings.items()
        for name, timing in by_name.items()
    ]
    title = f"Forward and backward pass, float32, {processor}, medians."
    lengths = list(next(iter(memory.values()), {}))
    sizes = [(name, *(f"{peaks[n] / 1e6:.1f}" for n in lengths)) for name, peaks in memory.items()]
    tables = [
        Table((SIZES, "candidate", "seconds", "times ours", "target"), rows, title, text_columns=2),
        Table(("peak memory above the input, MB", *map(str, lengths)), sizes),
    ]
    plots = {"speed": lambda: _speed_figure(timings), "memory": lambda: _memory_figure(memory)}
    if streaming:
        rates = [(name, f"{rate:,.0f}") for name, rate in streaming.items()]
        tables.append(Table(("one sample at a time", "steps per second"), rates))
        plots["streaming"] = lambda: _streaming_figure(streaming)
    records = [
        {"shape": vars(s), "timings": timings[s], "ratios": ratios[s], "targets": targets[s]}
        for s in timings
    ]
    numbers = {
        "peak_memory_bytes": memory,
        "input_bytes": {steps: 4 * steps * MEMORY_BATCH * MEMORY_INPUTS for steps in lengths},
        "streaming_steps_per_second": streaming,
    }
    return Report(records, tables, plots, numbers, {"device": device})


def _row(name: str, timing: Timing, ratio: float, target: float | None) -> tuple[str, ...]:
    if name == "floor":
        return name, f"{timing.median:.3f}", f"1/{1 / ratio:.2f}", f"≥ 1/{BOUND_TARGET:g}"
    return name, f"{timing.median:.3f}", f"{ratio:.2f}", "" if target is None else f"≥ {target:g}"


def _time_shape(shape: StackShape, rounds: int, progress: Progress) -> dict[str, Timing]:
    timings = time_candidates(_candidates(shape), rounds, progress)
    products, scans = timings["products alone"].median, timings["scans alone"].median
    return {**timings, "floor": Timing((products + scans,))}


def time_candidates(
    candidates: Candidates, rounds: int, progress: Progress, warmup: int = 1
) -> dict[str, Timing]:
    """Time candidates in turn, the slow ones fewer times."""
    fast = {name: work for name, work in candidates.items() if name not in SLOW}
    slow = {name: work for name, work in candidates.items() if name in SLOW}
    timings = interleaved(fast, rounds=rounds, warmup=warmup, progress=progress)
    few = min(rounds, SLOW_ROUNDS)
    return timings | interleaved(slow, rounds=few, warmup=0, progress=progress)


def build_stack(shape: StackShape, gradient: str = "reversible") -> OscillatorNetwork:
    """Return a UnICORNN with weights of seed 0."""
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


def networks_of(shape: StackShape) -> dict[str, nn.Module]:
    """Return the networks of a shape that run on any device."""
    sizes = (shape.inputs, shape.units)
    return {
        **{mode: build_stack(shape, mode) for mode in MODES},
        "nn.LSTM, 1 layer": nn.LSTM(*sizes, 1),
        "nn.LSTM": nn.LSTM(*sizes, shape.layers),
        "nn.GRU": nn.GRU(*sizes, shape.layers),
    }


def _candidates(shape: StackShape) -> dict[str, Callable[[], None]]:
    torch.manual_seed(0)
    x = torch.randn(shape.steps, shape.batch, shape.inputs)
    networks = networks_of(shape)
    candidates: dict[str, Callable[[], None]] = {
        name: partial(train_step, network, x) for name, network in networks.items()
    }
    candidates["products alone"], candidates["scans alone"] = _lower_bound(shape, x)
    candidates["plain loop"] = partial(_train_plain, build_stack(shape), x)
    if find_spec("torchrecurrent") is not None:
        import torchrecurrent

        theirs = torchrecurrent.UnICORNN(shape.inputs, shape.units, shape.layers)
        candidates["torchrecurrent"] = partial(train_step, theirs, x)
    return candidates


def _train_plain(network: OscillatorNetwork, x: Tensor) -> None:
    for layer in range(network.num_layers):
        cell = network.cell(layer)
        x, _ = reference_scan(cell, x, cell.initial_state(x.shape[1], x))
    x.sum().backward()


def _lower_bound(shape: StackShape, x: Tensor) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return the products and the scans of a pass, repeated on one chunk."""
    from undamped.kernels.shared.columns import Columns

    columns, width = Columns(), shape.batch * shape.units
    chunk = columns.chunk(shape.steps, width, shape.layers, 4)
    rows = chunk * shape.batch
    weights = [torch.randn(shape.units, shape.inputs)]
    weights += [torch.randn(shape.units, shape.units) for _ in range(shape.layers - 1)]
    sources = [torch.randn(rows, weight.shape[1]) for weight in weights]
    targets = [torch.randn(rows, shape.units) for _ in weights]
    below = torch.empty(rows, shape.units)
    repeats = max(1, round(shape.steps / chunk))

    def products() -> None:
        for _ in range(repeats):
            for layer, weight in enumerate(weights):
                torch.mm(sources[layer], weight.t(), out=targets[layer])  # forward
                torch.mm(targets[layer].t(), sources[layer])  # gradient of the weight
                if layer:
                    torch.mm(targets[layer], weight, out=below)  # gradient of the input

    cell = build_stack(shape).cell(0)
    constants = torch.stack([torch.ones(shape.units)] * 4)
    constants[1] = cell.constants()[0].detach()
    sequences = [torch.randn(chunk, width) for _ in range(4)]
    state, grad_state = torch.zeros(2, width), torch.zeros(3, width)
    sums = torch.zeros(3, width, dtype=torch.float64)
    kernels = columns.kernels("unicornn")

    def scans() -> None:
        for _ in range(repeats):
            for _ in range(shape.layers):
                columns.run(kernels["forward"], sequences[:1], constants, state)
                columns.run(kernels["forward_store"], sequences[:2], constants, state)
                columns.run(
                    kernels["backward"], sequences, constants, grad_state, sums=sums, first=state[0]
                )
                state.zero_()
                grad_state.zero_()

    return products, scans


def memory_work(name: str, steps: int, device: str = "cpu") -> Callable[[], None]:
    """Prepare a pass in a new process; libraries, kernels and input are loaded before it."""
    shape = StackShape(steps, MEMORY_BATCH, MEMORY_INPUTS, MEMORY_UNITS, MEMORY_LAYERS)
    x = torch.randn(steps, shape.batch, shape.inputs, device=device)
    if name == "nn.LSTM":
        network: Any = nn.LSTM(shape.inputs, shape.units, shape.layers).to(device)
    else:
        network = build_stack(shape, name).to(device)

    def work(x: Tensor) -> None:
        last = network(x)[0][-1] if name == "nn.LSTM" else network.last(x)[0]
        last.sum().backward()

    work(x[:64])
    return partial(work, x)


def _time_streams(steps: int) -> dict[str, float]:
    shape = StackShape(steps, 1, 6, 32, 2)
    network = build_stack(shape)
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


def _speed_figure(timings: Timings) -> Any:
    figure, all_axes = panels(10, 3.2 * len(timings), rows=len(timings))
    for axes, (shape, by_name) in zip(all_axes, timings.items(), strict=True):
        colours = [COLOUR if name in MODES else OTHER_COLOUR for name in by_name]
        axes.barh(list(by_name), [timing.median for timing in by_name.values()], color=colours)
        axes.invert_yaxis()
        label(axes, "seconds, forward and backward pass", title=f"{SIZES} = {shape}", log="x")
    figure.suptitle("Blue is our UnICORNN; shorter bars are faster")
    return figure


def _memory_figure(memory: Memory) -> Any:
    figure, (axes,) = panels(7, 4.5)
    for index, (name, peaks) in enumerate(memory.items()):
        axes.plot(
            list(peaks),
            [max(value, 1) / 1e6 for value in peaks.values()],
            marker="o",
            linestyle=DASHES[index % len(DASHES)],
            color=OTHER_COLOUR if name == "nn.LSTM" else COLOUR,
            label=name,
        )
    title = "Reversible mode: constant memory for any length"
    label(axes, "steps", "peak memory above the input, MB", title, log="y")
    axes.set_xscale("log", base=2)
    return figure


def _streaming_figure(rates: Mapping[str, float]) -> Any:
    figure, (axes,) = panels(7, 3)
    colours = [OTHER_COLOUR if name == "nn.LSTM" else COLOUR for name in rates]
    axes.barh(list(rates), list(rates.values()), color=colours)
    axes.axvline(20_000, color="black", linestyle=":", label="20,000 steps per second")
    axes.invert_yaxis()
    label(axes, "steps per second, 2 layers of 32", title="Longer bars are faster")
    return figure


def run_on_gpu(
    device: str,
    shapes: Sequence[StackShape],
    lengths: Sequence[int],
    rounds: int,
    progress: Progress,
) -> Report:
    """Time all shapes and measure memory against length.

    Args:
        device: cuda, or cuda:1 and so on.
        shapes: The rows of the table.
        lengths: Steps for which memory is measured.
        rounds: How often each candidate is timed.
        progress: Called with a name after every measurement.
    """
    card = usable_gpu(device)
    with torch.cuda.device(card):
        timings = {
            shape: time_candidates(candidates_on(shape, card), rounds, progress, warmup=2)
            for shape in shapes
        }
        memory: dict[str, dict[int, int]] = {}
        for name in (*MODES, "nn.LSTM"):
            for steps in lengths:
                memory.setdefault(name, {})[steps] = _peak(name, steps, card)
                progress(f"memory {name}")
        name = torch.cuda.get_device_name(card)
    return unicornn_report(timings, memory, {}, name)


def usable_gpu(device: str) -> torch.device:
    """Return an available GPU with Triton, or raise an error that names what is missing."""
    try:
        card = torch.device(device)
    except RuntimeError:
        card = None
    if card is None or card.type != "cuda":
        raise OptionError(
            f"device must be cpu, cuda or cuda:N, got '{device}'. AMD's GPUs are cuda too."
        )
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (card.index or 0) >= count:
        raise OptionError(
            f"No such GPU: {device} (torch finds {count}). Leave --device out to measure the CPU."
        )
    if not has_triton():
        raise OptionError("Triton is not installed. Install it with pip install 'undamped[gpu]'.")
    return card


def candidates_on(shape: StackShape, card: torch.device) -> dict[str, Callable[[], None]]:
    """Return a training step of each candidate that waits for its device."""
    torch.manual_seed(0)
    x = torch.randn(shape.steps, shape.batch, shape.inputs).to(card)
    networks = {name: network.to(card) for name, network in networks_of(shape).items()}
    candidates = {name: partial(_train, network, x) for name, network in networks.items()}
    network = build_stack(shape).to(card)

    def plain_loop() -> None:
        with plain_loops():
            _train(network, x)

    return {**candidates, "plain loop": plain_loop}


def _train(network: nn.Module, x: Tensor) -> None:
    train_step(network, x)
    if x.is_cuda:
        torch.cuda.synchronize(x.device)


def _peak(name: str, steps: int, card: torch.device) -> int:
    """Return the peak memory of a training step with the last output, above the input."""
    work = memory_work(name, steps, str(card))
    torch.cuda.synchronize(card)
    torch.cuda.reset_peak_memory_stats(card)
    before = torch.cuda.memory_allocated(card)
    work()
    torch.cuda.synchronize(card)
    return torch.cuda.max_memory_allocated(card) - before
