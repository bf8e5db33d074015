"""Heun's method of order three (1900), with fixed steps."""

from __future__ import annotations

from undamped.ode.methods.explicit.runge_kutta import RungeKutta
from undamped.ode.methods.explicit.tableau import Tableau
from undamped.ode.methods.solver import register_solver


@register_solver("heun3")
class Heun3(RungeKutta):
    """Heun's method of order three."""

    order = 3
    tableau = Tableau(
        (0.0, 1 / 3, 2 / 3),
        ((1 / 3,), (0.0, 2 / 3)),
        (1 / 4, 0.0, 3 / 4),
    )
