"""Parameters as functions of depth, between the points of a grid on which they are known.

Cubics with the right values and slopes; of rotations a cubic in the Lie algebra, so that what is
between grid points is orthogonal too.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped.kernels.skew_exponential import skew_exponential
from undamped.ode.methods.lie import commutator

WIDEST = 0.75
"""Tangent of half the largest angle by which a rotation may turn between grid points."""


class ParameterPath(ABC):
    """θ as a function of time, with gradients to whatever made it.

    Args:
        step: Distance of the grid's times, the first of which is 0.
        data: All that is known on the grid, (kinds, points, …). One tensor, since a gradient that
            evaluates the field again has to stop there, and kinds depend on each other.
    """

    def __init__(self, step: float, data: Tensor) -> None:
        self.step, self.data = step, data

    def at(self, t: Any) -> Tensor:
        """Return θ(t), (n, m), or for times (batch, 1, …) one for every sample.

        Args:
            t: When, from 0 to the end of depth.
        """
        last = self.segments - 1
        if isinstance(t, Tensor) and t.dim() and t.numel() > 1:
            position = t.detach().reshape(-1).to(self.data.dtype) / self.step
            index = position.floor().clamp(0, last)
            return self.between(index.long(), (position - index).reshape(-1, 1, 1))
        position = float(t) / self.step
        index = min(max(math.floor(position), 0), last)
        share = position - index
        return self.data[0, index] if share == 0.0 else self.between(index, share)

    @property
    @abstractmethod
    def segments(self) -> int:
        """How many there are between grid points."""

    @abstractmethod
    def between(self, index: Any, share: Any) -> Tensor:
        """Return θ at a share of the way from one grid point to the next."""


class CubicPath(ParameterPath):
    """A path with the right values and slopes on the grid, and cubics between.

    Args:
        step: Distance of the grid's times.
        values: θ on the grid, (points, …).
        slopes: dθ/dt there.
    """

    def __init__(self, step: float, values: Tensor, slopes: Tensor) -> None:
        super().__init__(step, torch.stack((values, step * slopes)))

    @property
    def segments(self) -> int:
        """One less than grid points."""
        return self.data.shape[1] - 1

    def between(self, index: Any, share: Any) -> Tensor:
        """Return Hermite's cubic."""
        begin, rise, end = _hermite(share)
        (first, rising), (last, arriving) = self.data[:, index], self.data[:, index + 1]
        return first + rise * (last - first) + begin * rising + end * arriving


class RotationPath(ParameterPath):
    """A path of orthogonal matrices: W(t) = W_j exp(Ω(t)) with a cubic Ω between grid points.

    Args:
        step: Distance of the grid's times.
        values: W on the grid, (points, n, n).
        generators: b there.
    """

    def __init__(self, step: float, values: Tensor, generators: Tensor) -> None:
        turns = rotation_logarithms(values[:-1].mT @ values[1:])
        # Where it ends, dΩ/dt is not b: the inverse of the differential of exp, to fourth order.
        end = step * generators[1:]
        inner = commutator(turns, end)
        ends = end + inner / 2 + commutator(turns, inner) / 12
        super().__init__(step, torch.stack((values[:-1], turns, step * generators[:-1], ends)))

    @property
    def segments(self) -> int:
        """As many as there are turns."""
        return self.data.shape[1]

    def between(self, index: Any, share: Any) -> Tensor:
        """Turn on from the grid point before."""
        begin, rise, end = _hermite(share)
        value, turn, starting, ending = self.data[:, index]
        return value @ skew_exponential(begin * starting + rise * turn + end * ending)


class StillPath(ParameterPath):
    """Parameters that do not move.

    Args:
        value: θ.
    """

    def __init__(self, value: Tensor) -> None:
        super().__init__(1.0, value)

    @property
    def segments(self) -> int:
        """None."""
        return 0

    def at(self, t: Any) -> Tensor:
        """Return θ, at any time."""
        return self.data

    def between(self, index: Any, share: Any) -> Tensor:
        """Return θ."""
        return self.data


def rotation_logarithms(matrices: Tensor) -> Tensor:
    """Return the skew Ω with exp(Ω) = R for rotations R (…, n, n) by less than a right angle.

    Equation:
        K = (R − I)(R + I)⁻¹,  Ω = 2 artanh K = 2 (K + K³/3 + K⁵/5 + …)

    Args:
        matrices: R.
    """
    tangent = _tangents(matrices)
    size = torch.linalg.matrix_norm(tangent.detach(), 2).max().item()
    if not size <= WIDEST:
        raise OptionError(
            "matrix_steps is too small: the parameters rotate by more than 74° in a step. Choose "
            "more steps, or leave it out to have the number chosen."
        )
    power, total, square = tangent, tangent, tangent @ tangent
    terms = math.ceil(math.log(torch.finfo(tangent.dtype).eps) / math.log(max(size, 1e-3) ** 2))
    for number in range(1, terms + 1):
        power = power @ square
        total = total + power / (2 * number + 1)
    return total - total.mT  # twice, and skew to the last bit


def _tangents(matrices: Tensor) -> Tensor:
    eye = torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
    return torch.linalg.solve(matrices + eye, matrices - eye)


def widest_turn(values: Tensor) -> float:
    """Return the tangent of half the largest angle between neighbours of a path.

    Args:
        values: The path, (points, n, n).
    """
    tangents = _tangents(values[:-1].mT @ values[1:])
    return torch.linalg.matrix_norm(tangents, 2).max().item()


def _hermite(share: Any) -> tuple[Any, Any, Any]:
    """Return the weights of the slope at the begin, the rise, and the slope at the end."""
    return share * (1 - share) ** 2, share * share * (3 - 2 * share), share * share * (share - 1)
