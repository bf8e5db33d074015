"""What a run of the recurrent benchmark says: ratios, targets, tables, a picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from undamped.lab.benchmarks.timing import Timing

BASELINE, GATED = "nn.RNN", "nn.LSTM"
TIMES_BASELINE, TIMES_COMPLEX, TIMES_THEIRS = 1.3, 4.0, 2.5
"""What a release must reach: real cells a product, complex cells, torchrecurrent over ours."""
HEADINGS = (
    "network",
    "products a step",
    "seconds",
    "times nn.RNN",
    "a product",
    "times nn.LSTM",
    "torchrecurrent, times ours",
    "peak MB",
)
LARGE_HEADINGS = ("network", "seconds", "times nn.RNN")


@dataclass(frozen=True)
class Shape:
    """The size of a run."""

    steps: int
    batch: int
    inputs: int
    units: int

    def __str__(self) -> str:
        return f"{self.steps} steps, batch {self.batch}, {self.inputs} input, {self.units} units"


@dataclass(frozen=True)
class RecurrentBenchmark:
    """All measurements of one run.

    Args:
        threads: How many torch had.
        shape: The size of the first table.
        timings: By network.
        products: Products with a hidden × hidden matrix that a step of each network makes.
        theirs: torchrecurrent's cell of the same name.
        large_shape: The size of the second table.
        large: Timings of structured matrices beside dense ones.
        structured: Which of them must be faster than nn.RNN.
        complex_cells: Networks with complex states.
        memory: Peak memory above the input, bytes.
    """

    threads: int
    shape: Shape
    timings: dict[str, Timing]
    products: dict[str, float]
    theirs: dict[str, Timing]
    large_shape: Shape
    large: dict[str, Timing]
    structured: tuple[str, ...]
    complex_cells: tuple[str, ...]
    memory: dict[str, int]

    def times(self, name: str, other: str = BASELINE) -> float:
        """Return how many times longer a network takes than another."""
        return self.timings[name].median / self.timings[other].median

    def times_a_product(self, name: str) -> float | None:
        """Return the same against nn.RNN for each product; None where there is less than one."""
        products = self.products[name]
        return self.times(name) / products if products >= 1 else None

    def times_theirs(self, name: str) -> float | None:
        """Return how many times longer torchrecurrent takes for the same cell, if it has it."""
        found = self.theirs.get(name)
        return None if found is None else found.median / self.timings[name].median

    def times_large(self, name: str) -> float:
        """Return how many times longer a large network takes than nn.RNN of the same size."""
        return self.large[name].median / self.large[BASELINE].median

    def missed(self) -> list[str]:
        """Say which targets this run does not reach."""
        lines = []
        ours = [name for name in self.timings if not name.startswith("nn.")]
        for name in ours:
            if name in self.complex_cells:
                ratio, most, unit = self.times(name), TIMES_COMPLEX, ""
            else:
                products = max(1.0, self.products[name])
                ratio, most = self.times(name) / products, TIMES_BASELINE
                unit = " a product" if products > 1 else ""
            if ratio > most:
                lines.append(f"{name}: {ratio:.2f} times nn.RNN{unit}, wanted {most:g}")
            theirs = self.times_theirs(name)
            if theirs is not None and theirs < TIMES_THEIRS:
                lines.append(f"{name}: torchrecurrent {theirs:.1f} times ours, wanted 2.5")
            if self.memory.get(name, 0) > self.memory.get(BASELINE, 0):
                lines.append(f"{name}: {self.memory[name] / 1e6:.0f} MB, more than nn.RNN")
        for name in self.structured:
            if self.times_large(name) >= 1:
                lines.append(f"{name}: {self.times_large(name):.2f} times nn.RNN when large")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            "threads": self.threads,
            "shape": vars(self.shape),
            "timings": {name: timing.to_dict() for name, timing in self.timings.items()},
            "products_a_step": self.products,
            "times_nn_rnn": {name: self.times(name) for name in self.timings},
            "times_nn_lstm": {name: self.times(name, GATED) for name in self.timings},
            "times_nn_rnn_a_product": {name: self.times_a_product(name) for name in self.timings},
            "torchrecurrent": {name: timing.to_dict() for name, timing in self.theirs.items()},
            "torchrecurrent_times_ours": {name: self.times_theirs(name) for name in self.theirs},
            "large_shape": vars(self.large_shape),
            "large": {name: timing.to_dict() for name, timing in self.large.items()},
            "large_times_nn_rnn": {name: self.times_large(name) for name in self.large},
            "peak_memory_bytes": self.memory,
            "targets": {
                "real, times nn.RNN a product": TIMES_BASELINE,
                "complex, times nn.RNN": TIMES_COMPLEX,
                "torchrecurrent, times ours": TIMES_THEIRS,
            },
            "missed": self.missed(),
        }

    def _rows(self) -> list[tuple[str, ...]]:
        rows = []
        for name in sorted(self.timings, key=self.times):
            memory, products = self.memory.get(name), self.products[name]
            rows.append(
                (
                    name,
                    f"{products:g}",
                    f"{self.timings[name].median:.3f}",
                    f"{self.times(name):.2f}",
                    _shown(self.times_a_product(name), 2),
                    f"{self.times(name, GATED):.2f}",
                    _shown(self.times_theirs(name), 1),
                    "" if memory is None else f"{memory / 1e6:.0f}",
                )
            )
        return rows

    def _large_rows(self) -> list[tuple[str, ...]]:
        return [
            (name, f"{timing.median:.3f}", f"{self.times_large(name):.2f}")
            for name, timing in self.large.items()
        ]

    def _verdict(self) -> str:
        missed = self.missed()
        return "Targets missed: " + "; ".join(missed) + "." if missed else "All targets are met."

    def summary(self) -> Any:
        """Return tables for the terminal."""
        from rich.console import Group
        from rich.table import Table

        tables = []
        for shape, headings, rows in (
            (self.shape, HEADINGS, self._rows()),
            (self.large_shape, LARGE_HEADINGS, self._large_rows()),
        ):
            table = Table(title=str(shape))
            for heading in headings:
                table.add_column(heading, justify="left" if heading == "network" else "right")
            for row in rows:
                table.add_row(*row)
            tables.append(table)
        return Group(*tables, self._verdict())

    def markdown(self) -> str:
        """Return the tables for the documentation."""
        lines = [
            f"Forward and backward pass, float32, {self.threads} threads, medians; {self.shape}.",
            "",
            *_markdown(HEADINGS, self._rows()),
            "",
            f"The same with {self.large_shape}.",
            "",
            *_markdown(LARGE_HEADINGS, self._large_rows()),
            "",
            self._verdict(),
        ]
        return "\n".join(lines) + "\n"

    def figures(self) -> dict[str, Any]:
        """Return a picture of the times, as multiples of nn.RNN."""
        from matplotlib.figure import Figure

        from undamped.analysis.core.figures import PALETTE

        names = sorted(self.timings, key=self.times, reverse=True)
        figure = Figure(figsize=(8, 1.5 + 0.22 * len(names)), layout="constrained")
        axes = figure.subplots()
        colours = [PALETTE[1 if name.startswith("nn.") else 0] for name in names]
        axes.barh(names, [self.times(name) for name in names], color=colours)
        axes.axvline(1, color="black", linewidth=1)
        axes.margins(y=0.01)
        axes.set_xlabel("time, as a multiple of nn.RNN(tanh): left of the line is faster")
        axes.set_title(
            f"Forward and backward pass; PyTorch's own in the second colour\n{self.shape}"
        )
        return {"speed": figure}


def _shown(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _markdown(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    return [
        f"| {' | '.join(headings)} |",
        "|---|" + "---:|" * (len(headings) - 1),
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
