"""Asynchronous leapfrog, reversible Heun and McCallum–Foster: steps that are undone exactly."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from undamped._base.options import Range
from undamped.ode.methods.explicit.runge_kutta import explicit_base
from undamped.ode.methods.solver import (
    Field,
    Number,
    Solver,
    SolverState,
    StepResult,
    register_solver,
)
from undamped.ode.methods.stages import stage_times


@register_solver("alf")
class AsynchronousLeapfrog(Solver):
    """Asynchronous leapfrog: value y and velocity v alternate; one evaluation per step.

    Equation:
        k = y + h/2 v,  u = f(t + h/2, k),  v' = 2u − v,  y' = k + h/2 v'

    Reference:
        J. Zhuang and others. MALI: a memory efficient and reverse accurate integrator for
        Neural ODEs. ICLR, 2021.
    """

    order = 2
    error_order = 1
    symmetric = True
    reversible = True

    def start(self, field: Field, t: Number, y: Tensor) -> SolverState:
        """Begin with the field's own velocity."""
        return (y, field(stage_times(t, 0.0, (0.0,), y)[0], y))

    def step(self, field: Field, t: Number, h: Number, state: SolverState) -> StepResult:
        """Take half a step with the old velocity and half a step with the new one."""
        y, v = state
        middle = y + (h / 2) * v
        u = field(stage_times(t, h, (0.5,), y)[0], middle)
        velocity = 2 * u - v
        return (middle + (h / 2) * velocity, velocity), h * (u - v)


@register_solver("reversible-heun")
class ReversibleHeun(Solver):
    """Reversible Heun: a second value ŷ leads; one evaluation per step.

    Equation:
        ŷ' = 2y − ŷ + h f̂,  f̂' = f(t + h, ŷ'),  y' = y + h/2 (f̂ + f̂')

    Reference:
        P. Kidger, J. Foster, X. Li, T. Lyons. Efficient and accurate gradients for neural SDEs.
        NeurIPS, 2021.
    """

    order = 2
    error_order = 1
    symmetric = True
    reversible = True

    def start(self, field: Field, t: Number, y: Tensor) -> SolverState:
        return (y, y, field(stage_times(t, 0.0, (0.0,), y)[0], y))

    def step(self, field: Field, t: Number, h: Number, state: SolverState) -> StepResult:
        """Leap with ŷ, average with y."""
        y, leading, slope = state
        leapt = 2 * y - leading + h * slope
        new = field(stage_times(t, h, (1.0,), y)[0], leapt)
        return (y + (h / 2) * (slope + new), leapt, new), (h / 2) * (new - slope)


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
        self.base = explicit_base("mccallum-foster", base)
        self.coupling = coupling
        self.order = self.base.order
        self.error_order = self.base.error_order

    def start(self, field: Field, t: Number, y: Tensor) -> SolverState:
        return (y, y)

    def step(self, field: Field, t: Number, h: Number, state: SolverState) -> StepResult:
        """Move y with the base method from z, then z with the base method back from y'."""
        (y, z), base = state, self.base
        new, stages = base.stages(field, t, h, z, last=True)
        moved = self.coupling * (y - z) + new
        return (moved, z - base.increment(field, t + h, -h, moved)), base.estimate(h, stages)

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
