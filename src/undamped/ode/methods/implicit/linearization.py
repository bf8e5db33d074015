"""The derivative of a field where it was last taken, and what solves equations with it.

Equation:
    (μ − h J) x = r for every system, for each μ of a method

J is a matrix for each system, full or a band, kept over steps; its factors are kept while h stays.
Beyond a size no matrix is formed and GMRES solves with products of J.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import OptionError, ShapeError, explain
from undamped.ode.methods.implicit.band import WORTH_IT, Band, BandFactors, can_solve
from undamped.ode.methods.implicit.factors import SMALL, Factors, FullFactors, Inverses
from undamped.ode.methods.implicit.jacobian_products import forward_product
from undamped.ode.methods.implicit.krylov import gmres
from undamped.ode.methods.implicit.lanes import every, some
from undamped.ode.methods.implicit.local_field import CoupledError, LocalField
from undamped.ode.methods.implicit.systems import Systems, agree, directions
from undamped.ode.methods.solver import Field

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
        dense_size: Largest system for which a full matrix is formed.
        krylov_dimension: Vectors kept by GMRES beyond.
        band: Diagonals of ∂f/∂y below and above the main one, if they are known.
    """

    jacobian: Jacobian | None = None
    dense_size: int = 512
    krylov_dimension: int = 60
    band: Band | None = None

    def forms_full(self, systems: Systems) -> bool:
        """Whether full matrices are formed, where they have to be."""
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
        """J of every system, (systems, size, size) or a stored band."""
        self.fresh = np.zeros(self.lanes, dtype=bool)
        """Lanes whose J was taken where their present step begins."""
        self.factored = np.full(self.lanes, np.nan)
        """Step sizes of the factors."""
        self.h: float | Tensor = 0.0
        self.met = True
        """Whether GMRES met its residual since this was last asked."""
        self._place: tuple[Tensor, Tensor] | None = None
        self._value: Tensor | None = None
        self._keep_as(self.algebra.band if can_solve(self.y) else None)

    def _keep_as(self, band: Band | None) -> None:
        """Keep J in these diagonals from here on, or in full."""
        self.band = band
        stages = sum(1 + isinstance(shift, complex) for shift in self.shifts)
        self._factors: Factors = FullFactors() if band is None else BandFactors(band)
        if band is None and stages * self.systems.size <= SMALL:
            self._factors = Inverses()
        self.factored[:] = np.nan

    @property
    def norm(self) -> float | None:
        """The largest sum of a column of J, or None where it is no matrix."""
        return None if self.matrix is None else float(self.matrix.abs().sum(-2).max())

    @torch.no_grad()
    def take(self, t: Tensor, y: Tensor, which: np.ndarray) -> Tensor | None:
        """Take the derivative at a place, for some lanes; return f there if that was needed."""
        y = y.detach()
        self.count += 1
        self._place, self._value = (t, y), None
        factors, found = self._factors, self._matrix(t, y)
        if found is None or self.matrix is None or self._factors is not factors:
            which = np.ones_like(which)
        if which.all() or found is None or self.matrix is None:
            self.matrix = found
        else:
            chosen = torch.from_numpy(which).to(y.device)
            self.matrix = torch.where(chosen.view(-1, 1, 1), found, self.matrix)
        self.fresh |= which
        self.factored[which] = np.nan
        return self._value

    def _matrix(self, t: Tensor, y: Tensor) -> Tensor | None:
        """Return J as it is kept; None where it is not formed."""
        if self.algebra.jacobian is not None:
            return self._narrowed(self._given(t, y))
        if self.band is None and not self.algebra.forms_full(self.systems):
            if self.systems.count > 1 and self._coupled(t, y):
                self._join()
            return None
        place = LocalField(self.field, t, y)
        self._value = place.value.detach()
        found = self._from(place)
        if found is None and self.systems.count > 1:
            self._join()
            found = self._from(place)
        if found is None and self.algebra.band is not None and self.band is not None:
            raise _outside(self.algebra.band)
        return None if found is None else found.to(y.dtype)

    def _from(self, place: LocalField) -> Tensor | None:
        """Return J as it is kept; None if the systems depend on each other, or it is not formed."""
        if self.band is not None:
            found = place.band(self.systems, self.band)
            if found is not None or self.algebra.band is not None:
                return found
        if not self.algebra.forms_full(self.systems):
            return None
        try:
            return self._narrowed(place.jacobian(self.systems))
        except CoupledError:
            return None

    def _narrowed(self, matrix: Tensor) -> Tensor:
        """Return full matrices as a band, where that pays."""
        size = self.systems.size
        if size < WORTH_IT:
            return matrix
        band = Band.of(matrix).joined(self.band)
        if band != self.band:
            self._keep_as(band if band.pays(size, matrix) else None)
        return matrix if self.band is None else self.band.stored(matrix)

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
        self.systems, self.matrix = self.systems.together(), None
        self._keep_as(self.band if self.algebra.band is not None else None)

    def prepare(self, h: float | Tensor, sizes: np.ndarray) -> None:
        """Have factors for these step sizes.

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
        chosen: Tensor | None = None
        matrix = self.matrix
        if not every(stale):
            chosen = torch.from_numpy(stale.nonzero()[0]).to(matrix.device)
            matrix = matrix[chosen]
        scaled = -matrix * (h if not isinstance(h, Tensor) else _pick(h, chosen).unsqueeze(2))
        self._factors.renew(scaled, self.shifts, chosen)
        self.factored[stale] = sizes[stale]

    def solve_all(self, right: Tensor) -> Tensor:
        """Return the solutions for all μ, (stages, systems, size): two stages for a complex one."""
        if self.matrix is not None and isinstance(self._factors, Inverses):
            return self._factors.solve_all(right)
        found: list[Tensor] = []
        for number, shift in enumerate(self.shifts):
            row = right[len(found)]
            if isinstance(shift, complex):
                pair = self.solve(number, torch.complex(row, right[len(found) + 1]))
                found += [pair.real, pair.imag]
            else:
                found.append(self.solve(number, row))
        return torch.stack(found)

    def solve(self, number: int, right: Tensor) -> Tensor:
        """Return (μ − h J)⁻¹ r for the μ of a number; r is (systems, size), complex for some μ."""
        if self.matrix is not None:
            return self._factors.solve(number, right)
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


def _outside(band: Band) -> OptionError:
    return OptionError(
        explain(
            "band",
            expected=f"all of the derivative within {band.lower} diagonals below and {band.upper} "
            "above the main one",
            got="a field that reaches further",
            remedy="Give more of them, or leave band out to have it found.",
        )
    )
