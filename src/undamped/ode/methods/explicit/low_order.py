"""Euler, midpoint, Heun, Bogacki–Shampine and the classical method of order four."""

from __future__ import annotations

from undamped.ode.methods.explicit.runge_kutta import RungeKutta
from undamped.ode.methods.explicit.tableau import Tableau
from undamped.ode.methods.solver import register_solver


@register_solver("euler")
class Euler(RungeKutta):
    """Euler's method, order one: y' = y + h f(t, y)."""

    order = 1
    tableau = Tableau((0.0,), (), (1.0,))


@register_solver("midpoint")
class Midpoint(RungeKutta):
    """The explicit midpoint rule, order two."""

    order = 2
    tableau = Tableau((0.0, 0.5), ((0.5,),), (0.0, 1.0))


@register_solver("heun")
class Heun(RungeKutta):
    """Heun's method, order two, with Euler's as companion."""

    aliases = ("adaptive-heun",)
    order = 2
    error_order = 1
    tableau = Tableau((0.0, 1.0), ((1.0,),), (0.5, 0.5), (-0.5, 0.5))


@register_solver("bosh3")
class Bosh3(RungeKutta):
    """Bogacki and Shampine's method of order three (1989), with a companion of order two."""

    order = 3
    error_order = 2
    dense = True
    tableau = Tableau(
        (0.0, 1 / 2, 3 / 4),
        ((1 / 2,), (0.0, 3 / 4)),
        (2 / 9, 1 / 3, 4 / 9),
        (2 / 9 - 7 / 24, 1 / 3 - 1 / 4, 4 / 9 - 1 / 3, -1 / 8),
        # The cubic through both ends with both slopes.
        ((1.0, -4 / 3, 5 / 9), (0.0, 1.0, -2 / 3), (0.0, 4 / 3, -8 / 9), (0.0, -1.0, 1.0)),
    )


@register_solver("rk4")
class RK4(RungeKutta):
    """The classical Runge–Kutta method, order four."""

    order = 4
    tableau = Tableau(
        (0.0, 0.5, 0.5, 1.0),
        ((0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)),
        (1 / 6, 1 / 3, 1 / 3, 1 / 6),
    )


@register_solver("heun2")
class Heun2(RungeKutta):
    """Heun's method, order two, without a companion."""

    order = 2
    tableau = Tableau((0.0, 1.0), ((1.0,),), (0.5, 0.5))


@register_solver("heun3")
class Heun3(RungeKutta):
    """Heun's method of order three."""

    order = 3
    tableau = Tableau(
        (0.0, 1 / 3, 2 / 3),
        ((1 / 3,), (0.0, 2 / 3)),
        (1 / 4, 0.0, 3 / 4),
    )


@register_solver("fehlberg2")
class Fehlberg2(RungeKutta):
    """Fehlberg 2(1): the first evaluation at the end of a step serves the estimate only.

    Reference:
        E. Fehlberg. Low-order classical Runge-Kutta formulas with stepsize control. NASA, 1969.
    """

    order = 2
    error_order = 1
    tableau = Tableau(
        (0.0, 1 / 2, 1.0),
        ((1 / 2,), (1 / 256, 255 / 256)),
        (1 / 512, 255 / 256, 1 / 512),
        (-1 / 512, 0.0, 1 / 512),
    )
