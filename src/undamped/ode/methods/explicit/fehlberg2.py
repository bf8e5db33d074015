"""Fehlberg's method of order two with a companion of order one (1969)."""

from __future__ import annotations

from undamped.ode.methods.explicit.runge_kutta import RungeKutta
from undamped.ode.methods.explicit.tableau import Tableau
from undamped.ode.methods.solver import register_solver


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
