"""Fully implicit Runge–Kutta methods: all stages of a step solved together.

The matrix of the method is diagonalized once, so that the equations of s stages fall into systems
of the state's own size, real ones and complex ones (Butcher; Bickart).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from undamped.ode.methods.implicit.band import Band
from undamped.ode.methods.implicit.method import Attempt, ImplicitMethod
from undamped.ode.methods.implicit.stage_equations import StageEquations
from undamped.ode.methods.solver import Field, Number
from undamped.ode.methods.stage_times import stage_times

Matrix = tuple[tuple[float, ...], ...]


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

    @lru_cache(maxsize=8)  # noqa: B019 there is one of these for a method, for as long as it is
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
    weights: ClassVar[tuple[float, ...]]
    diagonal: ClassVar[Diagonal]
    last: ClassVar[tuple[float, ...]]
    """The d."""
    continuation: ClassVar[np.ndarray]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.diagonal = Diagonal.of(cls.matrix)
        cls.shifts = cls.diagonal.shifts
        cls.continuation = _continuation(cls.nodes, cls.diagonal.back)
        if cls.weights == cls.matrix[-1]:  # stiffly accurate: the last stage is the end
            cls.last = (*(0.0 for _ in cls.weights[1:]), 1.0)
        else:
            cls.last = tuple(np.linalg.solve(np.array(cls.matrix).T, cls.weights).tolist())

    def solve_stages(self, attempt: Attempt, start: Tensor | None) -> Tensor:
        """Solve the stages together, each eigenvalue a system of its own."""
        h, y, line = attempt.row_h, attempt.y, attempt.line
        change, back, blocks = self.diagonal.on(y.dtype, y.device)
        stages = len(self.nodes)
        shape, states_shape = (stages, *attempt.rows.shape), (stages, *y.shape)
        # The stages of all systems are combined alike, so that one product does it for all.
        w = self._guess(attempt) if start is None else back @ start.flatten(1)
        times, flat = attempt.times(self.nodes), y.reshape(-1)
        seen = attempt.corrections()
        while seen.under_way:
            states = torch.mm(change, w).add_(flat).view(states_shape).unbind()
            slopes = [line.field(time, state) for time, state in zip(times, states, strict=True)]
            slopes = torch.stack(slopes).view(stages, -1)
            if isinstance(h, Tensor):
                right = ((back @ slopes).view(shape) * h).view(w.shape) - blocks @ w
            else:
                right = torch.addmm(torch.mm(blocks, w), back, slopes, beta=-1, alpha=h)
            correction = line.solve_all(right.view(shape))
            w = attempt.added(seen.look(correction), w.view(shape), correction).flatten(1)
        attempt.finish(seen)
        return torch.mm(change, w).view(shape)

    def _guess(self, attempt: Attempt) -> Tensor:
        """Continue the polynomial of the step before: T⁻¹ z, (stages, numbers)."""
        last, ratio, rows = attempt.last, attempt.ratio, attempt.rows
        if last is None or ratio is None:
            return rows.new_zeros(len(self.nodes), rows.numel())
        powers = ratio[:, None] ** np.arange(1, len(self.nodes) + 1)
        weights = torch.from_numpy(powers @ self.continuation).to(last.device, last.dtype)
        weights = weights.view(-1, len(last), len(last))
        if len(weights) == 1:
            return torch.mm(weights[0], last.flatten(1))
        return torch.bmm(weights, last.transpose(0, 1)).transpose(0, 1).flatten(1)

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
        if torch.is_grad_enabled():
            times = stage_times(t, h, self.nodes, y)
            if isinstance(h, Tensor):  # in double precision, whatever the state is in
                h = h.to(y.dtype)
            equations = StageEquations(field, times, h, self.matrix, None, y, self.algebra, band)
            stages = equations.attach(stages)
        for weight, stage in zip(self.last, stages.unbind(), strict=True):
            if weight:
                y = torch.add(y, stage, alpha=weight)
        return y

    def points(self, y: Tensor, stages: Tensor) -> list[tuple[float, float, Tensor]]:
        """Return the stages with their weights."""
        states = [y + z for z in stages.unbind()]
        return list(zip(self.weights, self.nodes, states, strict=True))


def _continuation(nodes: tuple[float, ...], back: np.ndarray) -> np.ndarray:
    """Return T⁻¹ times the weights of the last stages in the next, by powers of a ratio.

    The stages of a step lie on a polynomial that begins at zero; the next step's are its values
    beyond the end, less the value there. They are polynomials in the ratio of the step sizes,
    without a constant: (stages, stages²), the power first.
    """
    points = np.array((0.0, *nodes))
    found = np.zeros((len(nodes), len(nodes), len(nodes)))  # power, stage, last stage
    for j in range(1, len(points)):
        others = np.delete(points, j)
        lagrange = np.polynomial.Polynomial.fromroots(others) / (points[j] - others).prod()
        for i, node in enumerate(nodes):
            ahead = lagrange(np.polynomial.Polynomial((1.0, node)))
            found[:, i, j - 1] = ahead.coef[1:]
    return (back @ found).reshape(len(nodes), -1)
