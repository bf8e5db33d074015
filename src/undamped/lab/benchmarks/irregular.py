"""Samples at times of their own: every series on its own stamps, beside one grid for all of them.

Fifty series with fifty real-valued stamps each have 2500 stamps together. A program with one list
of times for a batch goes through all of them, with 49 of 50 updates masked; ours takes the next
sample of each series, whatever their times, and flows each over its own gap.

    undamped bench irregular
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError
from undamped._base.registry import benchmarks
from undamped.lab.benchmarks.tables import markdown_table, step_bars, terminal_table
from undamped.lab.benchmarks.timing import Timing, interleaved
from undamped.models.irregular.neural_cde import NeuralCDE
from undamped.models.irregular.ode_rnn import ODERNN

FEATURES, HIDDEN = 2, 20
OURS, UNION = "ode-rnn", "ode-rnn on one grid for all"
THEIRS = "ODE-RNN with torchdiffeq, one grid"
CDE, THEIR_CDE = "neural-cde", "neural CDE with torchcde"
HEADER = ("step", "ms", "as a multiple")
WANTED = 8.0
"""How many times as long one grid should take at least."""


@dataclass(frozen=True)
class IrregularBenchmark:
    """All measurements of one run.

    Args:
        threads: How many torch had.
        series: Series of the batch.
        stamps: Stamps of each.
        timings: Seconds of a training step, by candidate.
        apart: The largest difference of a state between own stamps and one grid, in double
            precision, with a solver of tolerance 1e-8.
    """

    threads: int
    series: int
    stamps: int
    timings: dict[str, Timing]
    apart: float

    def times(self, name: str, base: str = OURS) -> float:
        """How many times as long a candidate takes as another."""
        return self.timings[name].over(self.timings[base])

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers for JSON."""
        return {
            "threads": self.threads,
            "series": self.series,
            "stamps": self.stamps,
            "timings": {name: timing.to_dict() for name, timing in self.timings.items()},
            "union_over_own": self.times(UNION),
            "torchdiffeq_over_own": self.times(THEIRS),
            "torchcde_over_ours": self.times(THEIR_CDE, CDE),
            "largest_difference": self.apart,
        }

    def rows(self) -> list[tuple[str, str, str]]:
        """Return the timings as a table."""
        return [
            (name, f"{1000 * timing.median:.1f}", f"{timing.over(self.timings[OURS]):.1f}")
            for name, timing in self.timings.items()
        ]

    @property
    def _about(self) -> str:
        return (
            f"A training step on {self.series} series with {self.stamps} stamps of their own; "
            f"{self.threads} threads"
        )

    @property
    def _agreement(self) -> str:
        return f"Own stamps and one grid differ by at most {self.apart:.1e} (float64)."

    def markdown(self) -> str:
        """Return the table for the documentation."""
        table = markdown_table(HEADER, self.rows())
        return "\n\n".join([f"{self._about}.", table, self._agreement]) + "\n"

    def summary(self) -> Any:
        """Return a table for the terminal."""
        said = "as wanted" if self.times(UNION) >= WANTED else "less than wanted"
        caption = f"One grid: {self.times(UNION):.1f} times ({said}, ≥ {WANTED:g}). "
        return terminal_table(HEADER, self.rows(), self._about, caption + self._agreement)

    def figures(self) -> dict[str, Any]:
        """Return the picture: one bar for each candidate."""
        return {"steps": step_bars(self.timings, self._about, log=True)}


