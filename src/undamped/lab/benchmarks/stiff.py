"""Implicit methods compared with SciPy's Radau on the stiff test set: calls, seconds, errors.

Both sides count calls of the field and Jacobians separately, and call the same field, written in
torch. SciPy's seconds with the field written in NumPy, which is many times as fast on three
numbers, are printed too. Candidates are timed in turn, in seconds of this process where torch has
one thread, and summarised by their fastest round.

Reference:
    E. Hairer, G. Wanner. Solving ordinary differential equations II, sections IV.1 and IV.10.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undamped._base.options import PositiveInt
from undamped.lab.benchmarks.timing import benchmark, cpu_clock, interleaved
from undamped.lab.report.charts import label, panels
from undamped.lab.report.table import Progress, Report, Table, silent
from undamped.ode import solve

Array = np.ndarray


@dataclass(frozen=True)
class StiffProblem:
    """One problem.

    Args:
        name: Its name.
        field: f(t, y) of torch, for (…, size).
        plain: The same of NumPy, for (size,).
        start: y at t = 0.
        end: Time to solve to.
        atol: Absolute tolerance over the relative one.
    """

    name: str
    field: Callable[[Any, Tensor], Tensor]
    plain: Callable[[float, Array], Array]
    start: Array
    end: float
    atol: float = 1e-2

    def batch(self, count: int) -> Tensor:
        """Return slightly different starts."""
        start = torch.from_numpy(self.start)
        return start * torch.linspace(1.0, 1.01, count, dtype=start.dtype).unsqueeze(1)


def _both(
    equations: Callable[..., tuple[Any, ...]],
) -> tuple[Callable[[Any, Tensor], Tensor], Callable[[float, Array], Array]]:
    """Return a field of torch and one of NumPy from equations for single components."""

    def field(t: Any, y: Tensor) -> Tensor:
        return torch.stack(equations(*y.unbind(-1)), dim=-1)

    def plain(t: float, y: Array) -> Array:
        return np.array(equations(*y))

    return field, plain


def _robertson(a: Any, b: Any, c: Any) -> tuple[Any, ...]:
    slow, back, fast = 0.04 * a, 1e4 * b * c, 3e7 * b * b
    return back - slow, slow - back - fast, fast


def _hires(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> tuple[Any, ...]:
    bound = 280.0 * f * h
    return (
        -1.71 * a + 0.43 * b + 8.32 * c + 0.0007,
        1.71 * a - 8.75 * b,
        -10.03 * c + 0.43 * d + 0.035 * e,
        8.32 * b + 1.71 * c - 1.12 * d,
        -1.745 * e + 0.43 * f + 0.43 * g,
        -bound + 0.69 * d + 1.71 * e - 0.43 * f + 0.69 * g,
        bound - 1.81 * g,
        -bound + 1.81 * g,
    )


def _van_der_pol(x: Any, v: Any) -> tuple[Any, ...]:
    return v, 1e6 * ((1 - x * x) * v - x)


def _oregonator(a: Any, b: Any, c: Any) -> tuple[Any, ...]:
    return (77.27 * (b + a * (1 - 8.375e-6 * a - b)), (c - (1 + a) * b) / 77.27, 0.161 * (a - c))


def _diffusion(y: Any, first: Any, last: Any, cat: Callable[..., Any]) -> Any:
    """Return second differences along the last dimension, with values beyond both ends."""
    padded = cat((first, y, last), -1)
    return padded[..., 2:] - 2 * y + padded[..., :-2]


def _brusselator(points: int) -> StiffProblem:
    scale = (points + 1) ** 2 / 50

    def reaction(y: Any, cat: Callable[..., Any], like: Callable[..., Any]) -> tuple[Any, Any]:
        u, v = y[..., 0::2], y[..., 1::2]
        ones, threes = like(u[..., :1]), 3 * like(u[..., :1])
        rate = u * u * v
        return (
            1 + rate - 4 * u + scale * _diffusion(u, ones, ones, cat),
            3 * u - rate + scale * _diffusion(v, threes, threes, cat),
        )

    def field(t: Any, y: Tensor) -> Tensor:
        return torch.stack(reaction(y, torch.cat, torch.ones_like), dim=-1).flatten(-2)

    def plain(t: float, y: Array) -> Array:
        return np.stack(reaction(y, np.concatenate, np.ones_like), axis=-1).reshape(-1)

    x = np.arange(1, points + 1) / (points + 1)
    start = np.stack((1 + np.sin(2 * np.pi * x), np.full_like(x, 3.0)), axis=-1).reshape(-1)
    return StiffProblem(f"Brusselator, {points} points", field, plain, start, 10.0)


def _heat(points: int) -> StiffProblem:
    scale = float((points + 1) ** 2)

    def field(t: Any, y: Tensor) -> Tensor:
        ends = torch.zeros_like(y[..., :1])
        return scale * _diffusion(y, ends, ends, torch.cat)

    def plain(t: float, y: Array) -> Array:
        ends = np.zeros_like(y[..., :1])
        return scale * _diffusion(y, ends, ends, np.concatenate)

    x = np.arange(1, points + 1) / (points + 1)
    start = np.sin(np.pi * x) + 0.5 * (np.abs(x - 0.5) < 0.2)
    return StiffProblem(f"heat, {points} points", field, plain, start, 0.5)


def problems(quick: bool) -> list[StiffProblem]:
    """Return the test set; the first two problems if `quick`."""
    small = [
        StiffProblem("Robertson", *_both(_robertson), np.array([1.0, 0, 0]), 1e11, 1e-4),
        StiffProblem("HIRES", *_both(_hires), np.array([1.0, 0, 0, 0, 0, 0, 0, 0.0057]), 321.8122),
    ]
    if quick:
        return small
    return [
        *small,
        StiffProblem("Van der Pol", *_both(_van_der_pol), np.array([2.0, 0.0]), 2.0),
        StiffProblem("Oregonator", *_both(_oregonator), np.array([1.0, 2.0, 3.0]), 360.0),
        _brusselator(40),
        _heat(300),
    ]


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
    "target",
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


@benchmark("stiff")
def run(
    *,
    method: str = "radau5",
    tolerance: float | None = None,
    batch: PositiveInt = 16,
    rounds: int = 3,
    quick: bool = False,
    progress: Progress = silent,
) -> Report:
    """Implicit methods compared with SciPy's Radau on the stiff test set: calls, seconds, errors.

    Args:
        method: Our method, by its name.
        tolerance: The only tolerance; 1e-4 and 1e-7 by default.
        batch: Number of samples of a batch.
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
            records.append(_compare(problem, each, method, batch, rounds, reference, progress))
    return Report(
        records,
        [Table(HEADER, [record.row() for record in records])],
        {"stiff_seconds": lambda: _figure(records, batch)},
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
    count: int,
    rounds: int,
    reference: np.ndarray,
    progress: Progress,
) -> StiffTiming:
    atol = tolerance * problem.atol
    single, batch = torch.from_numpy(problem.start), problem.batch(count)
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
    seconds[BATCHED] /= count
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


def _figure(records: Sequence[StiffTiming], batch: int) -> Any:
    figure, (axes,) = panels(7, 3.6)
    axes.plot([record.second_ratio for record in records], "o", label="one sample")
    axes.plot([record.batch_ratio for record in records], "s", label=f"batch of {batch}")
    axes.axhline(1.0, color="#999999", linewidth=1, label="SciPy's Radau")
    names = [f"{record.problem}, {record.tolerance:.0e}" for record in records]
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right", fontsize=7)
    label(axes, "", "seconds per sample over SciPy's", log="y")
    return figure
