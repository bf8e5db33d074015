"""Asynchronous leapfrog and reversible Heun: second order, undone exactly."""

from __future__ import annotations

from torch import Tensor

from undamped.ode.methods.solver import Field, Number, Solver, SolverState, register_solver
from undamped.ode.methods.stage_times import stage_times


@register_solver("alf")
class AsynchronousLeapfrog(Solver):
    """Asynchronous leapfrog: value y and velocity v take turns; one evaluation a step.

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

    def step(
        self, field: Field, t: Number, h: Number, state: SolverState
    ) -> tuple[SolverState, Tensor | None]:
        """Half a step with the old velocity, half a step with the new one."""
        y, v = state
        middle = y + (h / 2) * v
        u = field(stage_times(t, h, (0.5,), y)[0], middle)
        velocity = 2 * u - v
        return (middle + (h / 2) * velocity, velocity), h * (u - v)

    def reverse(self, field: Field, t: Number, h: Number, state: SolverState) -> SolverState:
        """Step with the opposite sign: the method is symmetric."""
        return self.step(field, t + h, -h, state)[0]


@register_solver("reversible-heun")
class ReversibleHeun(Solver):
    """Reversible Heun: a second value ŷ runs ahead; one evaluation a step.

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
        """Begin with both values equal."""
        return (y, y, field(stage_times(t, 0.0, (0.0,), y)[0], y))

    def step(
        self, field: Field, t: Number, h: Number, state: SolverState
    ) -> tuple[SolverState, Tensor | None]:
        """Leap with ŷ, average with y."""
        y, ahead, slope = state
        leapt = 2 * y - ahead + h * slope
        new = field(stage_times(t, h, (1.0,), y)[0], leapt)
        return (y + (h / 2) * (slope + new), leapt, new), (h / 2) * (new - slope)

    def reverse(self, field: Field, t: Number, h: Number, state: SolverState) -> SolverState:
        """Step with the opposite sign: the method is symmetric."""
        return self.step(field, t + h, -h, state)[0]
