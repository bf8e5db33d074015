"""Lie–Euler, Lie midpoint, Cayley and Runge–Kutta–Munthe-Kaas: explicit steps by rotations."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped.kernels.skew_exponential import skew_exponential
from undamped.ode.field import CountedField
from undamped.ode.methods.rotating import LinearRotating, check_rotating, generator_of, rotated
from undamped.ode.methods.solver import (
    Field,
    Number,
    Solver,
    SolverState,
    Stepper,
    StepResult,
    register_solver,
)
from undamped.ode.methods.stage_times import stage_times


class LieMethod(Solver):
    """A method whose steps are rotations Y' = Y exp(Ω), Ω skew: YᵀY is kept to rounding."""

    rotates = True

    def stepper(self, field: Field, t: Number, y: Tensor, first: Tensor | None) -> Stepper:
        """Refuse a field that does not turn, before the first step."""
        check_rotating(self.name, field, stage_times(t, 0.0, (0.0,), y)[0], y, first)
        return super().stepper(field, t, y, first)


def commutator(a: Tensor, b: Tensor) -> Tensor:
    """Return ab − ba; of skew matrices it is skew."""
    product = a @ b
    return product - product.mT


def cayley(b: Tensor) -> Tensor:
    """Return (I − b/2)⁻¹(I + b/2), the rotation near exp(b), for a skew b."""
    eye = torch.eye(b.shape[-1], dtype=b.dtype, device=b.device)
    return torch.linalg.solve(eye - b / 2, eye + b / 2)


@register_solver("lie-euler")
class LieEuler(LieMethod):
    """Lie–Euler: a rotation by the generator at the start.

    Equation:
        Y' = Y exp(h b(t, Y))

    Reference:
        A. Iserles, H. Munthe-Kaas, S. Nørsett, A. Zanna. Lie-group methods. Acta Numerica 9
        (2000).
    """

    order = 1

    def step(self, field: Field, t: Number, h: Number, state: SolverState) -> StepResult:
        """Turn."""
        y = state[0]
        b = generator_of(field, stage_times(t, h, (0.0,), y)[0], y)
        return (rotated(y, skew_exponential(h * b)),), None


@register_solver("lie-midpoint")
class LieMidpoint(LieMethod):
    """Lie midpoint: a rotation by the generator half-way, which half a Lie–Euler step finds.

    Equation:
        Y' = Y exp(h b(t + h/2, Y exp(h/2 b(t, Y))))

    Reference:
        A. Iserles, H. Munthe-Kaas, S. Nørsett, A. Zanna. Lie-group methods. Acta Numerica 9
        (2000).
    """

    order = 2

    def turn(self, b: Tensor) -> Tensor:
        """Return the rotation that a generator, times a step size, stands for."""
        return skew_exponential(b)

    def step(self, field: Field, t: Number, h: Number, state: SolverState) -> StepResult:
        """Turn half-way to see the generator there, then turn."""
        y = state[0]
        start, middle = stage_times(t, h, (0.0, 0.5), y)
        half = rotated(y, self.turn((h / 2) * generator_of(field, start, y)))
        return (rotated(y, self.turn(h * generator_of(field, middle, half))),), None


@register_solver("cayley")
class Cayley(LieMidpoint):
    """The midpoint rule with Cayley transforms: linear systems in place of exponentials.

    Equation:
        Y' = Y cay(h b(t + h/2, Y cay(h/2 b(t, Y)))),  cay(b) = (I − b/2)⁻¹(I + b/2)

    Reference:
        A. Iserles, H. Munthe-Kaas, S. Nørsett, A. Zanna. Lie-group methods. Acta Numerica 9
        (2000).
    """

    def turn(self, b: Tensor) -> Tensor:
        """Return the Cayley transform, which is exp(b) up to b³/12."""
        return cayley(b)


@register_solver("rkmk4")
class RKMK4(LieMethod):
    """Runge–Kutta–Munthe-Kaas of order four: the classical method on Ω, where Y' = Y exp(Ω).

    Equation:
        Ω̇ = b + ½[Ω, b] + 1/12 [Ω, [Ω, b]],  b at (t, Y exp Ω)

    Reference:
        H. Munthe-Kaas. High order Runge–Kutta methods on manifolds. Applied Numerical
        Mathematics 29 (1999).
    """

    order = 4

    def step(self, field: Field, t: Number, h: Number, state: SolverState) -> StepResult:
        """Take the four stages in the Lie algebra, then turn."""
        y = state[0]
        start, middle, end = stage_times(t, h, (0.0, 0.5, 1.0), y)

        def slope(time: Any, omega: Tensor) -> Tensor:
            b = generator_of(field, time, rotated(y, skew_exponential(omega)))
            inner = commutator(omega, b)
            return b + inner / 2 + commutator(omega, inner) / 12

        first = generator_of(field, start, y)
        second = slope(middle, (h / 2) * first)
        third = slope(middle, (h / 2) * second)
        fourth = slope(end, h * third)
        omega = (h / 6) * (first + 2 * second + 2 * third + fourth)
        return (rotated(y, skew_exponential(omega)),), None


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
                f"'{self.name}' needs a LinearRotating field, whose generator depends on time "
                f"alone, got {getattr(function, '__name__', type(function).__name__)}. Write it as "
                "undamped.ode.LinearRotating(lambda t: b), or choose 'rkmk4', which takes any "
                "generator."
            )
        return super().stepper(field, t, y, first)

    def step(self, field: Field, t: Number, h: Number, state: SolverState) -> StepResult:
        """Turn by the exponential of two terms of the series."""
        y = state[0]
        first, second = (generator_of(field, time, y) for time in stage_times(t, h, GAUSS, y))
        omega = (h / 2) * (first + second) + (math.sqrt(3) * h * h / 12) * commutator(first, second)
        return (rotated(y, skew_exponential(omega)),), None

    def reverse(self, field: Field, t: Number, h: Number, state: SolverState) -> SolverState:
        """Step with the opposite sign: the method is symmetric."""
        return self.step(field, t + h, -h, state)[0]
