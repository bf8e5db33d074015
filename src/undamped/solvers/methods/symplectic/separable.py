"""Symplectic Euler, leapfrog and Yoshida's composition, for separable Hamiltonians."""

from __future__ import annotations

import torch
from torch import Tensor

from undamped.solvers.methods.solver import Field, Number, Solver, SolverState, register
from undamped.solvers.methods.stage_times import stage_times
from undamped.solvers.methods.symplectic.phase import drift, kick, split


@register("symplectic-euler")
class SymplecticEuler(Solver):
    """Symplectic Euler: kick with the old position, drift with the new momentum.

    Equation:
        p' = p + h ṗ(t, q, p),  q' = q + h q̇(t, q, p')
    """

    order = 1
    symplectic = True
    needs_separable = True
    phase_space = True
    reversible = True

    def step(
        self, field: Field, t: Number, h: Number, state: SolverState
    ) -> tuple[SolverState, Tensor | None]:
        """Kick, then drift."""
        q, p = split(state[0])
        time = stage_times(t, h, (0.0,), q)[0]
        p = p + h * kick(field, time, q, p)
        q = q + h * drift(field, time, q, p)
        return (torch.cat((q, p), dim=-1),), None

    def reverse(self, field: Field, t: Number, h: Number, state: SolverState) -> SolverState:
        """Drift back, then kick back."""
        q, p = split(state[0])
        time = stage_times(t, h, (0.0,), q)[0]
        q = q - h * drift(field, time, q, p)
        p = p - h * kick(field, time, q, p)
        return (torch.cat((q, p), dim=-1),)


@register("leapfrog")
class Leapfrog(Solver):
    """Leapfrog, or velocity Verlet: half a kick, a drift, half a kick."""

    order = 2
    symmetric = True
    symplectic = True
    needs_separable = True
    phase_space = True
    reversible = True

    def step(
        self, field: Field, t: Number, h: Number, state: SolverState
    ) -> tuple[SolverState, Tensor | None]:
        """Kick, drift, kick."""
        return (_kick_drift_kick(field, t, h, state[0]),), None

    def reverse(self, field: Field, t: Number, h: Number, state: SolverState) -> SolverState:
        """Step with the opposite sign: the method is symmetric."""
        return (_kick_drift_kick(field, t + h, -h, state[0]),)


def _kick_drift_kick(field: Field, t: Number, h: Number, y: Tensor) -> Tensor:
    q, p = split(y)
    start, middle, end = stage_times(t, h, (0.0, 0.5, 1.0), q)
    p = p + (h / 2) * kick(field, start, q, p)
    q = q + h * drift(field, middle, q, p)
    p = p + (h / 2) * kick(field, end, q, p)
    return torch.cat((q, p), dim=-1)


@register("yoshida4")
class Yoshida4(Solver):
    """Yoshida's composition of three leapfrogs, order four; the middle one goes backwards.

    Equation:
        sub-steps w₁h, w₀h, w₁h with w₁ = 1/(2 − 2^{1/3}), w₀ = 1 − 2w₁

    Reference:
        H. Yoshida. Construction of higher order symplectic integrators. 1990.
    """

    order = 4
    symmetric = True
    symplectic = True
    needs_separable = True
    phase_space = True
    reversible = True
    _outer = 1 / (2 - 2 ** (1 / 3))

    def step(
        self, field: Field, t: Number, h: Number, state: SolverState
    ) -> tuple[SolverState, Tensor | None]:
        """Take the three sub-steps."""
        y, outer = state[0], self._outer
        for weight in (outer, 1 - 2 * outer, outer):
            y = _kick_drift_kick(field, t, weight * h, y)
            t = t + weight * h
        return (y,), None

    def reverse(self, field: Field, t: Number, h: Number, state: SolverState) -> SolverState:
        """Step with the opposite sign: the method is symmetric."""
        return self.step(field, t + h, -h, state)[0]
