"""McCallum and Foster's wrapper: any explicit Runge–Kutta method made reversible (2024)."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from undamped._base.errors import OptionError, explain
from undamped._base.options import Range
from undamped._base.registry import solvers
from undamped.ode.methods.explicit.runge_kutta import RungeKutta
from undamped.ode.methods.solver import Field, Number, Solver, SolverState, register_solver

Coupling = Annotated[float, Range(low=0, high=1, open_low=True)]


@register_solver("mccallum-foster")
class McCallumFoster(Solver):
    """A reversible method around an explicit one, with its order.

    Equation:
        y' = λ y + (1 − λ) z + Ψ_h(t, z),  z' = z − Ψ_{−h}(t + h, y')

    Symbols:
        Ψ_h(t, z) increment of the base method, z second copy of the state, λ coupling.

    Args:
        base: Registry name of the explicit method.
        coupling: λ. Below one it pulls the copies together; undoing n steps magnifies rounding
            by λ^(−n).

    Reference:
        S. McCallum, J. Foster. Efficient, accurate and stable gradients for neural ODEs. 2024.
    """

    reversible = True

    def __init__(self, base: str = "midpoint", coupling: Coupling = 0.999) -> None:
        member = solvers[base]
        if not (isinstance(member, type) and issubclass(member, RungeKutta)):
            raise OptionError(
                explain(
                    "base of mccallum-foster",
                    expected="an explicit Runge–Kutta method",
                    got=f"'{base}'",
                    remedy="Choose 'midpoint', 'rk4', 'dopri5' or another explicit one.",
                )
            )
        self.base: RungeKutta = member()
        self.coupling = coupling
        self.order = self.base.order
        self.error_order = self.base.error_order

    def start(self, field: Field, t: Number, y: Tensor) -> SolverState:
        """Begin with both copies equal."""
        return (y, y)

    def step(
        self, field: Field, t: Number, h: Number, state: SolverState
    ) -> tuple[SolverState, Tensor | None]:
        """Move y with the base method from z, then z with the base method back from y'."""
        (y, z), base = state, self.base
        new, taken = base.stages(field, t, h, z, last=True)
        moved = self.coupling * (y - z) + new
        return (moved, z - base.increment(field, t + h, -h, moved)), base.estimate(h, taken)

    def replay(
        self, field: Field, t: Number, h: Number, state: SolverState, inside: object = ()
    ) -> tuple[SolverState, list[Tensor]]:
        """Repeat a step without what only the estimate needed."""
        y, z = state
        moved = self.coupling * (y - z) + self.base.stages(field, t, h, z)[0]
        return (moved, z - self.base.increment(field, t + h, -h, moved)), []

    def reverse(self, field: Field, t: Number, h: Number, state: SolverState) -> SolverState:
        """Undo the two moves in the opposite order."""
        y, z = state
        before = z + self.base.increment(field, t + h, -h, y)
        start = (y - self.base.stages(field, t, h, before)[0]) / self.coupling + before
        return (start, before)
