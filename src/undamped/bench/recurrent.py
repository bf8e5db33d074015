"""The recurrent family beside torch's own networks and torchrecurrent's: speed and memory.

All networks of the registry are timed in turn, forward and backward, in one run, and quoted as
multiples of nn.RNN(tanh). A second table has large networks, where structured matrices must win
over dense ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from undamped.bench.timing import Timing, interleaved
from undamped.memory import peak_memory
from undamped.networks.recurrent import Recurrent
from undamped.registry import models

BASELINE = "nn.RNN"
TORCH = {"nn.RNN": nn.RNN, "nn.LSTM": nn.LSTM, "nn.GRU": nn.GRU}
THEIRS = {
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
TIMES_BASELINE, TIMES_COMPLEX, TIMES_THEIRS = 1.3, 4.0, 2.5
"""What a release must reach."""
SLOW_ROUNDS = 1


@dataclass(frozen=True)
class Shape:
    """The size of a run."""

    steps: int
    batch: int
    inputs: int
    units: int

    def __str__(self) -> str:
        return f"{self.steps} steps, batch {self.batch}, {self.inputs} input, {self.units} units"


SHAPE, LARGE = Shape(1000, 128, 1, 128), Shape(50, 128, 1, 1024)
QUICK_SHAPE, QUICK_LARGE = Shape(50, 8, 1, 16), Shape(5, 8, 1, 64)


@dataclass(frozen=True)
class RecurrentBenchmark:
    """All measurements of one run."""

    threads: int
    shape: Shape
    timings: dict[str, Timing]
    theirs: dict[str, Timing]
    large_shape: Shape
    large: dict[str, Timing]
    memory: dict[str, int]

    def times_baseline(self, name: str) -> float:
        """Return how many times longer a network takes than nn.RNN."""
        return self.timings[name].median / self.timings[BASELINE].median

    def times_theirs(self, name: str) -> float | None:
        """Return how many times longer torchrecurrent takes for the same cell, if it has it."""
        found = self.theirs.get(name)
        return None if found is None else found.median / self.timings[name].median

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            "threads": self.threads,
            "shape": vars(self.shape),
            "timings": {name: timing.to_dict() for name, timing in self.timings.items()},
            "times_nn_rnn": {name: self.times_baseline(name) for name in self.timings},
            "torchrecurrent": {name: timing.to_dict() for name, timing in self.theirs.items()},
            "torchrecurrent_times_ours": {name: self.times_theirs(name) for name in self.theirs},
            "large_shape": vars(self.large_shape),
            "large": {name: timing.to_dict() for name, timing in self.large.items()},
            "peak_memory_bytes": self.memory,
            "targets": {
                "real, times nn.RNN": TIMES_BASELINE,
                "complex, times nn.RNN": TIMES_COMPLEX,
                "torchrecurrent, times ours": TIMES_THEIRS,
            },
        }

    def _rows(self) -> list[tuple[str, str, str, str, str]]:
        rows = []
        for name in sorted(self.timings, key=self.times_baseline):
            theirs, memory = self.times_theirs(name), self.memory.get(name)
            rows.append(
                (
                    name,
                    f"{self.timings[name].median:.3f}",
                    f"{self.times_baseline(name):.2f}",
                    "" if theirs is None else f"{theirs:.1f}",
                    "" if memory is None else f"{memory / 1e6:.0f}",
                )
            )
        return rows

    def _large_rows(self) -> list[tuple[str, str, str]]:
        base = self.large[BASELINE].median
        return [
            (name, f"{timing.median:.3f}", f"{timing.median / base:.2f}")
            for name, timing in self.large.items()
        ]

    def summary(self) -> Any:
        """Return tables for the terminal."""
        from rich.console import Group
        from rich.table import Table

        first = Table(title=str(self.shape))
        for heading in HEADINGS:
            first.add_column(heading, justify="left" if heading == "network" else "right")
        for row in self._rows():
            first.add_row(*row)
        second = Table(title=str(self.large_shape))
        for heading in HEADINGS[:3]:
            second.add_column(heading, justify="left" if heading == "network" else "right")
        for row in self._large_rows():
            second.add_row(*row)
        return Group(first, second)

    def markdown(self) -> str:
        """Return the tables for the documentation."""
        lines = [
            f"Forward and backward pass, float32, {self.threads} threads, medians; {self.shape}.",
            "",
            f"| {' | '.join(HEADINGS)} |",
            "|---|" + "---:|" * (len(HEADINGS) - 1),
            *(f"| {' | '.join(row)} |" for row in self._rows()),
            "",
            f"The same with {self.large_shape}.",
            "",
            f"| {' | '.join(HEADINGS[:3])} |",
            "|---|---:|---:|",
            *(f"| {' | '.join(row)} |" for row in self._large_rows()),
        ]
        return "\n".join(lines) + "\n"

    def figures(self) -> dict[str, Any]:
        """Return a picture of the times, as multiples of nn.RNN."""
        from matplotlib.figure import Figure

        from undamped.analysis.figures import PALETTE

        names = sorted(self.timings, key=self.times_baseline, reverse=True)
        figure = Figure(figsize=(8, 1.5 + 0.22 * len(names)), layout="constrained")
        axes = figure.subplots()
        axes.barh(names, [self.times_baseline(name) for name in names], color=PALETTE[0])
        axes.axvline(1, color="black", linewidth=1)
        axes.set_xlabel("time, as a multiple of nn.RNN(tanh): left of the line is faster")
        axes.set_title(f"Forward and backward pass\n{self.shape}")
        return {"speed": figure}


HEADINGS = ("network", "seconds", "times nn.RNN", "torchrecurrent, times ours", "peak MB")


def run(
    *, rounds: int = 5, quick: bool = False, tick: Callable[[str], None] | None = None
) -> RecurrentBenchmark:
    """Measure everything.

    Args:
        rounds: How often each network is timed; the slow ones once.
        quick: Small shapes, and the memory of few networks, to see that everything runs.
        tick: Called with a name after every measurement, for a progress bar.
    """
    shape, large = (QUICK_SHAPE, QUICK_LARGE) if quick else (SHAPE, LARGE)
    names = networks()
    timings = interleaved(_candidates((*TORCH, *names), shape), rounds=rounds, tick=tick)
    theirs = interleaved(_their_candidates(shape), rounds=SLOW_ROUNDS, warmup=0, tick=tick)
    structured = interleaved(
        _candidates((BASELINE, "exprnn", *STRUCTURED), large), rounds=min(rounds, 3), tick=tick
    )
    memory = {}
    for name in (BASELINE, "exprnn") if quick else (*TORCH, *names):
        memory[name] = peak_memory(_memory_work, name, shape)
        if tick is not None:
            tick(f"memory {name}")
    return RecurrentBenchmark(
        torch.get_num_threads(), shape, timings, theirs, large, structured, memory
    )


def networks() -> list[str]:
    """Return the names of all recurrent networks."""
    return [
        name
        for name in models
        if isinstance(models[name], type) and issubclass(models[name], Recurrent)
    ]


def _build(name: str, shape: Shape) -> nn.Module:
    torch.manual_seed(0)
    if name in TORCH:
        return TORCH[name](shape.inputs, shape.units)
    return models.build(name, input_size=shape.inputs, hidden_size=shape.units)


def _candidates(names: tuple[str, ...], shape: Shape) -> dict[str, Callable[[], None]]:
    x = torch.randn(shape.steps, shape.batch, shape.inputs)
    return {name: partial(_train, _build(name, shape), x) for name in names}


def _their_candidates(shape: Shape) -> dict[str, Callable[[], None]]:
    if find_spec("torchrecurrent") is None:
        return {}
    import torchrecurrent

    x = torch.randn(shape.steps, shape.batch, shape.inputs)
    return {
        name: partial(_train, getattr(torchrecurrent, theirs)(shape.inputs, shape.units), x)
        for name, theirs in THEIRS.items()
    }


def _train(network: nn.Module, x: Tensor) -> None:
    network(x)[0].sum().backward()


def _memory_work(name: str, shape: Shape) -> Callable[[], None]:
    """Prepare a pass in a fresh process: libraries, kernels and input are in place before."""
    x = torch.randn(shape.steps, shape.batch, shape.inputs)
    network = _build(name, shape)
    _train(network, x[:8])
    return partial(_train, network, x)