@benchmarks.register("irregular")
def run(
    *, rounds: int = 3, quick: bool = False, tick: Callable[[str], None] | None = None
) -> IrregularBenchmark:
    """ODE-RNN and Neural CDE on stamps of their own, beside one grid, torchdiffeq and torchcde.

    Args:
        rounds: How often each candidate is timed.
        quick: A few short series, to see that it works.
        tick: Called with a candidate's name after every run.

    Example:
        >>> result = run(rounds=1, quick=True)
        >>> result.times("ode-rnn on one grid for all")
    """
    try:
        import torchcde  # noqa: F401
        import torchdiffeq  # noqa: F401
    except ModuleNotFoundError as missing:
        raise OptionError(
            f"bench irregular: expected the package {missing.name}, got none. Install it with "
            f"pip install {missing.name}."
        ) from None
    series, stamps = (4, 6) if quick else (50, 50)
    torch.manual_seed(0)
    x = torch.randn(stamps, series, FEATURES)
    times = torch.rand(stamps, series, dtype=torch.float64).cumsum(0)
    ours = ODERNN(FEATURES, HIDDEN, field_size=100, missing=True)
    theirs = _TorchODERNN(ours)
    cde = NeuralCDE(FEATURES, HIDDEN)
    grid, rows, there = one_grid(x, times)
    shared = grid.unsqueeze(1).expand(-1, series)
    everything = torch.ones_like(x, dtype=torch.bool)
    candidates = {
        OURS: _step(ours, lambda: ours(x, times, everything)[1][0]),
        UNION: _step(ours, lambda: ours(rows, shared, there)[1][0]),
        THEIRS: _step(theirs, lambda: theirs(grid.float(), rows, there)),
        CDE: _step(cde, lambda: cde(x, times)[1][0]),
        THEIR_CDE: _step(cde, partial(_torch_cde, cde, x, times.float())),
    }
    timings = interleaved(candidates, rounds=rounds, warmup=1, tick=tick)
    return IrregularBenchmark(torch.get_num_threads(), series, stamps, timings, _apart(x, times))


def one_grid(x: Tensor, times: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return all stamps of all series, the values there, and where there are some.

    Args:
        x: (time, series, features).
        times: (time, series).
    """
    grid = torch.unique(times)
    place = torch.searchsorted(grid, times.T.contiguous()).T.unsqueeze(-1).expand_as(x)
    rows = x.new_zeros(len(grid), *x.shape[1:]).scatter(0, place, x)
    there = torch.zeros_like(rows, dtype=torch.bool).scatter(0, place, True)
    return grid, rows, there


@torch.no_grad()
def _apart(x: Tensor, times: Tensor) -> float:
    """Compare own stamps with one grid, for a few of the series and in double precision."""
    few, stamps = x[:12, :6].double(), times[:12, :6]
    torch.manual_seed(1)
    net = ODERNN(FEATURES, HIDDEN, method="dopri5", tolerance=1e-8, missing=True).double()
    _, own = net(few, stamps, torch.ones_like(few, dtype=torch.bool))
    grid, rows, there = one_grid(few, stamps)
    states, _ = net.states(rows, grid.unsqueeze(1).expand(-1, few.shape[1]), there)
    # On one grid a state flows on after its last sample; compare it there.
    last = torch.searchsorted(grid, stamps[-1])
    union = states[0][last, torch.arange(few.shape[1])]
    return float((own[0] - union).abs().max())


def _step(model: nn.Module, answer: Callable[[], Tensor]) -> Callable[[], None]:
    """Return a training step without its update."""

    def step() -> None:
        model.zero_grad()
        answer().square().mean().backward()

    return step


class _TorchODERNN(nn.Module):
    """An ODE-RNN as one writes it with torchdiffeq: all stamps of a batch, masked updates."""

    def __init__(self, like: ODERNN) -> None:
        super().__init__()
        self.field = like.gap_flow.field
        self.cell = nn.GRUCell(2 * FEATURES, HIDDEN)

    def forward(self, grid: Tensor, rows: Tensor, there: Tensor) -> Tensor:
        """Return the state after the last stamp, (series, hidden)."""
        from torchdiffeq import odeint

        state, before = rows.new_zeros(rows.shape[1], HIDDEN), grid.new_zeros(())
        for stamp, x, seen in zip(grid, rows, there, strict=True):
            if stamp > before:
                between = torch.stack([before, stamp])
                solved: Any = odeint(self.field, state, between, method="rk4")
                state = solved[-1]
            moved = self.cell(torch.cat([x, seen.to(x.dtype)], -1), state)
            state, before = torch.where(seen.any(-1, keepdim=True), moved, state), stamp
        return state


def _torch_cde(cde: NeuralCDE, x: Tensor, times: Tensor) -> Tensor:
    """Return the last state of the same network by torchcde; its time is the number of a sample."""
    import torchcde

    path = torch.cat([times.unsqueeze(-1), x], -1).transpose(0, 1)
    curve = torchcde.LinearInterpolation(torchcde.linear_interpolation_coeffs(path))

    class Field(nn.Module):
        def forward(self, t: Tensor, z: Tensor) -> Tensor:
            return cde.matrix(z)

    found: Any = torchcde.cdeint(
        curve,
        Field(),
        cde.enter(path[:, 0]),
        curve.interval,
        adjoint=False,
        backend="torchdiffeq",
        method="rk4",
        options={"step_size": 1.0},
    )
    return found[:, -1]
