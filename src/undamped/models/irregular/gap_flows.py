"""Flows of a state between samples: a field that is solved, a decay, rotations.

Each sample of a batch has its own gap, and all are solved at once: the field is solved in scaled
time, dy/ds = Δt f(y) for s from 0 to 1, so that one solve with one grid serves every gap.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError
from undamped._base.options import PositiveFloat, PositiveInt
from undamped.ode import solve
from undamped.ode.fields.gru_field import GRUField
from undamped.ode.fields.heavy_ball import HeavyBallField
from undamped.ode.fields.perceptron import (
    BottleneckField,
    ConcatSquashField,
    PerceptronField,
    RotatingField,
)
from undamped.ode.methods.explicit.runge_kutta import RungeKutta
from undamped.ode.methods.stages import Tableau, Terms
from undamped.ode.settings import choose_solver

SLOWEST, FASTEST = 0.01, 1.0
"""Initial rates of decays and rotations, per usual gap: from a hundred gaps to one."""

STABLE_STEP = 2.5
"""In usual gaps: with longer steps rk4 is unstable for a field that decays at rates up to 1."""


class GapFlow(nn.Module, ABC):
    """A flow of rows (rows, size) over gaps (rows,) of unequal length."""

    evaluations: int = 0
    """Evaluations of the field in the last flow."""

    @abstractmethod
    def forward(self, y: Tensor, gaps: Tensor) -> Tensor:
        """Return the rows after their gaps."""


class SolvedFlow(GapFlow):
    """The flow of an autonomous field, solved over each row's own gap.

    Args:
        field: dy/dt, a module called with (t, y); t is always 0.
        method: The solver.
        steps: Equal steps per gap.
        tolerance: Tolerance of each row, which has its own steps, instead of a number of steps.
        longest_step: Upper bound of a Runge-Kutta step, in usual gaps; rows with long gaps take
            more steps.
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
                f"'{solver.name}' has fixed steps and no tolerance, got tolerance={tolerance:g}. "
                "Choose method=dopri5, or set steps instead."
            )
        if tolerance is not None and steps != 1:
            raise OptionError(f"steps={steps} and tolerance={tolerance:g} exclude each other.")
        self._tableau = solver.tableau if isinstance(solver, RungeKutta) else None

    def forward(self, y: Tensor, gaps: Tensor) -> Tensor:
        size = gaps.unsqueeze(-1).to(y.dtype)
        if self.tolerance is None and self._tableau is not None:
            step, counts = size / self.steps if self.steps > 1 else size, None
            most = self.steps
            if self.longest_step is not None and bool((step > self.longest_step).any()):
                counts = (size / self.longest_step).ceil().clamp(min=self.steps)
                step, most = size / counts, int(counts.max())
            self.evaluations = most * len(self._tableau.nodes)
            for index in range(most):
                if counts is not None:  # rows whose gap is over do not move
                    step = torch.where(index < counts, step, 0.0)
                y = runge_kutta_step(self._tableau, self.field, y, step)
            return y
        return self._solved(y, size)

    def _solved(self, y: Tensor, size: Tensor) -> Tensor:
        arguments: dict[str, Any] = {"options": {"step_size": 1 / self.steps}}
        if self.tolerance is not None:
            # Each row has its own steps, so that they do not depend on the other rows.
            arguments = {"rtol": self.tolerance, "atol": self.tolerance, "steps": "sample"}
        arguments |= {"method": self.method, "gradient": "backprop"}
        solution = solve(_Rowwise(self.field, size), y, [0.0, 1.0], **arguments)
        self.evaluations = solution.evaluations
        return solution.final

    def solve_finely(self, y: Tensor, gap: float) -> Tensor:
        """Return rows after a gap, forward or backward, solved with a small tolerance."""
        return SolvedFlow(self.field, method="dopri5", tolerance=1e-8)(
            y, y.new_full((len(y),), gap)
        )


class _Rowwise(nn.Module):
    """Δt f(y), with one gap per row."""

    def __init__(self, field: nn.Module, size: Tensor) -> None:
        super().__init__()
        self.field, self.size = field, size

    def forward(self, t: Any, y: Tensor) -> Tensor:
        return self.size * self.field(0.0, y)


