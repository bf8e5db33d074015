"""The derivative of a field where it was last computed, and linear systems with it.

Equation:
    (μ − h J) x = r for every system, for each μ of a method

J is a matrix for each system, full or a band, which is reused over steps; its factors are reused
while h does not change. Beyond a size no matrix is formed, and GMRES solves with products of J.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import OptionError, ShapeError
from undamped.ode.methods.implicit.band import NARROW, SMALLEST, Band, BandFactors, can_solve
from undamped.ode.methods.implicit.linear_solvers import SMALL, FullFactors, Inverses, gmres
from undamped.ode.methods.implicit.local_field import (
    LocalField,
    Systems,
    agree,
    directions,
    forward_product,
)
from undamped.ode.methods.solver import Field

if TYPE_CHECKING:
    from undamped.ode.methods.implicit.method import ImplicitMethod

Jacobian = Callable[[Tensor, Tensor], Tensor]
LOOSE = 1e-4
"""Residual of a linear system, relative to its right side, that suffices for Newton's method."""


def some(lanes: np.ndarray) -> bool:
    """Whether any lane is true; for one lane, a tenth of the cost of a reduction."""
    return bool(lanes[0]) if len(lanes) == 1 else bool(lanes.any())


def every(lanes: np.ndarray) -> bool:
    """Whether all lanes are true."""
    return bool(lanes[0]) if len(lanes) == 1 else bool(lanes.all())


