"""Heun's method of order two with fixed steps; 'heun' is the same with step control."""

from __future__ import annotations

from undamped.ode.methods.explicit.runge_kutta import RungeKutta
from undamped.ode.methods.explicit.tableau import Tableau
from undamped.ode.methods.solver import register_solver


@register_solver("heun2")
class Heun2(RungeKutta):
    """Heun's method, order two, without a companion."""

    order = 2
    tableau = Tableau((0.0, 1.0), ((1.0,),), (0.5, 0.5))
