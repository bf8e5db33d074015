"""Implicit methods beside SciPy's Radau on the stiff test set: calls, seconds, errors.

Both sides count calls of the field and Jacobians separately, and call the same field, written in
torch. SciPy's seconds with the field written in NumPy, which is many times as fast on three
numbers, are printed too. Candidates are timed in turn, in seconds of this process where torch has
one thread, and summarised by their fastest round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undamped._base.registry import benchmarks
from undamped.lab.benchmarks.stiff_problems import StiffProblem, problems
from undamped.lab.benchmarks.timing import cpu_clock, interleaved
from undamped.lab.report.charts import label, panels
from undamped.lab.report.table import Progress, Report, Table, silent
from undamped.ode import solve

BATCH = 16
CALLS, SECONDS = 1.5, 5.0
"""Targets: largest ratios of calls and of seconds of one sample to SciPy's."""
OURS, THEIRS, NUMPY, BATCHED = "undamped", "SciPy", "SciPy, NumPy field", "undamped, batch"
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
        calls: Calls of the field, without Jacobians.
        jacobians: Number of Jacobians.
        errors: Largest error at the end, relative to the state.
        seconds: The fastest round of every candidate; of a batch, per sample.
    """

    problem: str
    tolerance: float
    calls: dict[str, int]
    jacobians: dict[str, int]
    errors: dict[str, float]
    seconds: dict[str, float]

    @property
    def call_ratio(self) -> float:
        """Our calls over SciPy's."""
        return self.calls[OURS] / self.calls[THEIRS]

    @property
    def second_ratio(self) -> float:
        """Our seconds over SciPy's, for one sample."""
        return self.seconds[OURS] / self.seconds[THEIRS]

    @property
    def batch_ratio(self) -> float:
        """Our seconds per sample of a batch over SciPy's for one."""
        return self.seconds[BATCHED] / self.seconds[THEIRS]

    def missed(self) -> list[str]:
        """Return the targets that are not met."""
        missed = [] if self.call_ratio <= CALLS else [f"calls above {CALLS:g}×"]
        missed += [] if self.second_ratio <= SECONDS else [f"seconds above {SECONDS:g}×"]
        return missed + ([] if self.batch_ratio < 1 else ["batch slower than SciPy"])

    def row(self) -> tuple[str, ...]:
        """Return the row of the table."""
        errors = [self.errors[name] / self.tolerance for name in (OURS, THEIRS)]
        seconds = self.seconds
        return (
            self.problem,
            f"{self.tolerance:.0e}".replace("e-0", "e-"),
            f"{self.calls[OURS]} / {self.calls[THEIRS]} = {self.call_ratio:.2f}",
            f"{self.jacobians[OURS]} / {self.jacobians[THEIRS]}",
            f"{errors[0]:.2g} / {errors[1]:.2g}",
            f"{seconds[OURS]:.3f} / {seconds[THEIRS]:.3f} = {self.second_ratio:.1f}",
            f"{seconds[BATCHED]:.3f} = {self.batch_ratio:.2f}",
            f"{seconds[NUMPY]:.3f}",
            ", ".join(self.missed()) or "met",
        )


@benchmarks.register("stiff")
def run(
    *,
    method: str = "radau5",
    tolerance: float | None = None,
    rounds: int = 3,
    quick: bool = False,
    progress: Progress = silent,
) -> Report:
    """Implicit methods beside SciPy's Radau on the stiff test set: calls, seconds, errors.

    Args:
        method: Our method, by its name.
        tolerance: The only tolerance; 1e-4 and 1e-7 by default.
        rounds: How often everything is timed.
        quick: Two problems at one tolerance.
        progress: Called with a name after every single run.

    Example:
        >>> result = run(quick=True)
    """
    records = []
    tolerances = (1e-4,) if quick else (1e-4, 1e-7)
    for problem in problems(quick):
        for each in tolerances if tolerance is None else (tolerance,):
            reference = _scipy(problem, 1e-3 * each).y[:, -1]
            records.append(_compare(problem, each, method, rounds, reference, progress))
    return Report(
        {"method": method, "batch": BATCH, "threads": torch.get_num_threads()},
        records,
        [Table(HEADER, [record.row() for record in records])],
        {"stiff_seconds": lambda: _figure(records)},
    )


def _scipy(problem: StiffProblem, tolerance: float, *, plain: bool = True) -> Any:
    from scipy.integrate import solve_ivp

    def torch_field(t: float, y: np.ndarray) -> np.ndarray:
        return problem.field(t, torch.from_numpy(y)).numpy()

    return solve_ivp(
        problem.plain if plain else torch_field,
        (0.0, problem.end),
        problem.start,
        method="Radau",
        rtol=tolerance,
        atol=tolerance * problem.atol,
    )


class _Counted:
    """A field that counts plain evaluations and those for Jacobians."""

    def __init__(self, field: Callable[[Any, Tensor], Tensor]) -> None:
        self.field, self.plain, self.jacobians = field, 0, 0

    def __call__(self, t: Any, y: Tensor) -> Tensor:
        if y.requires_grad:
            self.jacobians += 1
        else:
            self.plain += 1
        return self.field(t, y)


def _compare(
    problem: StiffProblem,
    tolerance: float,
    method: str,
    rounds: int,
    reference: np.ndarray,
    progress: Progress,
) -> StiffTiming:
    atol = tolerance * problem.atol
    single, batch = torch.from_numpy(problem.start), problem.batch(BATCH)
    batch_options = solver_options(method)

    @torch.no_grad()
    def ours(start: Tensor, field: Any, **more: Any) -> Any:
        times = [0.0, problem.end]
        return solve(field, start, times, method=method, rtol=tolerance, atol=atol, **more)

    counted = _Counted(problem.field)
    solution, theirs = ours(single, counted), _scipy(problem, tolerance)
    candidates = {
        OURS: lambda: ours(single, problem.field),
        THEIRS: lambda: _scipy(problem, tolerance, plain=False),
        NUMPY: lambda: _scipy(problem, tolerance),
        BATCHED: lambda: ours(batch, problem.field, **batch_options),
    }
    clock = cpu_clock()
    timings = interleaved(candidates, rounds=rounds, warmup=0, clock=clock, progress=progress)
    seconds = {name: timing.spread[0] for name, timing in timings.items()}
    seconds[BATCHED] /= BATCH
    scale = np.abs(reference) + problem.atol
    return StiffTiming(
        problem=problem.name,
        tolerance=tolerance,
        calls={OURS: counted.plain, THEIRS: int(theirs.nfev)},
        jacobians={OURS: counted.jacobians, THEIRS: int(theirs.njev)},
        errors={
            OURS: float(np.abs((solution.final.numpy() - reference) / scale).max()),
            THEIRS: float(np.abs((theirs.y[:, -1] - reference) / scale).max()),
        },
        seconds=seconds,
    )


def solver_options(method: str) -> dict[str, Any]:
    """Return the options for a batch: one step size per sample where the method supports it."""
    from undamped._base.registry import solvers

    return {"steps": "sample"} if solvers[method].per_sample else {}


def _figure(records: Sequence[StiffTiming]) -> Any:
    figure, (axes,) = panels(7, 3.6)
    axes.plot([record.second_ratio for record in records], "o", label="one sample")
    axes.plot([record.batch_ratio for record in records], "s", label=f"batch of {BATCH}")
    axes.axhline(1.0, color="#999999", linewidth=1, label="SciPy's Radau")
    names = [f"{record.problem}, {record.tolerance:.0e}" for record in records]
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right", fontsize=7)
    label(axes, "", "seconds per sample over SciPy's", log="y")
    return figure