class Linearization:
    """J and its factors during one solve.

    Args:
        field: The field.
        y: A state.
        method: The method, with the μ of its systems and how they are solved.
        lanes: Number of step sizes: one for all systems, or one for each.
    """

    def __init__(self, field: Field, y: Tensor, method: ImplicitMethod, lanes: int = 1) -> None:
        self.field, self.method, self.lanes = field, method, lanes
        self.systems = Systems.by_row(y, lanes)
        self.matrix: Tensor | None = None
        """J of every system, (systems, size, size) or a stored band."""
        self.fresh = np.zeros(lanes, dtype=bool)
        """Lanes whose J was computed where their present step begins."""
        self.factored = np.full(lanes, np.nan)
        """Step sizes of the factors."""
        self.h: float | Tensor = 0.0
        self.converged = True
        """Whether GMRES reached its tolerance since this was last reset."""
        self._point: tuple[Tensor, Tensor] | None = None
        self._value: Tensor | None = None
        self._store_as(method.band if can_solve(y) else None)

    def _store_as(self, band: Band | None) -> None:
        """Store J in these diagonals, or in full."""
        self.band = band
        stages = sum(1 + isinstance(shift, complex) for shift in self.method.shifts)
        self._factors: FullFactors | Inverses | BandFactors = FullFactors()
        if band is not None:
            self._factors = BandFactors(band)
        elif stages * self.systems.size <= SMALL:
            self._factors = Inverses()
        self.factored[:] = np.nan

    @property
    def norm(self) -> float | None:
        """The largest sum of a column of J, or None where it is no matrix."""
        return None if self.matrix is None else float(self.matrix.abs().sum(-2).max())

    @torch.no_grad()
    def take(self, t: Tensor, y: Tensor, lanes: np.ndarray) -> Tensor | None:
        """Compute the derivative for some lanes; return f there if that was needed."""
        y = y.detach()
        self._point, self._value = (t, y), None
        factors, matrix = self._factors, self._matrix(t, y)
        if matrix is None or self.matrix is None or self._factors is not factors:
            lanes = np.ones_like(lanes)
        if lanes.all() or matrix is None or self.matrix is None:
            self.matrix = matrix
        else:
            mask = torch.from_numpy(lanes).to(y.device)
            self.matrix = torch.where(mask.view(-1, 1, 1), matrix, self.matrix)
        self.fresh |= lanes
        self.factored[lanes] = np.nan
        return self._value

    def _matrix(self, t: Tensor, y: Tensor) -> Tensor | None:
        """Return J as it is stored; None where it is not formed."""
        if self.method.jacobian is not None:
            return self._narrowed(self._from_user(self.method.jacobian, t, y))
        if self.band is None and not self.method.forms_full(self.systems):
            if self.systems.count > 1 and self._coupled(t, y):
                self._join()
            return None
        local = LocalField(self.field, t, y)
        self._value = local.value.detach()
        matrix = self._from(local)
        if matrix is None and self.systems.count > 1:
            self._join()
            matrix = self._from(local)
        if matrix is None and self.method.band is not None and self.band is not None:
            raise OptionError(
                f"The derivative of the field has entries outside band={tuple(self.method.band)}. "
                "Allow more diagonals, or leave band out to have it detected."
            )
        return None if matrix is None else matrix.to(y.dtype)

    def _from(self, local: LocalField) -> Tensor | None:
        """Return J as it is stored; None if systems depend on each other, or it is not formed."""
        if self.band is not None:
            matrix = local.jacobian(self.systems, self.band)
            if matrix is not None or self.method.band is not None:
                return matrix
        if not self.method.forms_full(self.systems):
            return None
        matrix = local.jacobian(self.systems)
        return None if matrix is None else self._narrowed(matrix)

    def _narrowed(self, matrix: Tensor) -> Tensor:
        """Return full matrices as a band, where that is faster."""
        size = self.systems.size
        if size < SMALLEST:
            return matrix
        band = Band.of(matrix).joined(self.band)
        if band != self.band:
            narrow = NARROW * band.width <= size and can_solve(matrix)
            self._store_as(band if narrow else None)
        return matrix if self.band is None else self.band.stored(matrix)

    @torch.no_grad()
    def _from_user(self, jacobian: Jacobian, t: Tensor, y: Tensor) -> Tensor:
        matrix = jacobian(t, y)
        rows = Systems.by_row(y, self.lanes)
        joined = rows.joined()
        for systems in (rows, joined):
            count, size = systems.count, systems.size
            if matrix.numel() == count * size**2 and matrix.shape[-1] == size:
                if count != self.systems.count:
                    self._join()
                return matrix.reshape(count, size, size).to(y.dtype)
        raise ShapeError(
            f"jacobian must return ({rows.count}, {rows.size}, {rows.size}), one matrix per "
            f"sample, or ({joined.size}, {joined.size}), got {tuple(matrix.shape)}. Its last two "
            "dimensions are those of the field's value and of the state."
        )

    def _coupled(self, t: Tensor, y: Tensor) -> bool:
        """Whether rows depend on each other: otherwise products scale with the rows."""
        v, scale = directions(2, y)
        column = scale.reshape(len(y), -1)[:, 0].view(len(y), *(1,) * (y.dim() - 1))
        first = forward_product(self.field, t, y, column * v)
        second = column * forward_product(self.field, t, y, v)
        rows = self.systems.rows
        return not agree(rows(first), rows(second), 30 * torch.finfo(y.dtype).eps ** 0.5)

    def _join(self) -> None:
        """Continue with one system, since rows depend on each other."""
        if self.lanes > 1:
            raise OptionError(
                "The samples of the batch depend on each other, so they cannot have a step size "
                "each. Use steps='batch'."
            )
        self.systems, self.matrix = self.systems.joined(), None
        self._store_as(self.band if self.method.band is not None else None)

    def prepare(self, h: float | Tensor, sizes: np.ndarray) -> None:
        """Compute the factors for these step sizes.

        Args:
            h: Step size; (systems, 1) where every lane has its own.
            sizes: The same for each lane.
        """
        self.h = h
        if self.matrix is None:
            return
        stale = self.factored != sizes
        if not some(stale):
            return
        indices: Tensor | None = None
        matrix = self.matrix
        if not every(stale):
            indices = torch.from_numpy(stale.nonzero()[0]).to(matrix.device)
            matrix = matrix[indices]
        if isinstance(h, Tensor):
            h = (h if indices is None else h[indices]).unsqueeze(2)
        self._factors.renew(-matrix * h, self.method.shifts, indices)
        self.factored[stale] = sizes[stale]

    def solve_all(self, right: Tensor) -> Tensor:
        """Return the solutions for all μ, (stages, systems, size): two stages for a complex one."""
        if self.matrix is not None and isinstance(self._factors, Inverses):
            return self._factors.solve_all(right)
        solutions: list[Tensor] = []
        for index, shift in enumerate(self.method.shifts):
            row = right[len(solutions)]
            if isinstance(shift, complex):
                pair = self.solve(index, torch.complex(row, right[len(solutions) + 1]))
                solutions += [pair.real, pair.imag]
            else:
                solutions.append(self.solve(index, row))
        return torch.stack(solutions)

    def solve(self, index: int, right: Tensor) -> Tensor:
        """Return (μ − h J)⁻¹ r for the μ of an index; r is (systems, size), complex for some μ."""
        if self.matrix is not None:
            return self._factors.solve(index, right)
        assert self._point is not None
        shift, size, (t, y) = self.method.shifts[index], right.shape[1], self._point

        def product(v: Tensor) -> Tensor:
            return self.systems.rows(forward_product(self.field, t, y, self.systems.state(v)))

        def operator(pair: Tensor) -> Tensor:
            if not right.is_complex():
                return shift * pair - self.h * product(pair)
            a, b = pair.split(size, dim=1)
            real, imag = complex(shift).real, complex(shift).imag
            first = real * a - imag * b - self.h * product(a)
            return torch.cat((first, imag * a + real * b - self.h * product(b)), dim=1)

        rows = torch.cat((right.real, right.imag), dim=1) if right.is_complex() else right
        dimension = self.method.krylov_dimension
        solution, residual = gmres(operator, rows, tolerance=LOOSE, dimension=dimension)
        self.converged = self.converged and residual <= 100 * LOOSE
        return torch.complex(*solution.split(size, dim=1)) if right.is_complex() else solution
