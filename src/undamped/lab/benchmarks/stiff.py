"""Implicit methods beside SciPy's Radau on the stiff test set: calls, seconds, errors.

Both sides count calls of the field and Jacobians apart, and call the same field, written in torch:
what somebody with such a field can choose between. Beside it stand SciPy's seconds with the field
written in NumPy, which is many times as fast on three numbers. Candidates are timed in turn, in
seconds of this process where torch has one thread, and summed up by their fastest round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undamped._base.registry import benchmarks
from undamped.lab.benchmarks.stiff_problems import StiffProblem, problems
from undamped.lab.benchmarks.stiff_tables import StiffBenchmark, StiffTiming
from undamped.lab.benchmarks.timing import interleaved, own_clock
from undamped.ode import solve

Tick = Callable[[str], None] | None
BATCH = 16


@benchmarks.register("stiff")
def run(
    *,
    method: str = "radau5",
    tolerance: float | None = None,
    rounds: int = 3,
    quick: bool = False,
    tick: Tick = None,
) -> StiffBenchmark:
    """Implicit methods beside SciPy's Radau on the stiff test set: calls, seconds, errors.

    Args:
        method: Ours, by its name.
        tolerance: The only tolerance; 1e-4 and 1e-7 by default.
        rounds: How often everything is timed.
        quick: Two problems at one tolerance, for a look.
        tick: Called with a name after every single run, for a progress bar.

    Example:
        >>> result = run(quick=True)
    """
    found = []
    tolerances = (1e-4,) if quick else (1e-4, 1e-7)
    for problem in problems(quick):
        for each in tolerances if tolerance is None else (tolerance,):
            reference = _scipy(problem, 1e-3 * each).y[:, -1]
            found.append(_compare(problem, each, method, rounds, reference, tick))
    return StiffBenchmark(tuple(found), method, BATCH, torch.get_num_threads())


def _scipy(problem: StiffProblem, tolerance: float, *, plain: bool = True) -> Any:
    from scipy.integrate import solve_ivp

    def through_torch(t: float, y: np.ndarray) -> np.ndarray:
        return problem.field(t, torch.from_numpy(y)).numpy()

    return solve_ivp(
        problem.plain if plain else through_torch,
        (0.0, problem.end),
        problem.start,
        method="Radau",
        rtol=tolerance,
        atol=tolerance * problem.atol,
    )


class _Counted:
    """A field that tells evaluations from those that a Jacobian is taken from."""

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
    tick: Tick,
) -> StiffTiming:
    atol = tolerance * problem.atol
    one, many = torch.from_numpy(problem.start), problem.batch(BATCH)
    batch = solver_options(method)

    @torch.no_grad()
    def ours(start: Tensor, field: Any, **more: Any) -> Any:
        times = [0.0, problem.end]
        return solve(field, start, times, method=method, rtol=tolerance, atol=atol, **more)

    counted = _Counted(problem.field)
    solution, theirs = ours(one, counted), _scipy(problem, tolerance)
    candidates = {
        "undamped": lambda: ours(one, problem.field),
        "SciPy": lambda: _scipy(problem, tolerance, plain=False),
        "SciPy, NumPy field": lambda: _scipy(problem, tolerance),
        "undamped, batch": lambda: ours(many, problem.field, **batch),
    }
    seconds = interleaved(candidates, rounds=rounds, warmup=0, clock=own_clock(), tick=tick)
    scale = np.abs(reference) + problem.atol
    return StiffTiming(
        problem=problem.name,
        tolerance=tolerance,
        calls={"undamped": counted.plain, "SciPy": int(theirs.nfev)},
        jacobians={"undamped": counted.jacobians, "SciPy": int(theirs.njev)},
        errors={
            "undamped": float(np.abs((solution.final.numpy() - reference) / scale).max()),
            "SciPy": float(np.abs((theirs.y[:, -1] - reference) / scale).max()),
        },
        seconds={name: timing.spread[0] for name, timing in seconds.items()},
        batch=BATCH,
    )


def solver_options(method: str) -> dict[str, Any]:
    """Return how a batch is solved: with steps of their own where the method can."""
    from undamped._base.registry import solvers

    return {"steps": "sample"} if solvers[method].per_sample else {}
