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

from undamped.solvers.methods.implicit.band import Band
from undamped.solvers.methods.implicit.linearization import Linearization
from undamped.solvers.methods.implicit.method import Attempt, ImplicitMethod
from undamped.solvers.methods.implicit.stage_equations import StageEquations
from undamped.solvers.methods.solver import Field, Number
from undamped.solvers.methods.stage_times import stage_times

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

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.diagonal = Diagonal.of(cls.matrix)
        cls.shifts = cls.diagonal.shifts
        if cls.weights == cls.matrix[-1]:  # stiffly accurate: the last stage is the end
            cls.last = (*(0.0 for _ in cls.weights[1:]), 1.0)
        else:
            cls.last = tuple(np.linalg.solve(np.array(cls.matrix).T, cls.weights).tolist())

    def solve_stages(self, attempt: Attempt, start: Tensor | None) -> Tensor:
        """Solve the stages together, each eigenvalue a system of its own."""
        h = attempt.row_h
        change, back, blocks = self.diagonal.on(attempt.y.dtype, attempt.y.device)
        z = self._guess(attempt) if start is None else start.transpose(0, 1)
        w = back @ z
        if isinstance(h, Tensor):
            h = h.unsqueeze(2)
        times = attempt.times(self.nodes)
        seen = attempt.corrections()
        while seen.under_way:
            slopes = torch.stack(
                [attempt.slope(time, part) for time, part in zip(times, z.unbind(1), strict=True)],
                dim=1,
            )
            correction = self._correction(attempt.line, (back @ slopes) * h - blocks @ w)
            w = attempt.added(seen.look(correction), w, correction)
            z = change @ w
        attempt.finish(seen)
        return z.transpose(0, 1)

    def _correction(self, line: Linearization, right: Tensor) -> Tensor:
        """Solve the systems of all eigenvalues, (systems, stages, size)."""
        found: list[Tensor] = []
        for number, shift in enumerate(self.shifts):
            row = right[:, len(found)]
            if isinstance(shift, complex):
                pair = line.solve(number, torch.complex(row, right[:, len(found) + 1]))
                found += [pair.real, pair.imag]
            else:
                found.append(line.solve(number, row))
        return torch.stack(found, dim=1)

    def _guess(self, attempt: Attempt) -> Tensor:
        """Continue the polynomial of the step before, (systems, stages, size)."""
        last, ratio, rows = attempt.last, attempt.ratio, attempt.rows
        if last is None or ratio is None:
            return rows.new_zeros(len(rows), len(self.nodes), rows.shape[1])
        weights = torch.from_numpy(_continuation(self.nodes, ratio)).to(last.device, last.dtype)
        return weights @ last.transpose(0, 1)

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


def _continuation(nodes: tuple[float, ...], ratio: np.ndarray) -> np.ndarray:
    """Return the weights of the last stages in the next, (lanes, stages, stages).

    The stages of a step lie on a polynomial that begins at zero; the next step's are its values
    beyond the end, less the value there.
    """
    others, scale = _lagrange(nodes)
    places = 1 + np.array((*nodes, 0.0)) * ratio[:, None]  # (lanes, stages + 1)
    found = (places[..., None, None] - others).prod(-1) * scale
    return found[:, :-1] - found[:, -1:]


@lru_cache(maxsize=8)
def _lagrange(nodes: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the other nodes of each stage, and one over the product of distances to them."""
    points = np.array((0.0, *nodes))
    others = np.stack([np.delete(points, j) for j in range(1, len(points))])
    return others, 1 / (points[1:, None] - others).prod(-1)
