"""What the stiff benchmark measured, as numbers, a table and a picture."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from undamped.lab.benchmarks.tables import markdown_table, terminal_table

CALLS, SECONDS = 1.5, 5.0
"""What is wanted: calls and seconds of one sample over SciPy's."""
HEADER = (
    "problem",
    "tolerance",
    "calls, ours / SciPy",
    "Jacobians",
    "error, in units of the tolerance",
    "seconds, one sample",
    "seconds per sample of a batch",
    "SciPy with a NumPy field",
    "wanted",
)


@dataclass(frozen=True)
class StiffTiming:
    """One problem at one tolerance.

    Args:
        problem: Its name.
        tolerance: The relative tolerance.
        calls: Calls of the field, Jacobians apart.
        jacobians: Jacobians taken.
        errors: Largest error at the end, relative to the state.
        seconds: The fastest round of every candidate.
        batch: Samples of the batch.
    """

    problem: str
    tolerance: float
    calls: dict[str, int]
    jacobians: dict[str, int]
    errors: dict[str, float]
    seconds: dict[str, float]
    batch: int

    @property
    def call_ratio(self) -> float:
        """Our calls over SciPy's."""
        return self.calls["undamped"] / self.calls["SciPy"]

    @property
    def second_ratio(self) -> float:
        """Our seconds over SciPy's, for one sample."""
        return self.seconds["undamped"] / self.seconds["SciPy"]

    @property
    def batch_ratio(self) -> float:
        """Our seconds per sample of a batch over SciPy's for one."""
        return self.seconds["undamped, batch"] / self.batch / self.seconds["SciPy"]

    def missed(self) -> list[str]:
        """Return what was wanted and is not met."""
        found = [] if self.call_ratio <= CALLS else [f"calls above {CALLS:g}×"]
        found += [] if self.second_ratio <= SECONDS else [f"seconds above {SECONDS:g}×"]
        return found + ([] if self.batch_ratio < 1 else ["batch slower than SciPy"])

    def row(self) -> tuple[str, ...]:
        """Return the line of a table."""
        ours, theirs = "undamped", "SciPy"
        errors = [self.errors[name] / self.tolerance for name in (ours, theirs)]
        each = self.seconds["undamped, batch"] / self.batch
        return (
            self.problem,
            f"{self.tolerance:.0e}".replace("e-0", "e-"),
            f"{self.calls[ours]} / {self.calls[theirs]} = {self.call_ratio:.2f}",
            f"{self.jacobians[ours]} / {self.jacobians[theirs]}",
            f"{errors[0]:.2g} / {errors[1]:.2g}",
            f"{self.seconds[ours]:.3f} / {self.seconds[theirs]:.3f} = {self.second_ratio:.1f}",
            f"{each:.3f} = {self.batch_ratio:.2f}",
            f"{self.seconds['SciPy, NumPy field']:.3f}",
            ", ".join(self.missed()) or "met",
        )


@dataclass(frozen=True)
class StiffBenchmark:
    """The whole benchmark.

    Args:
        timings: Every problem at every tolerance.
        method: Our method.
        batch: Samples of a batch.
        threads: Threads PyTorch used.
    """

    timings: tuple[StiffTiming, ...]
    method: str
    batch: int
    threads: int

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return asdict(self)

    def markdown(self) -> str:
        """Return the table for a document."""
        return markdown_table(HEADER, [timing.row() for timing in self.timings])

    def summary(self) -> Any:
        """Return a table for the terminal."""
        title = f"bench stiff, {self.method}, batch of {self.batch}"
        return terminal_table(HEADER, [timing.row() for timing in self.timings], title)

    def figures(self) -> dict[str, Any]:
        """Return a picture: seconds over SciPy's, for one sample and in a batch."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 3.6), layout="constrained")
        axis = figure.subplots()
        places = range(len(self.timings))
        axis.semilogy(places, [t.second_ratio for t in self.timings], "o", label="one sample")
        axis.semilogy(
            places, [t.batch_ratio for t in self.timings], "s", label=f"batch of {self.batch}"
        )
        axis.axhline(1.0, color="#999999", linewidth=1, label="SciPy's Radau")
        names = [f"{t.problem}, {t.tolerance:.0e}" for t in self.timings]
        axis.set_xticks(list(places), names, rotation=40, ha="right", fontsize=7)
        axis.set_ylabel("seconds per sample over SciPy's")
        axis.legend(fontsize=8)
        return {"stiff_seconds": figure}
