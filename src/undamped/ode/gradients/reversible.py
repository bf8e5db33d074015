"""Reversing: the steps of a reversible method are undone, from the end to the start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from undamped._base.errors import OptionError, explain
from undamped.ode.gradients.gradient import Found, GradientMethod, register_gradient
from undamped.ode.gradients.replay import Replay
from undamped.ode.methods.solver import Solver

if TYPE_CHECKING:
    from undamped.ode.problem import Problem


@register_gradient("reversible")
class Reversible(GradientMethod):
    """Exact to rounding; memory independent of the number of steps."""

    records_steps = True
    samples_field = True

    def check(self, solver: Solver) -> None:
        """Refuse a method whose steps cannot be undone."""
        if not solver.reversible:
            raise OptionError(
                explain(
                    "gradient='reversible'",
                    expected="a reversible method",
                    got=f"'{solver.name}'",
                    remedy="Use method='reversible-heun' or 'alf', or McCallumFoster(base='rk4').",
                )
            )

    def saved(self, problem: Problem, values: Tensor) -> Sequence[Tensor]:
        """Return the state at the end."""
        assert problem.run is not None
        return problem.run.trace.final

    def backward(self, problem: Problem, y0: Tensor, values: Tensor, incoming: Tensor) -> Found:
        """Undo the steps, the last first."""
        return Replay.of(problem).by_reversing(y0, incoming)
