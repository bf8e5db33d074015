"""Layers of torch before and after `undamped.accelerate`: padded, packed, single steps, memory.

Each pair is timed in turn in one run, and quoted as the time before over the time after. With one
thread, seconds are CPU seconds of this process, which other programs change least.
"""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from undamped._base.memory import peak_memory
from undamped.lab.benchmarks.timing import (
    TORCH_NETWORKS,
    Shape,
    Timing,
    benchmark,
    cpu_clock,
    interleaved,
)
from undamped.lab.report.table import Progress, Report, Table, silent
from undamped.nn.acceleration import accelerate

STEPS, BATCHES, UNITS = (16, 100, 1000, 4000), (1, 8, 32, 128, 256), (16, 64, 128, 256, 512)
QUICK_STEPS, QUICK_BATCHES, QUICK_UNITS = (16, 70), (1, 8), (16,)
LARGEST = 2.2e9
"""Multiplications of the recurrent matrix in a pass, beyond which a shape is left out."""
PACKED = (Shape(1000, 32, 64, 64), Shape(1000, 16, 128, 128), Shape(200, 32, 64, 64))
QUICK_PACKED = (Shape(70, 4, 8, 8),)
SINGLE = (Shape(1, 1, 32, 32), Shape(1, 32, 64, 64), Shape(1, 32, 256, 256))
NOISE = 0.9
"""Ratios above this are not slower: repeated measurements of equal work differ as much."""


@dataclass(frozen=True)
class Ratio:
    """Time before over time after `accelerate`.

    Args:
        kind: Class of torch.
        what: What was timed: "padded", "packed" or "step".
        shape: Sizes.
        training: Of a forward and backward pass.
        inference: Of a forward pass without gradients.
        milliseconds: Of the forward and backward pass before.
    """

    kind: str
    what: str
    shape: Shape
    training: float
    inference: float
    milliseconds: float


@benchmark("accelerate")
def run(
    *,
    kinds: str = "nn.LSTM,nn.GRU,nn.RNN",
    rounds: int = 3,
    quick: bool = False,
    progress: Progress = silent,
) -> Report:
    """Layers of torch before and after `undamped.accelerate`: speed and memory.

    Args:
        kinds: Classes of torch, separated by commas.
        rounds: How often each is timed.
        quick: Small shapes, and no memory.
        progress: Called with a name after every measurement.

    Example:
        >>> result = run(kinds="nn.GRU", rounds=1, quick=True)
    """
    names = [name.strip() for name in kinds.split(",")]
    padded = [
        _ratio(name, "padded", shape, rounds, progress) for name in names for shape in shapes(quick)
    ]
    packed = [
        _ratio(name, "packed", shape, rounds, progress)
        for name in names
        for shape in (QUICK_PACKED if quick else PACKED)
    ]
    single = [_ratio(name, "step", s, rounds, progress) for name in names for s in SINGLE]
    tables = [*(_summary(name, padded) for name in names), _grid(padded), *_packed(packed)]
    tables.append(_rows("One step at a time.", single))
    if not quick:
        tables.append(_memory(names, progress))
    return Report([*padded, *packed, *single], tables)


def shapes(quick: bool = False) -> Iterator[Shape]:
    """Yield the shapes of the grid: as many inputs as units."""
    grid = (QUICK_STEPS, QUICK_BATCHES, QUICK_UNITS) if quick else (STEPS, BATCHES, UNITS)
    for steps, batch, units in product(*grid):
        if steps * batch * units**2 <= LARGEST / 4:
            yield Shape(steps, batch, units, units)


def _layers(kind: str, shape: Shape, layers: int = 1) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    before = TORCH_NETWORKS[kind](shape.inputs, shape.units, layers)
    after = copy.deepcopy(before)
    accelerate(after)
    return before, after


