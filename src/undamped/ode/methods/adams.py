"""Adams methods: they use the slopes of earlier steps, and one evaluation per step.

The polynomial through the last slopes is integrated over the step, whatever the distances
between them, so that steps may end at output times. The first steps, which have no past, are
taken with the classical Runge–Kutta method; so are those after a change of direction.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import Annotated, ClassVar

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


@register_solver("explicit-adams")
class ExplicitAdams(Solver):
    """Adams–Bashforth: one evaluation per step.

    Equation:
        y' = y + ∫ p dt, p the polynomial through the last slopes

    Args:
        order: Order, which is the number of slopes used.
    """

    aliases: ClassVar[tuple[str, ...]] = ("adams",)
    start_method = RK4()
    _corrections = 0

    def __init__(self, order: Order = 4) -> None:
        self.order = order

    def start(self, field: Field, t: Number, y: Tensor) -> SolverState:
        """Begin without a past; the last tensor holds the number of slopes and their times."""
        clock = torch.zeros(self.order, dtype=torch.float64, device=y.device)
        return (y, *(torch.zeros_like(y) for _ in range(self.order - 1)), clock)

    def step(self, field: Field, t: Number, h: Number, state: SolverState) -> StepResult:
        """Step with the past, or with the classical method while there is none."""
        if isinstance(h, Tensor) or isinstance(t, Tensor):
            raise OptionError(f"'{self.name}' needs one step size for the batch, got several.")
        y, *past, past_clock = state
        count, *times = past_clock.tolist()
        slope = field(stage_times(t, h, (0.0,), y)[0], y)
        nodes = (0.0, *(round((time - t) / h, 12) for time in times))
        if count < self.order - 1 or any(b >= a for a, b in itertools.pairwise(nodes)):
            y1 = self.start_method.stages(field, t, h, y, first=slope)[0]
        else:
            y1 = combine(y, h, _weights(nodes), [slope, *past])
            for _ in range(self._corrections):
                end, weights = stage_times(t, h, (1.0,), y)[0], _weights((1.0, *nodes[:-1]))
                y1 = combine(y, h, weights, [field(end, y1), slope, *past[:-1]])
        entries = [count + 1, t, *times[:-1]] if times else [count + 1]
        clock = torch.tensor(entries, dtype=torch.float64, device=y.device)
        return (y1, slope, *past[:-1], clock), None


@register_solver("implicit-adams")
class ImplicitAdams(ExplicitAdams):
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
        self.corrections = self._corrections = corrections
