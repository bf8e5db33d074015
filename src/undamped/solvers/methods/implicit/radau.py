"""Radau IIA with three stages: order five, L-stable."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from undamped.solvers.methods.implicit.method import Attempt, ImplicitMethod
from undamped.solvers.methods.implicit.stage_equations import StageEquations
from undamped.solvers.methods.solver import Field, Number, register
from undamped.solvers.methods.stage_times import stage_times

_ROOT = math.sqrt(6)
_NODES = ((4 - _ROOT) / 10, (4 + _ROOT) / 10, 1.0)
_MATRIX = (
    ((88 - 7 * _ROOT) / 360, (296 - 169 * _ROOT) / 1800, (-2 + 3 * _ROOT) / 225),
    ((296 + 169 * _ROOT) / 1800, (88 + 7 * _ROOT) / 360, (-2 - 3 * _ROOT) / 225),
    ((16 - _ROOT) / 36, (16 + _ROOT) / 36, 1 / 9),
)
# The eigenvalues of the inverse matrix, and Hairer and Wanner's error weights.
_REAL = 3 + 3 ** (2 / 3) - 3 ** (1 / 3)
_PAIR = complex(3 + (3 ** (1 / 3) - 3 ** (2 / 3)) / 2, (3 ** (5 / 6) + 3 ** (7 / 6)) / 2)
_ERROR = ((-13 - 7 * _ROOT) / 3, (-13 + 7 * _ROOT) / 3, -1 / 3)


@lru_cache(maxsize=8)
def _transformation(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return T, its inverse and T⁻¹A⁻¹T: one real equation and one complex, in real numbers."""
    inverse = np.linalg.inv(np.array(_MATRIX))
    columns = []
    for value in (_REAL, _PAIR):
        rates, vectors = np.linalg.eig(inverse)
        vector = vectors[:, np.argmin(abs(rates - value))]
        vector = vector / vector[2]
        columns += [vector.real] if value is _REAL else [vector.real, -vector.imag]
    change = np.stack(columns, axis=1)
    back = np.linalg.inv(change)
    found = change, back, back @ inverse @ change
    change, back, blocks = (torch.from_numpy(x).to(device, dtype) for x in found)
    return change, back, blocks


@register("radau5")
class Radau5(ImplicitMethod):
    """Radau IIA of order five: the choice for stiff fields and tight tolerances.

    Equation:
        z_i = h Σ_j a_ij f(t + c_j h, y + z_j),  y' = y + z_3

    Promise:
        Order five, L-stable, stiffly accurate. Gradients are those of the equations at their
        solution.

    Reference:
        E. Hairer, G. Wanner. Solving ordinary differential equations II, section IV.8.
    """

    aliases = ("radauiia5",)
    order = 5
    error_order = 3
    nodes = _NODES
    shifts = (_REAL, _PAIR)
    looks_twice = True

    def solve_stages(self, attempt: Attempt, start: Tensor | None) -> Tensor:
        """Solve the three stages together, as one real and one complex system."""
        line, h = attempt.line, attempt.row_h
        change, back, blocks = _transformation(attempt.y.dtype, attempt.y.device)
        z = self._guess(attempt) if start is None else start.transpose(0, 1)
        w = back @ z
        if isinstance(h, Tensor):
            h = h.unsqueeze(2)
        times = attempt.times(_NODES)
        seen = attempt.corrections()
        while seen.under_way:
            slopes = torch.stack(
                [attempt.slope(time, part) for time, part in zip(times, z.unbind(1), strict=True)],
                dim=1,
            )
            first, second, third = ((back @ slopes) * h - blocks @ w).unbind(1)
            real = line.solve(0, first)
            pair = line.solve(1, torch.complex(second, third))
            correction = torch.stack((real, pair.real, pair.imag), dim=1)
            w = attempt.added(seen.look(correction), w, correction)
            z = change @ w
        attempt.finish(seen)
        return z.transpose(0, 1)

    def _guess(self, attempt: Attempt) -> Tensor:
        """Continue the polynomial of the step before, (systems, stages, size)."""
        last, ratio = attempt.last, attempt.ratio
        if last is None or ratio is None:
            return attempt.rows.new_zeros(len(attempt.rows), 3, attempt.rows.shape[1])
        weights = torch.from_numpy(_continuation(ratio)).to(last.device, last.dtype)
        return weights @ last.transpose(0, 1)

    def end(self, field: Field, t: Number, h: Number, y: Tensor, stages: Tensor) -> Tensor:
        """Return the last stage."""
        if torch.is_grad_enabled():
            times = stage_times(t, h, _NODES, y)
            equations = StageEquations(field, times, h, _MATRIX, None, y, self.algebra)
            stages = equations.attach(stages)
        return y + stages[2]

    def points(self, y: Tensor, stages: Tensor) -> list[tuple[float, float, Tensor]]:
        """Return the stages, whose weights are those of the last one."""
        states = [y + z for z in stages.unbind()]
        return list(zip(_MATRIX[2], _NODES, states, strict=True))

    def estimate(self, attempt: Attempt, stages: Tensor, change: Tensor | None) -> Tensor:
        """Compare with a method of order three, filtered by the stiff part of the field.

        Unfiltered, every stiff mode would look like an error.
        """
        weights = torch.tensor(_ERROR, dtype=stages.dtype, device=stages.device)
        if change is None:
            slope = attempt.first_slope()
        else:
            slope = attempt.slope(attempt.times((0.0,))[0], change)
        raw = slope * attempt.row_h + torch.tensordot(weights, stages, 1)
        return attempt.line.solve(0, raw)


def _continuation(ratio: np.ndarray) -> np.ndarray:
    """Return the weights of the last stages in the next, (lanes, 3, 3).

    The stages of a step lie on a polynomial of degree three that begins at nought; the next step's
    are its values beyond the end, less the value there.
    """
    others, scale = _lagrange()
    places = 1 + np.array(_NODES) * ratio[:, None]  # (lanes, stages)
    found = (places[..., None, None] - others).prod(-1) * scale
    found[:, :, 2] -= 1
    return found


@lru_cache(maxsize=1)
def _lagrange() -> tuple[np.ndarray, np.ndarray]:
    """Return the other nodes of each stage, and one over the product of distances to them."""
    nodes = np.array((0.0, *_NODES))
    others = np.stack([np.delete(nodes, j) for j in (1, 2, 3)])
    return others, 1 / (nodes[1:, None] - others).prod(-1)
