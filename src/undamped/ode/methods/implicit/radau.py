"""Radau IIA: stiffly accurate collocation, of order three and five, L-stable."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from undamped.ode.methods.implicit.fully_implicit import FullyImplicit
from undamped.ode.methods.implicit.method import Attempt
from undamped.ode.methods.implicit.stability import L_STABLE
from undamped.ode.methods.solver import register_solver

_ROOT = math.sqrt(6)
# Hairer and Wanner's error weights.
_ERROR = ((-13 - 7 * _ROOT) / 3, (-13 + 7 * _ROOT) / 3, -1 / 3)


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
    nodes = ((4 - _ROOT) / 10, (4 + _ROOT) / 10, 1.0)
    matrix = (
        ((88 - 7 * _ROOT) / 360, (296 - 169 * _ROOT) / 1800, (-2 + 3 * _ROOT) / 225),
        ((296 + 169 * _ROOT) / 1800, (88 + 7 * _ROOT) / 360, (-2 - 3 * _ROOT) / 225),
        ((16 - _ROOT) / 36, (16 + _ROOT) / 36, 1 / 9),
    )
    weights = ((16 - _ROOT) / 36, (16 + _ROOT) / 36, 1 / 9)
    looks_twice = True

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


@lru_cache(maxsize=8)
def _error_weights(dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the weights of the error estimate as a row."""
    return torch.tensor([_ERROR], dtype=dtype, device=device)
