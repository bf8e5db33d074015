"""The derivative of a field where it was last taken, and what solves equations with it.

Equation:
    (μ − h J) x = r for every system, for each μ of a method

J is a matrix for each system, kept over steps; its factors are kept while h stays. Beyond a size no
matrix is formed and GMRES solves with products of J.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from undamped.errors import OptionError, ShapeError, explain
from undamped.solvers.methods.implicit.jacobian_products import forward_product
from undamped.solvers.methods.implicit.krylov import gmres
from undamped.solvers.methods.implicit.local_field import CoupledError, LocalField
from undamped.solvers.methods.implicit.systems import Systems, agree, directions
from undamped.solvers.methods.solver import Field

Jacobian = Callable[[Tensor, Tensor], Tensor]
MOST_NUMBERS = 1 << 26
"""Numbers in all matrices of a batch, beyond which none is formed."""
LOOSE = 1e-4
"""Residual of a linear system, relative to its right side, that Newton's method can do with."""


@dataclass(frozen=True)
class LinearAlgebra:
    """How linear systems are solved.

    Args:
        jacobian: ∂f/∂y as a function of (t, y), (batch, size, size) or one matrix for the state.
        dense_size: Largest system for which a matrix is formed.
        krylov_dimension: Vectors kept by GMRES beyond.
    """

    jacobian: Jacobian | None = None
    dense_size: int = 512
    krylov_dimension: int = 60

    def dense(self, systems: Systems) -> bool:
        """Whether matrices are formed."""
        if self.jacobian is not None:
            return True
        return systems.size <= self.dense_size and systems.count * systems.size**2 <= MOST_NUMBERS


