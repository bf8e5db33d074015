"""Magnus' series of order four, for rotations that depend on time alone."""

from __future__ import annotations

import math

from torch import Tensor

from undamped._base.errors import OptionError, explain
from undamped.kernels.skew_exponential import skew_exponential
from undamped.ode.field import CountedField
from undamped.ode.methods.lie.rotating import LinearRotating, generator_of, rotated
from undamped.ode.methods.lie.steps import LieMethod, commutator
from undamped.ode.methods.solver import Field, Number, SolverState, Stepper, register_solver
from undamped.ode.methods.stage_times import stage_times

GAUSS = 0.5 - math.sqrt(3) / 6, 0.5 + math.sqrt(3) / 6


@register_solver("magnus4")
class Magnus4(LieMethod):
    """Magnus' series with two Gauss points: one exponential a step, for `LinearRotating` fields.

    Equation:
        Y' = Y exp(h/2 (b₁ + b₂) + √3 h²/12 [b₁, b₂]),  b₁, b₂ at t + (½ ∓ √3/6) h

    Symbols:
        The bracket has the other sign where the generator stands left of the state.

    Reference:
        A. Iserles, S. Nørsett. On the solution of linear differential equations in Lie groups.
        Philosophical Transactions A 357 (1999).
    """

    order = 4
    symmetric = True
    reversible = True
    linear = True

    def stepper(self, field: Field, t: Number, y: Tensor, first: Tensor | None) -> Stepper:
        """Refuse a field whose generator may depend on the state."""
        function = field.function if isinstance(field, CountedField) else field
        if not isinstance(function, LinearRotating):
            raise OptionError(
                explain(
                    f"the field of '{self.name}'",
                    expected="a LinearRotating one, whose generator depends on time alone",
                    got=getattr(function, "__name__", type(function).__name__),
                    remedy="Write it as undamped.ode.LinearRotating(lambda t: b), or choose "
                    "'rkmk4', which is for any generator.",
                )
            )
        return super().stepper(field, t, y, first)

    def step(
        self, field: Field, t: Number, h: Number, state: SolverState
    ) -> tuple[SolverState, Tensor | None]:
        """Turn by the exponential of two terms of the series."""
        y = state[0]
        first, second = (generator_of(field, time, y) for time in stage_times(t, h, GAUSS, y))
        omega = (h / 2) * (first + second) + (math.sqrt(3) * h * h / 12) * commutator(first, second)
        return (rotated(y, skew_exponential(omega)),), None

    def reverse(self, field: Field, t: Number, h: Number, state: SolverState) -> SolverState:
        """Step with the opposite sign: the method is symmetric."""
        return self.step(field, t + h, -h, state)[0]