def _ratio(kind: str, what: str, shape: Shape, rounds: int, progress: Progress) -> Ratio:
    before, after = _layers(kind, shape, 2 if what == "packed" else 1)
    x = torch.randn(shape.steps, shape.batch, shape.inputs, requires_grad=True)
    lengths = None
    if what == "packed":
        lengths = torch.linspace(shape.steps / 2, shape.steps, shape.batch).long()
    repeats = max(1, int(2e6 / (shape.steps * shape.batch * shape.units**2)))
    repeats = min(repeats, 50)
    times: list[list[Timing]] = []
    for work in (_train, _infer):
        candidates = {
            name: partial(_repeat, partial(work, module, x, lengths), repeats)
            for name, module in (("before", before), ("after", after))
        }
        timings = interleaved(candidates, rounds=rounds, clock=cpu_clock())
        times.append([timings["before"], timings["after"]])
    progress(f"{kind} {what} {shape}")
    ratios = [min(b.seconds) / min(a.seconds) for b, a in times]
    before = 1000 * min(times[0][0].seconds) / repeats
    return Ratio(kind, what, shape, ratios[0], ratios[1], before)


def _repeat(work: Callable[[], None], repeats: int) -> None:
    for _ in range(repeats):
        work()


def _call(module: nn.Module, x: Tensor, lengths: Tensor | None) -> Tensor:
    if lengths is None:
        return module(x)[0]
    return module(pack_padded_sequence(x, lengths, enforce_sorted=False))[0].data


def _train(module: nn.Module, x: Tensor, lengths: Tensor | None) -> None:
    _call(module, x, lengths).sum().backward()


@torch.no_grad()
def _infer(module: nn.Module, x: Tensor, lengths: Tensor | None) -> None:
    _call(module, x, lengths)


def _summary(kind: str, ratios: list[Ratio]) -> Table:
    rows = []
    for what in ("training", "inference"):
        values = sorted(getattr(ratio, what) for ratio in ratios if ratio.kind == kind)
        slower = sum(value < NOISE for value in values)
        numbers = (statistics.median(values), values[0], values[-1])
        rows.append((what, *(f"{value:.2f}" for value in numbers), f"{slower} of {len(values)}"))
    header = (kind, "median", "smallest", "largest", f"below {NOISE:g}")
    return Table(header, rows, "Time before over time after, over all shapes of the grid.")


def _grid(ratios: list[Ratio]) -> Table:
    return _rows(f"Padded sequences, {torch.get_num_threads()} threads, float32.", ratios)


def _rows(title: str, ratios: list[Ratio]) -> Table:
    rows = [
        (
            ratio.kind,
            *map(str, (ratio.shape.steps, ratio.shape.batch, ratio.shape.units)),
            f"{ratio.milliseconds:.2f}",
            f"{ratio.training:.2f}",
            f"{ratio.inference:.2f}",
        )
        for ratio in ratios
    ]
    header = ("layer", "steps", "batch", "units", "ms before", "training", "inference")
    return Table(header, rows, title)


def _packed(ratios: list[Ratio]) -> list[Table]:
    title = "Packed sequences of 2 layers, with lengths from half of the steps to all of them."
    return [_rows(title, ratios)]


def _memory(kinds: list[str], progress: Progress) -> Table:
    """Compare the peak memory of a forward and backward pass, each in a new process."""
    rows = []
    for kind, what in product(kinds, ("padded", "packed")):
        sizes = []
        for index in (0, 1):
            sizes.append(peak_memory(_memory_work, kind, what, index))
            progress(f"memory {kind} {what}")
        rows.append((kind, what, *(f"{size / 1e6:.0f}" for size in sizes)))
    shape = PACKED[0]
    return Table(("layer", "input", "MB before", "MB after"), rows, f"Peak memory, {shape}.")


def _memory_work(kind: str, what: str, index: int) -> Callable[[], Any]:
    shape = PACKED[0]
    module = _layers(kind, shape)[index]
    x = torch.randn(shape.steps, shape.batch, shape.inputs, requires_grad=True)
    lengths = torch.linspace(shape.steps / 2, shape.steps, shape.batch).long()
    if what == "padded":
        lengths = None
    short = None if lengths is None else lengths.clamp(max=80)
    _train(module, x[:80], short)  # which loads libraries and kernels
    return partial(_train, module, x, lengths)
