"""Radau IIA with three stages: order five, L-stable."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from undamped.options import PositiveInt
from undamped.solvers.methods.implicit.krylov import gmres
from undamped.solvers.methods.implicit.newton_krylov import (
    Equations,
    rows,
    solve_equations,
)
from undamped.solvers.methods.implicit.products import backward_product, forward_product
from undamped.solvers.methods.solver import Field, Number, Solver, SolverState, register
from undamped.solvers.methods.stage_times import stage_times

_ROOT = math.sqrt(6)
_NODES = ((4 - _ROOT) / 10, (4 + _ROOT) / 10, 1.0)
_MATRIX = (
    ((88 - 7 * _ROOT) / 360, (296 - 169 * _ROOT) / 1800, (-2 + 3 * _ROOT) / 225),
    ((296 + 169 * _ROOT) / 1800, (88 + 7 * _ROOT) / 360, (-2 - 3 * _ROOT) / 225),
    ((16 - _ROOT) / 36, (16 + _ROOT) / 36, 1 / 9),
)
# The real eigenvalue of the inverse matrix, and Hairer and Wanner's error weights.
_REAL = 3 + 3 ** (2 / 3) - 3 ** (1 / 3)
_ERROR = ((-13 - 7 * _ROOT) / 3, (-13 + 7 * _ROOT) / 3, -1 / 3)


class _Stages(Equations):
    """z_i = h Σ_j a_ij f(t + c_j h, y + z_j), all stages of a sample in one row."""

    def __init__(self, field: Field, times: list[Tensor], h: float, y: Tensor) -> None:
        self.field, self.times, self.h, self.y = field, times, h, y
        self.samples, self.size = rows(y)
        self.matrix = torch.tensor(_MATRIX, dtype=y.dtype, device=y.device) * h

    def _split(self, z: Tensor) -> list[Tensor]:
        stages = z.view(self.samples, 3, self.size).unbind(1)
        return [stage.reshape(self.y.shape) for stage in stages]

    def _join(self, values: list[Tensor]) -> Tensor:
        return torch.stack([value.reshape(self.samples, self.size) for value in values], dim=1)

    def residual(self, z: Tensor) -> Tensor:
        slopes = [
            self.field(time, self.y + stage)
            for time, stage in zip(self.times, self._split(z), strict=True)
        ]
        return z - torch.einsum("ij,bjn->bin", self.matrix, self._join(slopes)).flatten(1)

    def derivative(self, z: Tensor, v: Tensor) -> Tensor:
        y = self.y.detach()
        products = [
            forward_product(self.field, time, y + stage, part)
            for time, stage, part in zip(self.times, self._split(z), self._split(v), strict=True)
        ]
        return v - torch.einsum("ij,bjn->bin", self.matrix, self._join(products)).flatten(1)

    def transposed(self, z: Tensor, w: Tensor) -> Tensor:
        y = self.y.detach()
        mixed = torch.einsum(
            "ij,bin->bjn", self.matrix, w.view(self.samples, 3, self.size)
        ).flatten(1)
        products = [
            backward_product(self.field, time, y + stage, part)
            for time, stage, part in zip(
                self.times, self._split(z), self._split(mixed), strict=True
            )
        ]
        return w - self._join(products).flatten(1)


@register("radau5")
class Radau5(Solver):
    """Radau IIA of order five: the choice for stiff fields and tight tolerances.

    Equation:
        Y_i = y + h Σ_j a_ij f(t + c_j h, Y_j),  y' = Y_3

    Args:
        newton_iterations: Newton steps to try in each step.
        krylov_dimension: Vectors kept in each linear solve.

    Reference:
        E. Hairer, G. Wanner. Solving ordinary differential equations II, section IV.8.
    """

    order = 5
    error_order = 3
    implicit = True

    def __init__(
        self, newton_iterations: PositiveInt = 12, krylov_dimension: PositiveInt = 60
    ) -> None:
        self.newton_iterations = newton_iterations
        self.krylov_dimension = krylov_dimension

    def step(
        self, field: Field, t: Number, h: Number, state: SolverState
    ) -> tuple[SolverState, Tensor | None]:
        """Solve the three stages together."""
        assert not isinstance(h, Tensor)
        y = state[0]
        equations = _Stages(field, list(stage_times(t, h, _NODES, y)), h, y)
        samples, size = rows(y)
        z = solve_equations(
            equations,
            y.detach().new_zeros(samples, 3 * size),
            iterations=self.newton_iterations,
            dimension=self.krylov_dimension,
        )
        stages = z.view(samples, 3, size)
        y1 = y + stages[:, 2].reshape(y.shape)
        with torch.no_grad():
            error = self._estimate(field, t, h, y.detach(), stages.detach())
        return (y1,), error

    def replay(
        self, field: Field, t: Number, h: Number, state: SolverState, inside: object = ()
    ) -> tuple[SolverState, list[Tensor]]:
        """Repeat a step."""
        return self.step(field, t, h, state)[0], []

    def _estimate(self, field: Field, t: Number, h: float, y: Tensor, stages: Tensor) -> Tensor:
        time = stage_times(t, h, (0.0,), y)[0]
        samples, size = rows(y)
        weights = torch.tensor(_ERROR, dtype=y.dtype, device=y.device) / h
        raw = field(time, y).reshape(samples, size) + torch.einsum("i,bin->bn", weights, stages)

        def operator(v: Tensor) -> Tensor:
            product = forward_product(field, time, y, v.view(y.shape)).reshape(samples, size)
            return v - (h / _REAL) * product

        # Filtered by the stiff part of the field, or every stiff mode would look like an error.
        error = gmres(operator, raw, tolerance=1e-3, dimension=self.krylov_dimension)
        return (h / _REAL) * error.view(y.shape)