def runge_kutta_step(tableau: Tableau, field: nn.Module, y: Tensor, size: Tensor) -> Tensor:
    """Return y after one explicit step, with one size per row, (rows, 1)."""
    slopes = [field(0.0, y)]
    for terms in tableau.row_terms:
        slopes.append(field(0.0, _combine(y, size, terms, slopes)))
    return _combine(y, size, tableau.weight_terms, slopes)


def _combine(y: Tensor, size: Tensor, terms: Terms, slopes: list[Tensor]) -> Tensor:
    """Return y + size · Σ a_j k_j."""
    pairs = list(terms)
    if len(pairs) == 1:
        (stage, factor), *_ = pairs
        return torch.addcmul(y, size, slopes[stage], value=factor)
    (stage, factor), *rest = pairs
    total = slopes[stage] * factor
    for stage, factor in rest:
        total = torch.add(total, slopes[stage], alpha=factor)
    return torch.addcmul(y, size, total)


class Decay(GapFlow):
    """Each of `size` units decays at its own rate: y exp(−r Δt)."""

    def __init__(self, size: PositiveInt) -> None:
        super().__init__()
        self.log_rate = nn.Parameter(_spread(size))

    def forward(self, y: Tensor, gaps: Tensor) -> Tensor:
        return y * torch.exp(-gaps.unsqueeze(-1).to(y.dtype) * self.log_rate.exp())


class Modes(GapFlow):
    """Pairs of units rotate at their own frequencies, and decay if they are damped.

    Args:
        size: Number of units; even.
        damped: Whether pairs also decay, at learned rates.
    """

    def __init__(self, size: PositiveInt, *, damped: bool = False) -> None:
        super().__init__()
        if size % 2:
            raise OptionError(f"hidden_size must be even, since units rotate in pairs, got {size}.")
        self.frequency = nn.Parameter(_spread(size // 2).exp())
        self.log_rate = nn.Parameter(_spread(size // 2) - math.log(10.0)) if damped else None

    def forward(self, y: Tensor, gaps: Tensor) -> Tensor:
        # Full turns are removed in double precision, since single precision cannot represent a
        # large angle well enough.
        angle = torch.remainder(gaps.unsqueeze(-1).double() * self.frequency, 2 * math.pi)
        angle = angle.to(y.dtype)
        cos, sin = angle.cos(), angle.sin()
        if self.log_rate is not None:
            decay = torch.exp(-gaps.unsqueeze(-1).to(y.dtype) * self.log_rate.exp())
            cos, sin = cos * decay, sin * decay
        a, b = y.chunk(2, dim=-1)
        return torch.cat([cos * a - sin * b, sin * a + cos * b], -1)


def _spread(size: int) -> Tensor:
    """Return evenly spaced logarithms of rates, from the slowest to the fastest."""
    return torch.linspace(math.log(SLOWEST), math.log(FASTEST), size)


FieldName = Literal["perceptron", "rotating", "gru", "heavy-ball", "bottleneck", "concat-squash"]

_FIELDS: dict[str, Callable[[int, int, int], nn.Module]] = {
    "perceptron": lambda size, width, layers: PerceptronField(
        size, width, hidden_layers=layers, time=False
    ),
    "rotating": lambda size, width, layers: RotatingField(size, width, hidden_layers=layers),
    "gru": lambda size, width, layers: GRUField(size),
    "heavy-ball": lambda size, width, layers: HeavyBallField(
        PerceptronField(size // 2, width, hidden_layers=layers, time=False)
    ),
    "bottleneck": lambda size, width, layers: BottleneckField(size, max(1, size // 2), width),
    "concat-squash": lambda size, width, layers: ConcatSquashField(
        size, width, hidden_layers=layers
    ),
}


def field_named(name: str, size: int, width: int, layers: int) -> nn.Module:
    """Build a field of a state of that size; width and layers are those of hidden layers."""
    if name == "heavy-ball" and size % 2:
        raise OptionError(
            f"hidden_size must be even with field=heavy-ball (positions, momenta), got {size}."
        )
    return _FIELDS[name](size, width, layers)
