"""Diagonally implicit Runge–Kutta methods: one small system per stage."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from undamped.ode.methods.implicit.linearization import some
from undamped.ode.methods.implicit.method import A_STABLE, L_STABLE, Attach, First, ImplicitMethod
from undamped.ode.methods.implicit.newton import Attempt
from undamped.ode.methods.solver import register_solver
from undamped.ode.methods.stages import Row, Terms, combine_terms, terms_of


class DiagonallyImplicit(ImplicitMethod):
    """A method whose stages are solved one after another, all with the same γ.

    Equation:
        z_i = Σ_{j<i} a_ij k_j + γ k_i,  k_i = h f(t + c_i h, y + z_i),  y' = y + Σ b_i k_i

    A first stage with c = 0 is explicit.
    """

    gamma: ClassVar[float]
    lower: ClassVar[tuple[Row, ...]]
    error_weights: ClassVar[Row | None] = None
    shifts = (1.0,)
    lower_terms: ClassVar[tuple[Terms, ...]]
    """The a_ij that are not zero."""
    explicit_first: ClassVar[bool]
    """Whether the first stage is f at the start."""
    weight_terms: ClassVar[Terms]
    error_terms: ClassVar[Terms]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # The systems of the method are scaled so that γ is part of the shift.
        if hasattr(cls, "gamma"):
            cls.shifts = (1 / cls.gamma,)
            cls.lower_terms = tuple(terms_of(row) for row in cls.lower)
            cls.weight_terms = terms_of(cls.weights)
            cls.error_terms = terms_of(cls.error_weights or ())
            cls.stiffly_accurate = cls.weights == (*cls.lower[-1], cls.gamma)
            cls.explicit_first = cls.nodes[0] == 0.0

    def solve_stages(self, attempt: Attempt, start: Tensor | None) -> Tensor:
        """Solve the stages one after another."""
        stages: list[Tensor] = []
        increments: list[Tensor] = []
        times = attempt.times(self.nodes)
        for index, (time, terms) in enumerate(zip(times, self.lower_terms, strict=True)):
            if index == 0 and self.explicit_first:
                stages.append(torch.zeros_like(attempt.rows))
                increments.append(attempt.first_slope() * attempt.row_h)
                continue
            base = self._sum(terms, increments, attempt.rows)
            if start is not None:
                z = start[index]
            elif increments:
                z = torch.add(base, increments[-1], alpha=self.gamma)
            else:
                z = self._extrapolate(attempt)

            def residual(z: Tensor, time: Tensor = time, base: Tensor = base) -> Tensor:
                return attempt.slope(time, z) * attempt.row_h + (base - z) / self.gamma

            z = attempt.correct(z, residual, lambda right: attempt.line.solve(0, right))
            stages.append(z)
            increments.append((z - base) / self.gamma)
            if not some(attempt.ok):
                stages += [z] * (len(self.nodes) - len(stages))
                break
        return torch.stack(stages)

    def _extrapolate(self, attempt: Attempt) -> Tensor:
        """Continue the line through the step before."""
        last, ratio = attempt.last, attempt.ratio
        if last is None:
            return torch.zeros_like(attempt.rows)
        scale = torch.from_numpy(ratio).to(last.device, last.dtype).unsqueeze(1)
        return last[-1] * (scale * (self.nodes[0] / self.nodes[-1]))

    def combine(self, y: Tensor, stages: Tensor, first: First, attach: Attach) -> Tensor:
        return combine_terms(y, 1.0, self.weight_terms, self._increments(stages, first, attach))

    @staticmethod
    def _sum(terms: Terms, increments: list[Tensor], like: Tensor) -> Tensor:
        return combine_terms(None, 1.0, terms, increments) if terms else torch.zeros_like(like)

    def _increments(
        self, stages: Tensor, first: First, attach: Attach | None = None
    ) -> list[Tensor]:
        """Return the k of solved stages; arguments as for `combine`."""
        increments: list[Tensor] = []
        for index, (z, terms) in enumerate(zip(stages.unbind(), self.lower_terms, strict=True)):
            if index == 0 and self.explicit_first:
                increments.append(first())
                continue
            base = self._sum(terms, increments, z)
            if attach is not None:
                z = attach(z.unsqueeze(0), index, ((self.gamma,),), base)[0]
            increments.append((z - base) / self.gamma)
        return increments

    def _solved_increments(self, attempt: Attempt, stages: Tensor) -> list[Tensor]:
        return self._increments(stages, lambda: attempt.first_slope() * attempt.row_h)

    def last_slope(self, attempt: Attempt, stages: Tensor) -> Tensor | None:
        """Return the last k, for a method whose next step begins with it."""
        return self._solved_increments(attempt, stages)[-1] if self.explicit_first else None

    def estimate(self, attempt: Attempt, stages: Tensor, change: Tensor | None) -> Tensor | None:
        """Compare with the companion, filtered by the stiff part of the field."""
        if self.error_weights is None:
            return None
        increments = self._solved_increments(attempt, stages)
        raw = combine_terms(None, 1.0, self.error_terms, increments)
        return attempt.line.solve(0, raw / self.gamma)


@register_solver("implicit-euler")
class ImplicitEuler(DiagonallyImplicit):
    """Implicit Euler: order one.

    Promise:
        A-stable and L-stable.
    """

    promises = L_STABLE
    order = 1
    gamma, nodes, lower, weights = 1.0, (1.0,), ((),), (1.0,)


@register_solver("implicit-midpoint")
class ImplicitMidpoint(DiagonallyImplicit):
    """The implicit midpoint rule: order two, symmetric, symplectic for every Hamiltonian.

    Promise:
        A-stable; fast modes change sign, and are not damped.
    """

    promises = A_STABLE
    order = 2
    symmetric = True
    symplectic = True
    gamma, nodes, lower, weights = 0.5, (0.5,), ((),), (1.0,)


@register_solver("trapezoid")
class Trapezoid(DiagonallyImplicit):
    """The trapezoidal rule: order two, symmetric.

    Promise:
        A-stable; fast modes change sign, and are not damped.
    """

    promises = A_STABLE
    order = 2
    symmetric = True
    gamma, nodes, lower, weights = 0.5, (0.0, 1.0), ((), (0.5,)), (0.5, 0.5)


_ROOT = math.sqrt(2)


@register_solver("sdirk2")
class SDIRK2(DiagonallyImplicit):
    """Two stages with one matrix: order two, for fixed steps.

    Promise:
        A-stable and L-stable; stiffly accurate.

    Reference:
        R. Alexander. Diagonally implicit Runge–Kutta methods for stiff ODEs. SIAM Journal on
        Numerical Analysis 14 (1977).
    """

    promises = L_STABLE
    order = 2
    gamma = 1 - _ROOT / 2
    nodes = (gamma, 1.0)
    lower = ((), (1 - gamma,))
    weights = (1 - gamma, gamma)


@register_solver("trbdf2")
class TRBDF2(DiagonallyImplicit):
    """TR-BDF2: a trapezoidal step followed by the second backward difference formula.

    Cheap steps of order two, with a companion of order three: for stiff fields at loose tolerances.

    Promise:
        A-stable and L-stable; stiffly accurate.

    Reference:
        R. Bank and others. Transient simulation of silicon devices and circuits. IEEE Transactions
        on Electron Devices 32 (1985); M. Hosea, L. Shampine. Analysis and implementation of
        TR-BDF2. Applied Numerical Mathematics 20 (1996).
    """

    promises = L_STABLE
    order = 2
    error_order = 2
    gamma = 1 - _ROOT / 2
    nodes = (0.0, 2 - _ROOT, 1.0)
    lower = ((), (gamma,), (_ROOT / 4, _ROOT / 4))
    weights = (_ROOT / 4, _ROOT / 4, gamma)
    error_weights = (
        (_ROOT / 4) - (1 - _ROOT / 4) / 3,
        (_ROOT / 4) - (1 + 3 * _ROOT / 4) / 3,
        gamma - gamma / 3,
    )


@register_solver("sdirk4")
class SDIRK4(DiagonallyImplicit):
    """Hairer and Wanner's method of order four, with a companion of order three.

    Promise:
        A-stable and L-stable; stiffly accurate.

    Reference:
        E. Hairer, G. Wanner. Solving ordinary differential equations II, table IV.6.5.
    """

    promises = L_STABLE
    order = 4
    error_order = 3
    gamma = 1 / 4
    nodes = (1 / 4, 3 / 4, 11 / 20, 1 / 2, 1.0)
    lower = (
        (),
        (1 / 2,),
        (17 / 50, -1 / 25),
        (371 / 1360, -137 / 2720, 15 / 544),
        (25 / 24, -49 / 48, 125 / 16, -85 / 12),
    )
    weights = (25 / 24, -49 / 48, 125 / 16, -85 / 12, 1 / 4)
    error_weights = (-3 / 16, -27 / 32, 25 / 32, 0.0, 1 / 4)
