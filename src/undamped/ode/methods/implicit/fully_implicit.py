"""Fully implicit Runge–Kutta methods: all stages of a step solved together.

The matrix of the method is diagonalized once, so that the equations of s stages fall into systems
of the state's own size, real ones and complex ones (Butcher; Bickart).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from undamped.ode.methods.implicit.method import A_STABLE, L_STABLE, Attach, First, ImplicitMethod
from undamped.ode.methods.implicit.newton import Attempt
from undamped.ode.methods.solver import register_solver
from undamped.ode.methods.stages import Row

Matrix = tuple[Row, ...]


@dataclass(frozen=True, eq=False)
class Diagonal:
    """The inverse of a method's matrix, T D T⁻¹ in real numbers.

    Args:
        shifts: Its eigenvalues: real ones first, then one of every complex pair.
        change: T, whose columns are eigenvectors, real and imaginary part of a complex one.
        back: T⁻¹.
        blocks: D.
    """

    shifts: tuple[complex, ...]
    change: np.ndarray
    back: np.ndarray
    blocks: np.ndarray

    @classmethod
    def of(cls, matrix: Matrix) -> Diagonal:
        """Diagonalize the inverse of a matrix."""
        inverse = np.linalg.inv(np.array(matrix))
        rates, vectors = np.linalg.eig(inverse)
        shifts: list[complex] = []
        columns: list[np.ndarray] = []
        for number in np.argsort(np.abs(np.imag(rates))):
            rate, vector = complex(rates[number]), vectors[:, number] / vectors[-1, number]
            if abs(rate.imag) < 1e-9:
                shifts.append(rate.real)
                columns.append(np.real(vector))
            elif rate.imag > 0:
                shifts.append(rate)
                columns += [np.real(vector), -np.imag(vector)]
        change = np.stack(columns, axis=1)
        back = np.linalg.inv(change)
        return cls(tuple(shifts), change, back, back @ inverse @ change)

    @lru_cache(maxsize=8)  # noqa: B019 there is one of these for a method, for as long as it lives
    def on(self, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Return T, T⁻¹ and D as tensors."""
        parts = self.change, self.back, self.blocks
        change, back, blocks = (torch.from_numpy(part).to(device, dtype) for part in parts)
        return change, back, blocks


class FullyImplicit(ImplicitMethod):
    """A method whose stages depend on all of each other.

    Equation:
        z_i = h Σ_j a_ij f(t + c_j h, y + z_j),  y' = y + Σ_i d_i z_i,  d = bᵀA⁻¹
    """

    matrix: ClassVar[Matrix]
    diagonal: ClassVar[Diagonal]
    last: ClassVar[Row]
    """The d."""
    continuation: ClassVar[np.ndarray]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.diagonal = Diagonal.of(cls.matrix)
        cls.shifts = cls.diagonal.shifts
        cls.continuation = _continuation(cls.nodes, cls.diagonal.back)
        cls.stiffly_accurate = cls.weights == cls.matrix[-1]
        if cls.stiffly_accurate:
            cls.last = (*(0.0 for _ in cls.weights[1:]), 1.0)
        else:
            cls.last = tuple(np.linalg.solve(np.array(cls.matrix).T, cls.weights).tolist())

    def solve_stages(self, attempt: Attempt, start: Tensor | None) -> Tensor:
        """Solve the stages together, with one system per eigenvalue."""
        h, y, line = attempt.row_h, attempt.y, attempt.line
        change, back, blocks = self.diagonal.on(y.dtype, y.device)
        stages = len(self.nodes)
        shape, states_shape = (stages, *attempt.rows.shape), (stages, *y.shape)
        times, flat = attempt.times(self.nodes), y.reshape(-1)

        # The stages of all systems are combined alike, so that one product does it for all.
        def residual(transformed: Tensor) -> Tensor:
            w = transformed.flatten(1)
            states = torch.mm(change, w).add_(flat).view(states_shape).unbind()
            slopes = [line.field(time, state) for time, state in zip(times, states, strict=True)]
            slopes = torch.stack(slopes).view(stages, -1)
            if isinstance(h, Tensor):
                right = ((back @ slopes).view(shape) * h).view(w.shape) - blocks @ w
            else:
                right = torch.addmm(torch.mm(blocks, w), back, slopes, beta=-1, alpha=h)
            return right.view(shape)

        w = self._extrapolate(attempt) if start is None else back @ start.flatten(1)
        w = attempt.correct(w.view(shape), residual, line.solve_all)
        return torch.mm(change, w.flatten(1)).view(shape)

    def _extrapolate(self, attempt: Attempt) -> Tensor:
        """Continue the polynomial of the step before: T⁻¹ z, (stages, numbers)."""
        last, ratio, rows = attempt.last, attempt.ratio, attempt.rows
        if last is None:
            return rows.new_zeros(len(self.nodes), rows.numel())
        powers = ratio[:, None] ** np.arange(1, len(self.nodes) + 1)
        weights = torch.from_numpy(powers @ self.continuation).to(last.device, last.dtype)
        weights = weights.view(-1, len(last), len(last))
        if len(weights) == 1:
            return torch.mm(weights[0], last.flatten(1))
        return torch.bmm(weights, last.transpose(0, 1)).transpose(0, 1).flatten(1)

    def combine(self, y: Tensor, stages: Tensor, first: First, attach: Attach) -> Tensor:
        """Add the stages by the d."""
        stages = attach(stages, 0, self.matrix, None)
        for weight, stage in zip(self.last, stages.unbind(), strict=True):
            if weight:
                y = torch.add(y, stage, alpha=weight)
        return y


