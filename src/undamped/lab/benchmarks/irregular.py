"""Irregularly sampled series: every series at its timestamps, beside one time grid for a batch.

Fifty series with fifty real-valued timestamps each have 2500 timestamps together. A program with
one list of times for a batch computes all of them, with 49 of 50 updates masked; ours takes the
next sample of each series, whatever its time, and integrates each over its gap.

    undamped bench irregular
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError
from undamped.lab.benchmarks.timing import benchmark, interleaved, milliseconds, timing_table
from undamped.lab.report.charts import bar_chart
from undamped.lab.report.table import Progress, Report, silent
from undamped.models.irregular.elapsed_time import NeuralCDE
from undamped.models.irregular.gap_rnn import ODERNN

FEATURES, HIDDEN = 2, 20
OURS, UNION = "ode-rnn", "ode-rnn on one grid for all"
TORCHDIFFEQ = "ODE-RNN with torchdiffeq, one grid"
CDE, TORCHCDE = "neural-cde", "neural CDE with torchcde"
TARGET = 8.0
"""Smallest ratio of the time on one grid."""


@benchmark("irregular")
def run(*, rounds: int = 3, quick: bool = False, progress: Progress = silent) -> Report:
    """ODE-RNN and Neural CDE on irregular timestamps, beside one grid, torchdiffeq and torchcde.

    Args:
        rounds: How often each candidate is timed.
        quick: A few short series.
        progress: Called with the name of a candidate after every run.

    Example:
        >>> result = run(rounds=1, quick=True)
        >>> result.numbers["union_over_own"]
    """
    try:
        import torchcde  # noqa: F401
        import torchdiffeq  # noqa: F401
    except ModuleNotFoundError as missing:
        raise OptionError(
            f"bench irregular needs the package {missing.name}. Install it with "
            f"pip install {missing.name}."
        ) from None
    series, timestamps = (4, 6) if quick else (50, 50)
    torch.manual_seed(0)
    x = torch.randn(timestamps, series, FEATURES)
    times = torch.rand(timestamps, series, dtype=torch.float64).cumsum(0)
    ours = ODERNN(FEATURES, HIDDEN, field_size=100, missing=True)
    theirs = _TorchODERNN(ours)
    cde = NeuralCDE(FEATURES, HIDDEN)
    grid, rows, observed = one_grid(x, times)
    shared = grid.unsqueeze(1).expand(-1, series)
    all_observed = torch.ones_like(x, dtype=torch.bool)
    candidates = {
        OURS: _step(ours, lambda: ours(x, times, all_observed)[1][0]),
        UNION: _step(ours, lambda: ours(rows, shared, observed)[1][0]),
        TORCHDIFFEQ: _step(theirs, lambda: theirs(grid.float(), rows, observed)),
        CDE: _step(cde, lambda: cde(x, times)[1][0]),
        TORCHCDE: _step(cde, partial(_torch_cde, cde, x, times.float())),
    }
    timings = interleaved(candidates, rounds=rounds, warmup=1, progress=progress)
    difference, union = _largest_difference(x, times), timings[UNION].over(timings[OURS])
    verdict = "target met" if union >= TARGET else "target missed"
    notes = (
        f"Irregular timestamps and one grid differ by at most {difference:.1e} (float64).",
        f"One grid: {union:.1f} times ({verdict}, ≥ {TARGET:g}).",
    )
    title = (
        f"A training step on {series} series with {timestamps} different timestamps each; "
        f"{torch.get_num_threads()} threads."
    )
    bars = {"": milliseconds(timings)}
    return Report(
        [],
        [timing_table(timings, OURS, title, *notes, digits=1)],
        {"steps": lambda: bar_chart(bars, "ms per training step", title, log=True)},
        {
            "timings": timings,
            "union_over_own": union,
            "torchdiffeq_over_own": timings[TORCHDIFFEQ].over(timings[OURS]),
            "torchcde_over_ours": timings[TORCHCDE].over(timings[CDE]),
            "largest_difference": difference,
        },
        {"series": series, "timestamps": timestamps},
    )


def one_grid(x: Tensor, times: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return all timestamps of all series, the values at each, and a mask of observed values.

    Args:
        x: (time, series, features).
        times: (time, series).
    """
    grid = torch.unique(times)
    index = torch.searchsorted(grid, times.T.contiguous()).T.unsqueeze(-1).expand_as(x)
    rows = x.new_zeros(len(grid), *x.shape[1:]).scatter(0, index, x)
    observed = torch.zeros_like(rows, dtype=torch.bool).scatter(0, index, True)
    return grid, rows, observed


@torch.no_grad()
def _largest_difference(x: Tensor, times: Tensor) -> float:
    """Compare irregular timestamps with one grid, for a few series in double precision."""
    few, timestamps = x[:12, :6].double(), times[:12, :6]
    torch.manual_seed(1)
    net = ODERNN(FEATURES, HIDDEN, method="dopri5", tolerance=1e-8, missing=True).double()
    _, irregular = net(few, timestamps, torch.ones_like(few, dtype=torch.bool))
    grid, rows, observed = one_grid(few, timestamps)
    states, _ = net.states(rows, grid.unsqueeze(1).expand(-1, few.shape[1]), observed)
    # On one grid a state evolves after its last sample; compare it at that sample.
    last = torch.searchsorted(grid, timestamps[-1])
    union = states[0][last, torch.arange(few.shape[1])]
    return float((irregular[0] - union).abs().max())


def _step(model: nn.Module, answer: Callable[[], Tensor]) -> Callable[[], None]:
    """Return a training step without its update."""

    def step() -> None:
        model.zero_grad()
        answer().square().mean().backward()

    return step


class _TorchODERNN(nn.Module):
    """An ODE-RNN written with torchdiffeq: all timestamps of a batch, masked updates."""

    def __init__(self, like: ODERNN) -> None:
        super().__init__()
        self.field = like.gap_flow.field
        self.cell = nn.GRUCell(2 * FEATURES, HIDDEN)

    def forward(self, grid: Tensor, rows: Tensor, observed: Tensor) -> Tensor:
        """Return the state after the last timestamp, (series, hidden)."""
        from torchdiffeq import odeint

        state, before = rows.new_zeros(rows.shape[1], HIDDEN), grid.new_zeros(())
        for now, x, mask in zip(grid, rows, observed, strict=True):
            if now > before:
                between = torch.stack([before, now])
                solved: Any = odeint(self.field, state, between, method="rk4")
                state = solved[-1]
            updated = self.cell(torch.cat([x, mask.to(x.dtype)], -1), state)
            state, before = torch.where(mask.any(-1, keepdim=True), updated, state), now
        return state


def _torch_cde(cde: NeuralCDE, x: Tensor, times: Tensor) -> Tensor:
    """Return the last state of the same network by torchcde; its time is the index of a sample."""
    import torchcde

    path = torch.cat([times.unsqueeze(-1), x], -1).transpose(0, 1)
    curve = torchcde.LinearInterpolation(torchcde.linear_interpolation_coeffs(path))

    class Field(nn.Module):
        def forward(self, t: Tensor, z: Tensor) -> Tensor:
            return cde.matrix(z)

    states: Any = torchcde.cdeint(
        curve,
        Field(),
        cde.enter(path[:, 0]),
        curve.interval,
        adjoint=False,
        backend="torchdiffeq",
        method="rk4",
        options={"step_size": 1.0},
    )
    return states[:, -1]
