"""Layers of torch before and after `undamped.accelerate`: padded, packed, single steps, memory.

Each pair is timed in turn in one run, and quoted as the time before over the time after. With one
thread, seconds are CPU seconds of this process, which other programs change least. Where
`accelerate` leaves a call to torch, the ratio of equal work shows the noise. Beside them are the
matrix products alone: no implementation that calls the same library of products is faster.
"""

from __future__ import annotations

import copy
import statistics
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence

from undamped._base.memory import peak_memory
from undamped._base.registry import models
from undamped.lab.benchmarks.timing import (
    TORCH_NETWORKS,
    Shape,
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
GATES = {"nn.LSTM": 4, "nn.GRU": 3, "nn.RNN": 1}
LAYER_NORM = (Shape(100, 32, 64, 64), Shape(400, 32, 64, 128), Shape(100, 1, 64, 64))
QUICK_LAYER_NORM = (Shape(10, 2, 4, 4),)


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
        limits: The ratios of training and inference if the matrix products took all of the time.
        same: Whether the call is torch's own after `accelerate`, too, in training and inference.
        own_padded: Of packed sequences after `accelerate`: the time of training and inference over
            that of the same module on all steps of all sequences.
    """

    kind: str
    what: str
    shape: Shape
    training: float
    inference: float
    milliseconds: float
    limits: tuple[float, float]
    same: tuple[bool, bool]
    own_padded: tuple[float, float] | None = None


@benchmark("accelerate")
def run(
    *,
    kinds: str = "nn.LSTM,nn.GRU,nn.RNN,LayerNormLSTM",
    rounds: int = 3,
    quick: bool = False,
    progress: Progress = silent,
) -> Report:
    """Layers of torch before and after `undamped.accelerate`: speed and memory.

    Args:
        kinds: Classes of torch, and LayerNormLSTM beside a scripted loop, separated by commas.
        rounds: How often each is timed.
        quick: Small shapes, and no memory.
        progress: Called with a name after every measurement.

    Example:
        >>> result = run(kinds="nn.GRU", rounds=1, quick=True)
    """
    names = [name.strip() for name in kinds.split(",")]
    layers = [name for name in names if name != "LayerNormLSTM"]
    ratios, tables = _layers_of_torch(layers, rounds, quick, progress) if layers else ([], [])
    if layers != names:
        sizes = QUICK_LAYER_NORM if quick else LAYER_NORM
        tables.append(_layer_norm(sizes, rounds, progress))
    return Report(ratios, tables)


def _layers_of_torch(
    names: list[str], rounds: int, quick: bool, progress: Progress
) -> tuple[list[Ratio], list[Table]]:
    padded = [
        _ratio(name, "padded", shape, rounds, progress) for name in names for shape in shapes(quick)
    ]
    packed = [
        _ratio(name, "packed", shape, rounds, progress)
        for name in names
        for shape in (QUICK_PACKED if quick else PACKED)
    ]
    single = [_ratio(name, "step", s, rounds, progress) for name in names for s in SINGLE]
    tables = [*(_summary(name, padded) for name in names), _grid(padded), _packed(packed)]
    tables.append(_rows("One step at a time.", single))
    if not quick:
        tables.append(_memory(names, progress))
    return [*padded, *packed, *single], tables


def shapes(quick: bool = False) -> Iterator[Shape]:
    """Yield the shapes of the grid: as many inputs as units."""
    grid = (QUICK_STEPS, QUICK_BATCHES, QUICK_UNITS) if quick else (STEPS, BATCHES, UNITS)
    for steps, batch, units in product(*grid):
        if steps * batch * units**2 <= LARGEST / 4:
            yield Shape(steps, batch, units, units)


def _layers(kind: str, shape: Shape, layers: int = 1) -> tuple[Any, Any]:
    torch.manual_seed(0)
    before: Any = TORCH_NETWORKS[kind](shape.inputs, shape.units, layers)
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
    seconds, same = [], []
    for work, products in zip((_train, _infer), _products(kind, shape), strict=True):
        candidates = {
            name: partial(_repeat, partial(work, module, x, lengths), repeats)
            for name, module in (("before", before), ("after", after))
        }
        candidates["products"] = partial(_repeat, products, repeats)
        if what == "packed":
            candidates["padded"] = partial(_repeat, partial(work, after, x, None), repeats)
        timings = interleaved(candidates, rounds=rounds, clock=cpu_clock())
        seconds.append({name: min(timing.seconds) for name, timing in timings.items()})
        with torch.set_grad_enabled(work is _train):
            same.append(what != "packed" and after.way(x) == "torch")
    progress(f"{kind} {what} {shape}")
    training, inference = seconds
    return Ratio(
        kind,
        what,
        shape,
        training["before"] / training["after"],
        inference["before"] / inference["after"],
        1000 * training["before"] / repeats,
        (training["before"] / training["products"], inference["before"] / inference["products"]),
        (same[0], same[1]),
        (training["after"] / training["padded"], inference["after"] / inference["padded"])
        if what == "packed"
        else None,
    )


def _products(kind: str, shape: Shape) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return the matrix products of a forward and backward pass of one layer, and of a forward one.

    Of several layers they are those of the first.
    """
    steps, batch, inputs, units = shape.steps, shape.batch, shape.inputs, shape.units
    width = GATES[kind] * units
    x, rows, states = (torch.randn(steps * batch, size) for size in (inputs, width, units))
    v, w, transposed = (
        torch.randn(width, inputs),
        torch.randn(width, units),
        torch.randn(units, width),
    )
    state, gradient = torch.randn(batch, units), torch.randn(batch, width)

    def infer() -> None:
        torch.mm(x, v.t())
        for _ in range(steps):
            torch.mm(state, transposed)

    def train() -> None:
        infer()
        for _ in range(steps):
            torch.mm(gradient, w)
        torch.mm(rows, v)
        torch.mm(rows.t(), x)
        torch.mm(rows.t(), states)

    return train, infer


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
    """Summarise the shapes where `accelerate` changes what runs, and those where it does not."""
    rows = []
    for at, what in enumerate(("training", "inference")):
        for same, code in ((False, "faster code"), (True, "torch's own call")):
            group = [ratio for ratio in ratios if ratio.kind == kind and ratio.same[at] == same]
            if not group:
                continue
            values = sorted(getattr(ratio, what) for ratio in group)
            limit = statistics.median(ratio.limits[at] for ratio in group)
            numbers = (statistics.median(values), values[0], values[-1], limit)
            rows.append((f"{what}, {code}", str(len(group)), *(f"{v:.2f}" for v in numbers)))
    header = (kind, "shapes", "median", "smallest", "largest", "products alone, median")
    title = "Time before over time after, and over the time of the matrix products alone."
    return Table(header, rows, title)


def _layer_norm(sizes: tuple[Shape, ...], rounds: int, progress: Progress) -> Table:
    """Compare `LayerNormLSTM` with a loop over its equation, compiled by torch.jit.script."""
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        loop = torch.jit.script(layer_norm_loop)
    for shape in sizes:
        network: Any = models.build(
            "layer-norm-lstm", input_size=shape.inputs, hidden_size=shape.units
        )
        x, cell = torch.randn(shape.steps, shape.batch, shape.inputs), network.cell(0)
        x.requires_grad_()
        weights = (*cell.input_tensors(), *cell.constants())
        candidates = {
            "loop": lambda x=x, weights=weights: loop(x, *weights).sum().backward(),
            "network": lambda x=x, network=network: network(x)[0].sum().backward(),
        }
        timings = interleaved(candidates, rounds=rounds, warmup=3, clock=cpu_clock())
        before, after = (1000 * min(timings[name].seconds) for name in candidates)
        numbers = (f"{before:.1f}", f"{after:.1f}", f"{before / after:.1f}")
        rows.append((str(shape), *numbers))
        progress(f"layer-norm-lstm {shape}")
    header = ("layer normalisation", "ms of the loop", "ms", "times faster")
    return Table(header, rows, "LayerNormLSTM beside a scripted loop, forward and backward.")


def layer_norm_loop(
    x: Tensor,
    v: Tensor,
    bias: Tensor,
    input_gain: Tensor,
    w: Tensor,
    hidden_gain: Tensor,
    memory_gain: Tensor,
    memory_bias: Tensor,
) -> Tensor:
    """Return the outputs of an LSTM with layer normalisation, by a loop in torch."""
    size = w.shape[1]
    projected = F.layer_norm(F.linear(x, v), [4 * size], input_gain, bias)
    h = torch.zeros(x.shape[1], size)
    c, outputs = h, []
    for t in range(x.shape[0]):
        gates = F.layer_norm(F.linear(h, w), [4 * size], hidden_gain) + projected[t]
        i, f, g, o = gates.chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(F.layer_norm(c, [size], memory_gain, memory_bias))
        outputs.append(h)
    return torch.stack(outputs)


def _grid(ratios: list[Ratio]) -> Table:
    return _rows(f"Padded sequences, {torch.get_num_threads()} threads, float32.", ratios)


def _rows(title: str, ratios: list[Ratio]) -> Table:
    rows = [
        (
            ratio.kind,
            *map(str, (ratio.shape.steps, ratio.shape.batch, ratio.shape.units)),
            f"{ratio.milliseconds:.2f}",
            *(
                f"{value:.2f}" + ("*" if same else "")
                for value, same in zip((ratio.training, ratio.inference), ratio.same, strict=True)
            ),
            *(f"{limit:.2f}" for limit in ratio.limits),
        )
        for ratio in ratios
    ]
    sizes, ways = ("layer", "steps", "batch", "units"), ("training", "inference")
    header = (*sizes, "ms before", *ways, *(f"products alone, {way}" for way in ways))
    return Table(header, rows, title, ["* torch's own call, before and after."])


def _packed(ratios: list[Ratio]) -> Table:
    title = "Packed sequences of 2 layers, with lengths from half of the steps to all of them."
    rows = []
    for ratio in ratios:
        assert ratio.own_padded is not None
        sizes = map(str, (ratio.shape.steps, ratio.shape.batch, ratio.shape.units))
        numbers = (ratio.milliseconds, ratio.training, ratio.inference, *ratio.own_padded)
        rows.append((ratio.kind, *sizes, *(f"{number:.2f}" for number in numbers)))
    header = ("layer", "steps", "batch", "units", "ms before", "training", "inference")
    ways = ("training, times its padded time", "inference, times its padded time")
    return Table((*header, *ways), rows, title)


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
