"""Tao's method: explicit and symplectic for Hamiltonians that are not separable (2016)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped._base.options import PositiveFloat
from undamped.ode.methods.solver import Field, Number, Solver, SolverState, register_solver
from undamped.ode.methods.stage_times import stage_times
from undamped.ode.methods.symplectic.phase import split


@register_solver("tao")
class Tao(Solver):
    """Tao's method on a doubled phase space (q, p, x, y), the copies tied by a rotation.

    Equation:
        φ_A(h/2) φ_B(h/2) φ_C(h) φ_B(h/2) φ_A(h/2), the flows of H(q, y), H(x, p) and
        ω/2 (‖q − x‖² + ‖p − y‖²)

    Args:
        omega: Strength ω of the tie. Too small and the copies part, too large and the step has
            to resolve the rotation.

    Reference:
        M. Tao. Explicit symplectic approximation of nonseparable Hamiltonians. 2016.
    """

    order = 2
    symmetric = True
    symplectic = True
    doubles_state = True
    phase_space = True
    reversible = True

    def __init__(self, omega: PositiveFloat = 20.0) -> None:
        self.omega = omega

    def start(self, field: Field, t: Number, y: Tensor) -> SolverState:
        """Begin with two equal copies."""
        split(y)
        return (y, y.clone())

    def step(
        self, field: Field, t: Number, h: Number, state: SolverState
    ) -> tuple[SolverState, Tensor | None]:
        """Compose the five flows."""
        if isinstance(h, Tensor):
            raise OptionError("tao: expected one step size for the batch, got one per sample.")
        (q, p), (x, y) = split(state[0]), split(state[1])
        start, end = stage_times(t, h, (0.0, 1.0), q)

        def flow_a(time: Tensor, p: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            dq, dp = split(field(time, torch.cat((q, y), dim=-1)))
            return p + h / 2 * dp, x + h / 2 * dq

        def flow_b(time: Tensor, q: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            dq, dp = split(field(time, torch.cat((x, p), dim=-1)))
            return q + h / 2 * dq, y + h / 2 * dp

        p, x = flow_a(start, p, x)
        q, y = flow_b(start, q, y)
        cosine, sine = math.cos(2 * self.omega * h), math.sin(2 * self.omega * h)
        mean_q, mean_p, apart_q, apart_p = q + x, p + y, q - x, p - y
        turned_q = cosine * apart_q + sine * apart_p
        turned_p = cosine * apart_p - sine * apart_q
        q, x = (mean_q + turned_q) / 2, (mean_q - turned_q) / 2
        p, y = (mean_p + turned_p) / 2, (mean_p - turned_p) / 2
        q, y = flow_b(end, q, y)
        p, x = flow_a(end, p, x)
        return (torch.cat((q, p), dim=-1), torch.cat((x, y), dim=-1)), None

    def reverse(self, field: Field, t: Number, h: Number, state: SolverState) -> SolverState:
        """Step with the opposite sign: the method is symmetric."""
        return self.step(field, t + h, -h, state)[0]


class TaoOfCopies(Tao):
    """Tao's method where the state already holds both copies side by side, (q, p, x, y).

    Whoever wants to see both, and not only the first, starts from two and gets two.

    Args:
        omega: Strength ω of the tie.
    """

    name = "tao"

    def start(self, field: Field, t: Number, y: Tensor) -> SolverState:
        """Begin with the copies that were given."""
        return (y,)

    def step(
        self, field: Field, t: Number, h: Number, state: SolverState
    ) -> tuple[SolverState, Tensor | None]:
        """Step both."""
        copies = state[0].chunk(2, dim=-1)
        return (torch.cat(super().step(field, t, h, copies)[0], dim=-1),), None
