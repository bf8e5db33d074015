"""Gauss's collocation: the highest order that so many stages can have, symmetric and symplectic."""

from __future__ import annotations

import math

from undamped.ode.methods.implicit.fully_implicit import FullyImplicit
from undamped.ode.methods.implicit.stability import A_STABLE
from undamped.ode.methods.solver import register_solver

_THREE, _FIFTEEN = math.sqrt(3), math.sqrt(15)


@register_solver("gauss4")
class Gauss4(FullyImplicit):
    """Two Gauss points: order four, symmetric, symplectic for every Hamiltonian.

    Promise:
        A-stable; fast modes are turned around, not damped.

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
        A-stable; fast modes are turned around, not damped.

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
