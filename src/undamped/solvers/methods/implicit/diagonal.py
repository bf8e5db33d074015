"""Diagonally implicit Runge–Kutta methods: one small system per stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from undamped.options import PositiveInt
from undamped.solvers.methods.combine import combine
from undamped.solvers.methods.implicit.newton_krylov import (
    Equations,
    rows,
    solve_equations,
)
from undamped.solvers.methods.implicit.products import backward_product, forward_product
from undamped.solvers.methods.solver import Field, Number, Solver, SolverState, register
from undamped.solvers.methods.stage_times import stage_times

Row = tuple[float, ...]


class _Stage(Equations):
    """z = base + h γ f(t, z)."""

    def __init__(self, field: Field, t: Tensor, scale: float, base: Tensor) -> None:
        self.field, self.t, self.scale, self.base = field, t, scale, base
        self.shape = rows(base)

    def residual(self, z: Tensor) -> Tensor:
        z = z.view(self.base.shape)
        return (z - self.base - self.scale * self.field(self.t, z)).reshape(self.shape)

    def derivative(self, z: Tensor, v: Tensor) -> Tensor:
        shape = self.base.shape
        product = forward_product(self.field, self.t, z.view(shape), v.view(shape))
        return v - self.scale * product.reshape(self.shape)

    def transposed(self, z: Tensor, w: Tensor) -> Tensor:
        shape = self.base.shape
        product = backward_product(self.field, self.t, z.view(shape), w.view(shape))
        return w - self.scale * product.reshape(self.shape)


class DiagonallyImplicit(Solver):
    """A method whose stages are solved one after another, all with the same γ.

    Equation:
        z_i = y + h Σ_{j<i} a_ij k_j + h γ f(t + c_i h, z_i),  y' = y + h Σ b_i k_i

    Args:
        newton_iterations: Newton steps to try in each stage.
        krylov_dimension: Vectors kept in each linear solve.
    """

    implicit = True
    gamma: ClassVar[float]
    nodes: ClassVar[Row]
    lower: ClassVar[tuple[Row, ...]]
    weights: ClassVar[Row]
    error_weights: ClassVar[Row | None] = None

    def __init__(
        self, newton_iterations: PositiveInt = 12, krylov_dimension: PositiveInt = 30
    ) -> None:
        self.newton_iterations = newton_iterations
        self.krylov_dimension = krylov_dimension

    def step(
        self, field: Field, t: Number, h: Number, state: SolverState
    ) -> tuple[SolverState, Tensor | None]:
        """Solve the stages, combine them."""
        assert not isinstance(h, Tensor)
        y = state[0]
        times = stage_times(t, h, self.nodes, y)
        taken: list[Tensor] = []
        for time, row in zip(times, self.lower, strict=True):
            base = combine(y, h, row, taken) if row else y
            scale = h * self.gamma
            guess = base if not taken else torch.add(base, taken[-1], alpha=scale)
            z = solve_equations(
                _Stage(field, time, scale, base),
                guess.reshape(rows(y)),
                iterations=self.newton_iterations,
                dimension=self.krylov_dimension,
            ).view(y.shape)
            taken.append((z - base) / scale)
        y1 = combine(y, h, self.weights, taken)
        return (y1,), self._estimate(h, taken)

    def _estimate(self, h: float, taken: Sequence[Tensor]) -> Tensor | None:
        if self.error_weights is None:
            return None
        return combine(None, h, self.error_weights, taken)


@register("implicit-euler")
class ImplicitEuler(DiagonallyImplicit):
    """Implicit Euler: order one, L-stable."""

    order = 1
    gamma, nodes, lower, weights = 1.0, (1.0,), ((),), (1.0,)


@register("implicit-midpoint")
class ImplicitMidpoint(DiagonallyImplicit):
    """The implicit midpoint rule: order two, symmetric, symplectic for every Hamiltonian."""

    order = 2
    symmetric = True
    symplectic = True
    gamma, nodes, lower, weights = 0.5, (0.5,), ((),), (1.0,)


@register("sdirk4")
class SDIRK4(DiagonallyImplicit):
    """Hairer and Wanner's L-stable method of order four, with a companion of order three.

    Reference:
        E. Hairer, G. Wanner. Solving ordinary differential equations II, table IV.6.5.
    """

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
