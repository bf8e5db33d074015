"""The recurrent networks compared with those of torch and torchrecurrent: speed and memory.

All networks of the registry are timed in turn, forward and backward, in one run, and quoted as
multiples of nn.RNN(tanh), also per product with a hidden × hidden matrix of a step: an LSTM has
four, and cannot cost what a simple network costs. A second table has large networks, where
structured matrices must be faster than dense ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch

from undamped._base.memory import peak_memory
from undamped._base.registry import models
from undamped.lab.benchmarks.timing import (
    TORCH_NETWORKS,
    Shape,
    Timing,
    benchmark,
    build_network,
    interleaved,
    recurrent_networks,
    train_step,
)
from undamped.lab.report.charts import colour, label, panels
from undamped.lab.report.table import Progress, Report, Table, plain, silent
from undamped.nn.bases.coupled import CoupledCell
from undamped.nn.bases.memory import MemoryCell

BASELINE, GATED = "nn.RNN", "nn.LSTM"
TORCH_PRODUCTS = {"nn.RNN": 1.0, "nn.LSTM": 4.0, "nn.GRU": 3.0}
TORCHRECURRENT = {
    "antisymmetric": "AntisymmetricRNN",
    "gated-antisymmetric": "GatedAntisymmetricRNN",
    "cornn": "coRNN",
    "fastrnn": "FastRNN",
    "fastgrnn": "FastGRNN",
    "indrnn": "IndRNN",
    "unicornn": "UnICORNN",
}
"""Registry names, and the class of torchrecurrent that has the same cell."""
COMPLEX = ("urnn", "full-capacity-urnn", "eurnn")
STRUCTURED = ("ornn", "eurnn", "urnn")
DENSE = (BASELINE, "rnn-orth", "full-capacity-urnn")
"""Baselines of structured matrices: real, and complex."""
TIMES_BASELINE, TIMES_COMPLEX, TIMES_TORCHRECURRENT = 1.3, 4.0, 2.5
"""Targets of a release: real cells per product, complex cells, torchrecurrent over ours."""
_PREFIX = "torchrecurrent "

SHAPE, LARGE = Shape(1000, 128, 1, 128), Shape(50, 128, 1, 1024)
QUICK_SHAPE, QUICK_LARGE = Shape(50, 8, 1, 16), Shape(5, 8, 1, 64)
HEADER = (
    *("network", "products a step", "seconds", "times nn.RNN", "a product", "times nn.LSTM"),
    *("torchrecurrent, times ours", "peak MB"),
)


@dataclass(frozen=True)
class Measurement:
    """One network.

    Args:
        name: Its name.
        timing: Of a forward and backward pass.
        products: Products with a hidden × hidden matrix of a step.
        times_rnn: Multiple of nn.RNN.
        times_lstm: Multiple of nn.LSTM.
        torchrecurrent: Seconds of torchrecurrent for the same cell, as a multiple.
        memory: Peak memory above the input in bytes.
    """

    name: str
    timing: Timing
    products: float
    times_rnn: float
    times_lstm: float
    torchrecurrent: float | None
    memory: int | None

    @property
    def times_per_product(self) -> float | None:
        """Multiple of nn.RNN per product; None where there is less than one product."""
        return self.times_rnn / self.products if self.products >= 1 else None

    def missed(self, baseline_memory: int) -> list[str]:
        """Return the targets that this network does not reach."""
        if self.name in TORCH_NETWORKS:
            return []
        if self.name in COMPLEX:
            ratio, limit, unit = self.times_rnn, TIMES_COMPLEX, ""
        else:
            products = max(1.0, self.products)
            ratio, limit = self.times_rnn / products, TIMES_BASELINE
            unit = " a product" if products > 1 else ""
        lines = []
        if ratio > limit:
            lines.append(f"{self.name}: {ratio:.2f} times nn.RNN{unit}, target {limit:g}")
        theirs = self.torchrecurrent
        if theirs is not None and theirs < TIMES_TORCHRECURRENT:
            lines.append(
                f"{self.name}: torchrecurrent {theirs:.1f} times ours, "
                f"target {TIMES_TORCHRECURRENT:g}"
            )
        if (self.memory or 0) > baseline_memory:
            lines.append(f"{self.name}: {(self.memory or 0) / 1e6:.0f} MB, more than nn.RNN")
        return lines

    def row(self) -> tuple[str, ...]:
        """Return the row of the table."""
        per_product, theirs = self.times_per_product, self.torchrecurrent
        return (
            self.name,
            f"{self.products:g}",
            f"{self.timing.median:.3f}",
            f"{self.times_rnn:.2f}",
            "" if per_product is None else f"{per_product:.2f}",
            f"{self.times_lstm:.2f}",
            "" if theirs is None else f"{theirs:.1f}",
            "" if self.memory is None else f"{self.memory / 1e6:.0f}",
        )


@benchmark("recurrent")
def run(
    *,
    rounds: int = 5,
    quick: bool = False,
    only: Sequence[str] = (),
    progress: Progress = silent,
) -> Report:
    """The recurrent networks compared with those of torch and torchrecurrent: speed and memory.

    Args:
        rounds: How often each network is timed.
        quick: Small shapes, and the memory of few networks.
        only: Networks to time in addition to those of torch; all by default.
        progress: Called with a name after every measurement.

    Example:
        >>> result = run(quick=True)
    """
    shape, large_shape = (QUICK_SHAPE, QUICK_LARGE) if quick else (SHAPE, LARGE)
    names = (*TORCH_NETWORKS, *(only or networks()))
    candidates = {**_candidates(names, shape), **_torchrecurrent_candidates(shape)}
    # A network of torchrecurrent directly after ours of the same name, so that both are timed in
    # the same minute.
    order = [key for name in names for key in (name, _PREFIX + name) if key in candidates]
    timings = interleaved({n: candidates[n] for n in order}, rounds=rounds, progress=progress)
    large_candidates = _candidates((*DENSE, *STRUCTURED), large_shape)
    large = interleaved(large_candidates, rounds=min(rounds, 3), progress=progress)
    memory = {}
    for name in ("exprnn",) if quick else names:
        memory[name] = peak_memory(_memory_work, name, shape)
        progress(f"memory {name}")
    records = [_measurement(name, shape, timings, memory.get(name)) for name in names]
    return _report(records, large, shape, large_shape, memory.get(BASELINE, 0))


def networks() -> list[str]:
    """Return the names of all recurrent networks except those of `bench memory`."""
    return [n for n in recurrent_networks() if not issubclass(models[n].cell_class, MemoryCell)]


def _candidates(names: tuple[str, ...], shape: Shape) -> dict[str, Callable[[], None]]:
    x = torch.randn(shape.steps, shape.batch, shape.inputs)
    return {name: partial(train_step, build_network(name, shape), x) for name in names}


def _torchrecurrent_candidates(shape: Shape) -> dict[str, Callable[[], None]]:
    if find_spec("torchrecurrent") is None:
        return {}
    import torchrecurrent

    x = torch.randn(shape.steps, shape.batch, shape.inputs)
    return {
        _PREFIX + name: partial(
            train_step, getattr(torchrecurrent, theirs)(shape.inputs, shape.units), x
        )
        for name, theirs in TORCHRECURRENT.items()
    }


def _memory_work(name: str, shape: Shape) -> Callable[[], None]:
    """Prepare a pass in a new process; libraries, kernels and input are loaded before it."""
    x = torch.randn(shape.steps, shape.batch, shape.inputs)
    network = build_network(name, shape)
    train_step(network, x[:8])
    return partial(train_step, network, x)


def _measurement(
    name: str, shape: Shape, timings: dict[str, Timing], memory: int | None
) -> Measurement:
    products = TORCH_PRODUCTS.get(name)
    if products is None:
        products = _products(build_network(name, shape).cell(0))
    median, theirs = timings[name].median, timings.get(_PREFIX + name)
    return Measurement(
        name,
        timings[name],
        products,
        median / timings[BASELINE].median,
        median / timings[GATED].median,
        None if theirs is None else theirs.median / median,
        memory,
    )


def _report(
    records: list[Measurement],
    large: dict[str, Timing],
    shape: Shape,
    large_shape: Shape,
    baseline_memory: int,
) -> Report:
    ratios = {name: timing.median / large[BASELINE].median for name, timing in large.items()}
    missed = [line for record in records for line in record.missed(baseline_memory)]
    missed += [
        f"{name}: {ratios[name]:.2f} times nn.RNN when large"
        for name in STRUCTURED
        if ratios[name] >= 1
    ]
    verdict = "Targets missed: " + "; ".join(missed) + "." if missed else "All targets are met."
    records = sorted(records, key=lambda record: record.times_rnn)
    threads = torch.get_num_threads()
    title = f"Forward and backward pass, float32, {threads} threads, medians; {shape}."
    rows = [(n, f"{t.median:.3f}", f"{ratios[n]:.2f}") for n, t in large.items()]
    large_header = ("network", "seconds", "times nn.RNN")
    return Report(
        [{**plain(r), "times_rnn_per_product": r.times_per_product} for r in records],
        [
            Table(HEADER, [record.row() for record in records], title),
            Table(large_header, rows, f"The same with {large_shape}.", [verdict]),
        ],
        {"speed": lambda: _figure(records[::-1], shape)},
        {
            "large": large,
            "large_times_nn_rnn": ratios,
            "targets": {
                "real, times nn.RNN a product": TIMES_BASELINE,
                "complex, times nn.RNN": TIMES_COMPLEX,
                "torchrecurrent, times ours": TIMES_TORCHRECURRENT,
            },
            "missed": missed,
        },
        {"shape": shape, "large_shape": large_shape},
    )


def _figure(records: list[Measurement], shape: Shape) -> Any:
    figure, (axes,) = panels(8, 1.5 + 0.22 * len(records))
    colours = [colour(1 if record.name in TORCH_NETWORKS else 0) for record in records]
    times = [record.times_rnn for record in records]
    axes.barh([record.name for record in records], times, color=colours)
    axes.axvline(1, color="black", linewidth=1)
    axes.margins(y=0.01)
    title = f"Forward and backward pass; networks of PyTorch in the second colour\n{shape}"
    label(axes, "time, as a multiple of nn.RNN(tanh): left of the line is faster", title=title)
    return figure


def _products(cell: Any) -> float:
    """Return the matrix products of a step, in units of hidden_size² multiplications."""
    matrices = cell.recurrent_matrices()
    if not matrices and isinstance(cell, CoupledCell):
        matrices = cell.linear_tensors(cell.cached_constants())
    numbers = sum(matrix.numel() for matrix in matrices)
    return getattr(cell, "iterations", 1) * numbers / cell.hidden_size**2