def _continuation(nodes: Row, back: np.ndarray) -> np.ndarray:
    """Return T⁻¹ times the weights of the last stages in the next, by powers of a ratio.

    The stages of a step lie on a polynomial that begins at zero; the next step's are its values
    beyond the end, less the value there. They are polynomials in the ratio of the step sizes,
    without a constant: (stages, stages²), the power first.
    """
    points = np.array((0.0, *nodes))
    weights = np.zeros((len(nodes), len(nodes), len(nodes)))  # power, stage, last stage
    for j in range(1, len(points)):
        roots = np.delete(points, j)
        lagrange = np.polynomial.Polynomial.fromroots(roots) / (points[j] - roots).prod()
        for i, node in enumerate(nodes):
            continued = lagrange(np.polynomial.Polynomial((1.0, node)))
            weights[:, i, j - 1] = continued.coef[1:]
    return (back @ weights).reshape(len(nodes), -1)


_THREE, _FIFTEEN, _SIX = math.sqrt(3), math.sqrt(15), math.sqrt(6)


@register_solver("gauss4")
class Gauss4(FullyImplicit):
    """Two Gauss points: order four, symmetric, symplectic for every Hamiltonian.

    Promise:
        A-stable; fast modes change sign, and are not damped.

    Reference:
        E. Hairer, C. Lubich, G. Wanner. Geometric numerical integration, table II.1.1.
    """

    aliases = ("gl4",)
    promises = A_STABLE
    order = 4
    symmetric = True
    symplectic = True
    nodes = (1 / 2 - _THREE / 6, 1 / 2 + _THREE / 6)
    matrix = ((1 / 4, 1 / 4 - _THREE / 6), (1 / 4 + _THREE / 6, 1 / 4))
    weights = (1 / 2, 1 / 2)


@register_solver("gauss6")
class Gauss6(FullyImplicit):
    """Three Gauss points: order six, symmetric, symplectic for every Hamiltonian.

    Promise:
        A-stable; fast modes change sign, and are not damped.

    Reference:
        E. Hairer, C. Lubich, G. Wanner. Geometric numerical integration, table II.1.1.
    """

    aliases = ("gl6",)
    promises = A_STABLE
    order = 6
    symmetric = True
    symplectic = True
    nodes = (1 / 2 - _FIFTEEN / 10, 1 / 2, 1 / 2 + _FIFTEEN / 10)
    matrix = (
        (5 / 36, 2 / 9 - _FIFTEEN / 15, 5 / 36 - _FIFTEEN / 30),
        (5 / 36 + _FIFTEEN / 24, 2 / 9, 5 / 36 - _FIFTEEN / 24),
        (5 / 36 + _FIFTEEN / 30, 2 / 9 + _FIFTEEN / 15, 5 / 36),
    )
    weights = (5 / 18, 4 / 9, 5 / 18)


@register_solver("radau3")
class Radau3(FullyImplicit):
    """Radau IIA of order three, for fixed steps.

    Promise:
        A-stable and L-stable; stiffly accurate.

    Reference:
        E. Hairer, G. Wanner. Solving ordinary differential equations II, table IV.5.5.
    """

    aliases = ("radauiia3",)
    promises = L_STABLE
    order = 3
    nodes = (1 / 3, 1.0)
    matrix = ((5 / 12, -1 / 12), (3 / 4, 1 / 4))
    weights = (3 / 4, 1 / 4)


@register_solver("radau5")
class Radau5(FullyImplicit):
    """Radau IIA of order five: the choice for stiff fields and tight tolerances.

    Equation:
        z_i = h Σ_j a_ij f(t + c_j h, y + z_j),  y' = y + z_3

    Promise:
        A-stable and L-stable; stiffly accurate.

    Reference:
        E. Hairer, G. Wanner. Solving ordinary differential equations II, section IV.8.
    """

    aliases = ("radauiia5",)
    promises = L_STABLE
    order = 5
    error_order = 3
    nodes = ((4 - _SIX) / 10, (4 + _SIX) / 10, 1.0)
    matrix = (
        ((88 - 7 * _SIX) / 360, (296 - 169 * _SIX) / 1800, (-2 + 3 * _SIX) / 225),
        ((296 + 169 * _SIX) / 1800, (88 + 7 * _SIX) / 360, (-2 - 3 * _SIX) / 225),
        ((16 - _SIX) / 36, (16 + _SIX) / 36, 1 / 9),
    )
    weights = ((16 - _SIX) / 36, (16 + _SIX) / 36, 1 / 9)
    estimates_twice = True

    def estimate(self, attempt: Attempt, stages: Tensor, change: Tensor | None) -> Tensor:
        """Compare with a method of order three, filtered by the stiff part of the field.

        Unfiltered, every stiff mode would look like an error.
        """
        weights = _error_weights(stages.dtype, stages.device)
        if change is None:
            slope = attempt.first_slope()
        else:
            slope = attempt.slope(attempt.times((0.0,))[0], change)
        raw = slope * attempt.row_h + torch.mm(weights, stages.flatten(1)).view(slope.shape)
        return attempt.line.solve(0, raw)


# Hairer and Wanner's error weights.
_ERROR = ((-13 - 7 * _SIX) / 3, (-13 + 7 * _SIX) / 3, -1 / 3)


@lru_cache(maxsize=8)
def _error_weights(dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the weights of the error estimate as a row."""
    return torch.tensor([_ERROR], dtype=dtype, device=device)
