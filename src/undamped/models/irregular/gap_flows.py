"""What a state does while nothing is measured: a field that is solved, a decay, rotations.

Each sample of a batch has its own gap, and all are flowed over at once: the field is solved in
scaled time, dy/ds = Δt f(y) for s from 0 to 1, so that one solve with one grid serves every gap.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError, explain
from undamped._base.options import PositiveFloat, PositiveInt
from undamped.ode import solve
from undamped.ode.methods.combine import Terms
from undamped.ode.methods.explicit.runge_kutta import RungeKutta
from undamped.ode.methods.explicit.tableau import Tableau
from undamped.ode.settings import choose_solver

SLOWEST, FASTEST = 0.01, 1.0
"""Rates at which decays and rotations start, per usual gap: from a hundred gaps to one."""

STABLE_STEP = 2.5
"""In usual gaps: over longer steps of rk4 a field that decays at rates up to 1 would grow."""


class GapFlow(nn.Module, ABC):
    """A flow over gaps of unequal length: rows (rows, size) and gaps (rows,) to rows."""

    evaluations: int = 0
    """How often the last flow called a field."""

    @abstractmethod
    def forward(self, y: Tensor, gaps: Tensor) -> Tensor:
        """Return where rows are after their gaps."""


class SolvedFlow(GapFlow):
    """The flow of an autonomous field, solved over each row's own gap.

    Args:
        field: dy/dt, a module called with (t, y); t is always 0, since a flow that begins anew at
            every sample has no time of its own.
        method: The solver.
        steps: Steps per gap, each as long as its gap demands.
        tolerance: Instead of a number of steps: how exact each row has to be, with steps of its
            own.
        longest_step: How long a step of a Runge-Kutta method may be, in usual gaps; a row whose gap
            needs more steps takes them.
    """

    def __init__(
        self,
        field: nn.Module,
        *,
        method: str = "rk4",
        steps: PositiveInt = 1,
        tolerance: PositiveFloat | None = None,
        longest_step: PositiveFloat | None = None,
    ) -> None:
        super().__init__()
        self.longest_step = longest_step
        self.field, self.method = field, method
        self.steps, self.tolerance = steps, tolerance
        solver = choose_solver(method)
        if tolerance is not None and not solver.adaptive:
            raise OptionError(
                explain(
                    "tolerance",
                    expected=f"none with '{solver.name}', which takes fixed steps",
                    got=f"{tolerance:g}",
                    remedy="Choose method=dopri5, or say steps= instead.",
                )
            )
        if tolerance is not None and steps != 1:
            raise OptionError(
                "steps: expected to be left out beside tolerance, which chooses them, got "
                f"{steps}. Leave out one of the two."
            )
        self._tableau = solver.tableau if isinstance(solver, RungeKutta) else None

    def forward(self, y: Tensor, gaps: Tensor) -> Tensor:
        """Return where rows are after their gaps."""
        size = gaps.unsqueeze(-1).to(y.dtype)
        if self.tolerance is None and self._tableau is not None:
            step, counts = size / self.steps if self.steps > 1 else size, None
            most = self.steps
            if self.longest_step is not None and bool((step > self.longest_step).any()):
                counts = (size / self.longest_step).ceil().clamp(min=self.steps)
                step, most = size / counts, int(counts.max())
            self.evaluations = most * len(self._tableau.nodes)
            for number in range(most):
                if counts is not None:  # a row whose gap is over stays where it is
                    step = torch.where(number < counts, step, 0.0)
                y = runge_kutta_step(self._tableau, self.field, y, step)
            return y
        return self._solved(y, size)

    def _solved(self, y: Tensor, size: Tensor) -> Tensor:
        def scaled(_: Any, state: Tensor) -> Tensor:
            return size * self.field(0.0, state)

        how: dict[str, Any] = {"options": {"step_size": 1 / self.steps}}
        if self.tolerance is not None:
            # Steps of its own for each row: otherwise the others' errors would choose them.
            how = {"rtol": self.tolerance, "atol": self.tolerance, "steps": "sample"}
            scaled = _Rowwise(self.field, size)
        solution = solve(scaled, y, [0.0, 1.0], method=self.method, gradient="backprop", **how)
        self.evaluations = solution.evaluations
        return solution.final


class _Rowwise(nn.Module):
    """Δt f(y) with the gaps of the rows beside the field."""

    def __init__(self, field: nn.Module, size: Tensor) -> None:
        super().__init__()
        self.field, self.size = field, size

    def forward(self, t: Any, y: Tensor) -> Tensor:
        return self.size * self.field(0.0, y)


def runge_kutta_step(tableau: Tableau, field: nn.Module, y: Tensor, size: Tensor) -> Tensor:
    """Make one explicit step, each row with a size of its own (rows, 1)."""
    taken = [field(0.0, y)]
    for terms in tableau.row_terms:
        taken.append(field(0.0, _ahead(y, size, terms, taken)))
    return _ahead(y, size, tableau.weight_terms, taken)


def _ahead(y: Tensor, size: Tensor, terms: Terms, taken: list[Tensor]) -> Tensor:
    """Return y + size · Σ a_j k_j."""
    pairs = list(terms)
    if len(pairs) == 1:
        (place, factor), *_ = pairs
        return torch.addcmul(y, size, taken[place], value=factor)
    (place, factor), *rest = pairs
    total = taken[place] * factor
    for place, factor in rest:
        total = torch.add(total, taken[place], alpha=factor)
    return torch.addcmul(y, size, total)


class Decay(GapFlow):
    """Every unit decays at its own rate: y exp(−r Δt).

    Args:
        size: How many units.
    """

    def __init__(self, size: PositiveInt) -> None:
        super().__init__()
        self.log_rate = nn.Parameter(_spread(size))

    def forward(self, y: Tensor, gaps: Tensor) -> Tensor:
        """Return what is left after the gaps."""
        return y * torch.exp(-gaps.unsqueeze(-1).to(y.dtype) * self.log_rate.exp())


class Modes(GapFlow):
    """Pairs of units turn at their own frequencies, and decay if they are damped.

    Args:
        size: How many units; even.
        damped: Whether pairs also decay, at rates that are learnt.
    """

    def __init__(self, size: PositiveInt, *, damped: bool = False) -> None:
        super().__init__()
        if size % 2:
            raise OptionError(
                explain(
                    "hidden_size",
                    expected="an even number, since units turn in pairs",
                    got=size,
                    remedy="Add or leave out one.",
                )
            )
        self.frequency = nn.Parameter(_spread(size // 2).exp())
        self.log_rate = nn.Parameter(_spread(size // 2) - math.log(10.0)) if damped else None

    def forward(self, y: Tensor, gaps: Tensor) -> Tensor:
        """Return where the pairs are after the gaps."""
        # Whole turns are taken off in double precision: after many of them single precision no
        # longer holds the angle.
        angle = torch.remainder(gaps.unsqueeze(-1).double() * self.frequency, 2 * math.pi)
        angle = angle.to(y.dtype)
        cos, sin = angle.cos(), angle.sin()
        if self.log_rate is not None:
            left = torch.exp(-gaps.unsqueeze(-1).to(y.dtype) * self.log_rate.exp())
            cos, sin = cos * left, sin * left
        a, b = y.chunk(2, dim=-1)
        return torch.cat([cos * a - sin * b, sin * a + cos * b], -1)


def _spread(size: int) -> Tensor:
    """Return logarithms of rates, evenly from the slowest to the fastest."""
    return torch.linspace(math.log(SLOWEST), math.log(FASTEST), size)
