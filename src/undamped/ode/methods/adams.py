"""Adams methods: several steps back for the price of one evaluation a step.

The polynomial through the last slopes is integrated over the step, whatever the distances
between them, so that steps may end at output times. The first steps, which have no past, are
taken with the classical Runge–Kutta method; so are those after a change of direction.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped._base.options import PositiveInt, Range
from undamped.ode.methods.explicit.methods import RK4
from undamped.ode.methods.solver import (
    Field,
    Number,
    Solver,
    SolverState,
    StepResult,
    register_solver,
)
from undamped.ode.methods.stages import combine, stage_times

Order = Annotated[int, Range(low=2, high=8)]


@lru_cache(maxsize=1024)
def _weights(nodes: tuple[float, ...]) -> tuple[float, ...]:
    """Return ∫₀¹ of the Lagrange polynomials of nodes, in units of the step."""
    points = np.array(nodes)
    powers = np.arange(len(points))
    # Weights that integrate every power up to the number of nodes exactly.
    return tuple(np.linalg.solve(points[None, :] ** powers[:, None], 1 / (powers + 1)).tolist())


class Adams(Solver):
    """What both methods share: the past, and how it is begun.

    Args:
        order: Order, which is the number of slopes used.
    """

    start_method = RK4()

    def __init__(self, order: Order = 4) -> None:
        self.order = order

    def start(self, field: Field, t: Number, y: Tensor) -> SolverState:
        """Begin without a past: its times are a count of slopes known, and when each was."""
        clock = torch.zeros(self.order, dtype=torch.float64, device=y.device)
        return (y, *(torch.zeros_like(y) for _ in range(self.order - 1)), clock)

    def step(self, field: Field, t: Number, h: Number, state: SolverState) -> StepResult:
        """Step with the past, or with the classical method while there is none."""
        if isinstance(h, Tensor) or isinstance(t, Tensor):
            raise OptionError(f"{self.name}: expected one step size for the batch, got several.")
        y, *past, past_clock = state
        count, *times = past_clock.tolist()
        slope = field(stage_times(t, h, (0.0,), y)[0], y)
        nodes = (0.0, *(round((time - t) / h, 12) for time in times))
        if count < self.order - 1 or any(b >= a for a, b in itertools.pairwise(nodes)):
            y1 = self.start_method.stages(field, t, h, y, first=slope)[0]
        else:
            y1 = self.advance(field, t, h, y, [slope, *past], nodes)
        entries = [count + 1, t, *times[:-1]] if times else [count + 1]
        clock = torch.tensor(entries, dtype=torch.float64, device=y.device)
        return (y1, slope, *past[:-1], clock), None

    def advance(
        self,
        field: Field,
        t: float,
        h: float,
        y: Tensor,
        slopes: Sequence[Tensor],
        nodes: tuple[float, ...],
    ) -> Tensor:
        """Return the value at t + h.

        Args:
            field: The field.
            t: Time.
            h: Step size.
            y: Value at t.
            slopes: The last ones, the one at t first.
            nodes: When they were, in steps from t.
        """
        return combine(y, h, _weights(nodes), slopes)


@register_solver("explicit-adams")
class ExplicitAdams(Adams):
    """Adams–Bashforth: one evaluation a step.

    Equation:
        y' = y + ∫ p dt, p the polynomial through the last slopes

    Args:
        order: Order, which is the number of slopes used.
    """

    aliases = ("adams",)


@register_solver("implicit-adams")
class ImplicitAdams(Adams):
    """Adams–Bashforth–Moulton: predicted by the explicit method, corrected by the implicit one.

    Equation:
        y' = y + ∫ p dt, p the polynomial through the last slopes and that at y' itself

    Args:
        order: Order, which is the number of slopes used, that at y' among them.
        corrections: How often the implicit equation is iterated.
    """

    aliases = ("fixed-adams",)

    def __init__(self, order: Order = 4, corrections: PositiveInt = 2) -> None:
        super().__init__(order)
        self.corrections = corrections

    def advance(
        self,
        field: Field,
        t: float,
        h: float,
        y: Tensor,
        slopes: Sequence[Tensor],
        nodes: tuple[float, ...],
    ) -> Tensor:
        """Predict, then correct."""
        y1 = super().advance(field, t, h, y, slopes, nodes)
        end = stage_times(t, h, (1.0,), y)[0]
        weights = _weights((1.0, *nodes[:-1]))
        for _ in range(self.corrections):
            y1 = combine(y, h, weights, [field(end, y1), *slopes[:-1]])
        return y1