@dataclass
class Linearization:
    """J and its factors during one solve.

    Args:
        field: The field.
        y: A state.
        shifts: The μ of the method.
        algebra: How linear systems are solved.
        lanes: Systems with a step size of their own each; one where all share it.
    """

    field: Field
    y: Tensor
    shifts: Sequence[complex]
    algebra: LinearAlgebra
    lanes: int = 1
    count: int = 0
    """How often J was taken."""

    def __post_init__(self) -> None:
        self.systems = Systems.by_row(self.y, self.lanes)
        self.matrix: Tensor | None = None
        self.factors: list[tuple[Tensor, Tensor]] = []
        self.fresh = np.zeros(self.lanes, dtype=bool)
        """Lanes whose J was taken where their present step begins."""
        self.taken = np.zeros(self.lanes, dtype=bool)
        self.factored = np.full(self.lanes, np.nan)
        """Step sizes of the factors."""
        self.h: float | Tensor = 0.0
        self.met = True
        """Whether GMRES met its residual since this was last asked."""
        self._place: tuple[Tensor, Tensor] | None = None
        self._value: Tensor | None = None

    @torch.no_grad()
    def take(self, t: Tensor, y: Tensor, which: np.ndarray) -> Tensor | None:
        """Take the derivative at a place, for some lanes; return f there if that was needed."""
        y = y.detach()
        self.count += 1
        self._place, self._value = (t, y), None
        if self.algebra.dense(self.systems):
            found = self._matrix(t, y)
        else:
            found = None
            if self.systems.count > 1 and self._coupled(t, y):
                self._join()
        if found is None or self.matrix is None or which.all():
            self.matrix = found
        else:
            chosen = torch.from_numpy(which).to(y.device)
            self.matrix = torch.where(chosen.view(-1, 1, 1), found, self.matrix)
        self.fresh |= which
        self.taken |= which
        self.factored[which] = np.nan
        return self._value

    def _matrix(self, t: Tensor, y: Tensor) -> Tensor | None:
        if self.algebra.jacobian is not None:
            return self._given(t, y)
        place = LocalField(self.field, t, y)
        self._value = place.value.detach()
        try:
            return place.jacobian(self.systems).to(y.dtype)
        except CoupledError:
            self._join()
            if self.algebra.dense(self.systems):
                return place.jacobian(self.systems).to(y.dtype)
            return None

    def _given(self, t: Tensor, y: Tensor) -> Tensor:
        assert self.algebra.jacobian is not None
        with torch.no_grad():
            matrix = self.algebra.jacobian(t, y)
        systems = Systems.by_row(y, self.lanes)
        whole = systems.together()
        for one in (systems, whole):
            if matrix.numel() == one.count * one.size**2 and matrix.shape[-1] == one.size:
                if one.count != self.systems.count:
                    self._join()
                return matrix.reshape(one.count, one.size, one.size).to(y.dtype)
        raise ShapeError(
            explain(
                "value of jacobian",
                expected=f"({systems.count}, {systems.size}, {systems.size}), one matrix for each "
                f"sample, or ({whole.size}, {whole.size})",
                got=str(tuple(matrix.shape)),
                remedy="Its last two dimensions are those of the field's value and of the state.",
            )
        )

    def _coupled(self, t: Tensor, y: Tensor) -> bool:
        """Scale rows at random: a derivative that keeps rows apart is scaled with them."""
        v, scale = directions(2, y)
        column = scale.reshape(len(y), -1)[:, 0].view(len(y), *(1,) * (y.dim() - 1))
        one = forward_product(self.field, t, y, column * v)
        other = column * forward_product(self.field, t, y, v)
        rows = self.systems.rows
        return not agree(rows(one), rows(other), 30 * torch.finfo(y.dtype).eps ** 0.5)

    def _join(self) -> None:
        """Go on with one system, since rows turned out to depend on each other."""
        if self.lanes > 1:
            raise OptionError(
                explain(
                    "a step size for every sample",
                    expected="a field that treats the samples of a batch apart",
                    got="one in which they depend on each other",
                    remedy="Use steps='batch', with one step size for all.",
                )
            )
        self.systems = self.systems.together()
        self.matrix, self.factors = None, []

    @torch.no_grad()
    def prepare(self, h: float | Tensor, sizes: np.ndarray) -> None:
        """Have factors for these step sizes.

        Args:
            h: Step size; (systems, 1) where every lane has its own.
            sizes: The same for each lane.
        """
        self.h = h
        stale = self.factored != sizes
        if self.matrix is None or not stale.any():
            return
        chosen: Tensor | None = None
        matrix = self.matrix
        if not stale.all():
            chosen = torch.from_numpy(stale.nonzero()[0]).to(matrix.device)
            matrix = matrix[chosen]
        scaled = -matrix * (h if not isinstance(h, Tensor) else _pick(h, chosen).unsqueeze(2))
        for number, shift in enumerate(self.shifts):
            shifted = scaled.to(
                torch.complex128 if scaled.dtype == torch.float64 else torch.complex64
            )
            if not isinstance(shift, complex):
                shifted = scaled.clone()
            shifted.diagonal(dim1=1, dim2=2).add_(shift)
            factors, pivots, _ = torch.linalg.lu_factor_ex(shifted)
            if chosen is not None:
                known = self.factors[number]
                factors = known[0].index_copy(0, chosen, factors)
                pivots = known[1].index_copy(0, chosen, pivots)
            if number == len(self.factors):
                self.factors.append((factors, pivots))
            else:
                self.factors[number] = factors, pivots
        self.factored[stale] = sizes[stale]

    @torch.no_grad()
    def solve(self, number: int, right: Tensor) -> Tensor:
        """Return (μ − h J)⁻¹ r for the μ of a number; r is (systems, size), complex for some μ."""
        if self.matrix is not None:
            return torch.linalg.lu_solve(*self.factors[number], right.unsqueeze(2)).squeeze(2)
        assert self._place is not None
        shift, (t, y) = self.shifts[number], self._place

        def product(v: Tensor) -> Tensor:
            return self.systems.rows(forward_product(self.field, t, y, self.systems.state(v)))

        if not right.is_complex():
            assert not isinstance(shift, complex)
            found, left = gmres(
                lambda v: shift * v - self.h * product(v),
                right,
                tolerance=LOOSE,
                dimension=self.algebra.krylov_dimension,
            )
        else:
            size = right.shape[1]

            def operator(pair: Tensor) -> Tensor:
                a, b = pair.split(size, dim=1)
                real, imag = complex(shift).real, complex(shift).imag
                return torch.cat(
                    (
                        real * a - imag * b - self.h * product(a),
                        imag * a + real * b - self.h * product(b),
                    ),
                    dim=1,
                )

            found, left = gmres(
                operator,
                torch.cat((right.real, right.imag), dim=1),
                tolerance=LOOSE,
                dimension=self.algebra.krylov_dimension,
            )
            found = torch.complex(*found.split(size, dim=1))
        self.met = self.met and left <= 100 * LOOSE
        return found


def _pick(h: Tensor, chosen: Tensor | None) -> Tensor:
    return h if chosen is None else h[chosen]
