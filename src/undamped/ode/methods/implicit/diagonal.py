"""Diagonally implicit Runge–Kutta methods: one small system per stage."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from undamped.ode.methods.combine import Row, Terms, combine_terms, terms_of
from undamped.ode.methods.implicit.band import Band
from undamped.ode.methods.implicit.lanes import some
from undamped.ode.methods.implicit.method import Attempt, ImplicitMethod
from undamped.ode.methods.implicit.stability import A_STABLE, L_STABLE
from undamped.ode.methods.implicit.stage_equations import StageEquations
from undamped.ode.methods.solver import Field, Number, register_solver
from undamped.ode.methods.stage_times import stage_times


class DiagonallyImplicit(ImplicitMethod):
    """A method whose stages are solved one after another, all with the same γ.

    Equation:
        z_i = Σ_{j<i} a_ij k_j + γ k_i,  k_i = h f(t + c_i h, y + z_i),  y' = y + Σ b_i k_i

    A first stage with c = 0 is explicit.
    """

    gamma: ClassVar[float]
    lower: ClassVar[tuple[Row, ...]]
    weights: ClassVar[Row]
    error_weights: ClassVar[Row | None] = None
    shifts = (1.0,)
    lower_terms: ClassVar[tuple[Terms, ...]]
    """The a_ij that are not zero."""
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

    @property
    def explicit_first(self) -> bool:
        """Whether the first stage is f at the start."""
        return self.nodes[0] == 0.0

    def solve_stages(self, attempt: Attempt, start: Tensor | None) -> Tensor:
        """Solve the stages one after another."""
        found: list[Tensor] = []
        taken: list[Tensor] = []
        times = attempt.times(self.nodes)
        for number, (time, terms) in enumerate(zip(times, self.lower_terms, strict=True)):
            if number == 0 and self.explicit_first:
                found.append(torch.zeros_like(attempt.rows))
                taken.append(attempt.first_slope() * attempt.row_h)
                continue
            base = self._sum(terms, taken, attempt.rows)
            if start is not None:
                z = start[number]
            elif taken:
                z = torch.add(base, taken[-1], alpha=self.gamma)
            else:
                z = self._guess(attempt)
            z = self._stage(attempt, time, base, z)
            found.append(z)
            taken.append((z - base) / self.gamma)
            if not some(attempt.ok):
                found += [z] * (len(self.nodes) - len(found))
                break
        return torch.stack(found)

    def _stage(self, attempt: Attempt, time: Tensor, base: Tensor, z: Tensor) -> Tensor:
        seen = attempt.corrections()
        while seen.under_way:
            right = attempt.slope(time, z) * attempt.row_h + (base - z) / self.gamma
            correction = attempt.line.solve(0, right)
            z = attempt.added(seen.look(correction), z, correction)
        attempt.finish(seen)
        return z

    def _guess(self, attempt: Attempt) -> Tensor:
        """Continue the line through the step before."""
        last, ratio = attempt.last, attempt.ratio
        if last is None or ratio is None:
            return torch.zeros_like(attempt.rows)
        scale = torch.from_numpy(ratio).to(last.device, last.dtype).unsqueeze(1)
        return last[-1] * (scale * (self.nodes[0] / self.nodes[-1]))

    def end(
        self,
        field: Field,
        t: Number,
        h: Number,
        y: Tensor,
        stages: Tensor,
        band: Band | None = None,
    ) -> Tensor:
        """Combine the stages."""
        graph = torch.is_grad_enabled()
        if not graph and self.weights == (*self.lower[-1], self.gamma):
            return y + stages[-1]
        times = stage_times(t, h, self.nodes, y)
        if isinstance(h, Tensor):  # in double precision, whatever the state is in
            h = h.to(y.dtype)
        taken: list[Tensor] = []
        for number, (z, terms) in enumerate(zip(stages.unbind(), self.lower_terms, strict=True)):
            if number == 0 and self.explicit_first:
                taken.append(field(times[0], y) * h)
                continue
            base = self._sum(terms, taken, z)
            if graph:
                equations = StageEquations(
                    field,
                    times[number : number + 1],
                    h,
                    ((self.gamma,),),
                    base,
                    y,
                    self.algebra,
                    band,
                )
                z = equations.attach(z.unsqueeze(0))[0]
            taken.append((z - base) / self.gamma)
        return combine_terms(y, 1.0, self.weight_terms, taken)

    @staticmethod
    def _sum(terms: Terms, taken: list[Tensor], like: Tensor) -> Tensor:
        return combine_terms(None, 1.0, terms, taken) if terms else torch.zeros_like(like)

    def points(self, y: Tensor, stages: Tensor) -> list[tuple[float, float, Tensor]]:
        """Return the stages with their weights."""
        states = [y + z for z in stages.unbind()]
        return [
            point for point in zip(self.weights, self.nodes, states, strict=True) if point[0] != 0
        ]

    def _increments(self, attempt: Attempt, stages: Tensor) -> list[Tensor]:
        """Return the k of solved stages."""
        taken: list[Tensor] = []
        for number, (z, terms) in enumerate(zip(stages.unbind(), self.lower_terms, strict=True)):
            if number == 0 and self.explicit_first:
                taken.append(attempt.first_slope() * attempt.row_h)
                continue
            before = combine_terms(None, 1.0, terms, taken) if terms else None
            taken.append((z if before is None else z - before) / self.gamma)
        return taken

    def last_slope(self, attempt: Attempt, stages: Tensor) -> Tensor | None:
        """Return the last k, for a method whose next step begins with it."""
        return self._increments(attempt, stages)[-1] if self.explicit_first else None

    def estimate(self, attempt: Attempt, stages: Tensor, change: Tensor | None) -> Tensor | None:
        """Compare with the companion, filtered by the stiff part of the field."""
        if self.error_weights is None:
            return None
        raw = combine_terms(None, 1.0, self.error_terms, self._increments(attempt, stages))
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
        A-stable; fast modes are turned around, not damped.
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
        A-stable; fast modes are turned around, not damped.
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
