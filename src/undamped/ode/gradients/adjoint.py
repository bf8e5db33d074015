"""The adjoint method: the adjoint equation is solved back in time, with steps of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from undamped._base.errors import OptionError, explain
from undamped.ode.gradients.batch_adjoint import BatchAdjoint
from undamped.ode.gradients.gradient import Found, GradientMethod, register_gradient
from undamped.ode.gradients.implicit_adjoint import ImplicitAdjoint
from undamped.ode.gradients.sample_adjoint import SampleAdjoint
from undamped.ode.methods.solver import Solver

if TYPE_CHECKING:
    from undamped.ode.problem import Problem


@register_gradient("adjoint")
class Adjoint(GradientMethod):
    """The gradient of the true solution rather than of the numbers returned."""

    solves_back = True
    samples_field = True

    def check(self, solver: Solver) -> None:
        """Refuse a method for positions and momenta, which the adjoint does not have."""
        if solver.phase_space:
            raise OptionError(
                explain(
                    "gradient='adjoint'",
                    expected="a method for any state, since the adjoint has no positions and "
                    "momenta",
                    got=f"'{solver.name}'",
                    remedy="Use gradient='checkpoint' or 'reversible': both are exact.",
                )
            )
        if solver.rotates:
            raise OptionError(
                explain(
                    "gradient='adjoint'",
                    expected="a method for any state, since adjoint and parameters do not only "
                    "turn",
                    got=f"'{solver.name}'",
                    remedy="Use gradient='checkpoint', which is exact.",
                )
            )
        if solver.switches:
            raise OptionError(
                explain(
                    "gradient='adjoint'",
                    expected="one method for all steps",
                    got=f"'{solver.name}'",
                    remedy="Use gradient='checkpoint', or method='radau5'.",
                )
            )

    def saved(self, problem: Problem, values: Tensor) -> Sequence[Tensor]:
        """Return the outputs."""
        return [values]

    def backward(self, problem: Problem, y0: Tensor, values: Tensor, incoming: Tensor) -> Found:
        """Solve back from the last output to the first."""
        if problem.per_sample:
            return SampleAdjoint.of(problem, values).solve(incoming)
        solver, settings = problem.backward or (problem.solver, problem.settings)
        if solver.implicit and problem.backward is not None and settings.norm is not None:
            raise OptionError(
                explain(
                    "norm of an adjoint solve",
                    expected="an explicit method, whose adjoint state holds the parameters too",
                    got=f"'{solver.name}'",
                    remedy="Leave norm out of adjoint_options.",
                )
            )
        kind = ImplicitAdjoint if solver.implicit else BatchAdjoint
        return kind.of(problem, values).solve(incoming)
