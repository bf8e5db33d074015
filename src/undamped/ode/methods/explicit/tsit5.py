"""Tsitouras' method of order five, with a companion of order four (2011)."""

from __future__ import annotations

from undamped.ode.methods.explicit.runge_kutta import RungeKutta
from undamped.ode.methods.explicit.tableau import Tableau
from undamped.ode.methods.solver import register_solver


@register_solver("tsit5")
class Tsit5(RungeKutta):
    """Tsitouras 5(4): the cost of Dormand–Prince and usually a smaller error.

    Reference:
        C. Tsitouras. Runge–Kutta pairs of order 5(4) satisfying only the first column
        simplifying assumption. 2011.
    """

    order = 5
    error_order = 4
    dense = True
    tableau = Tableau(
        (0.0, 0.161, 0.327, 0.9, 0.9800255409045097, 1.0),
        (
            (0.161,),
            (-0.008480655492356989, 0.335480655492357),
            (2.8971530571054935, -6.359448489975075, 4.3622954328695815),
            (5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525),
            (
                5.86145544294642,
                -12.92096931784711,
                8.159367898576159,
                -0.071584973281401,
                -0.028269050394068383,
            ),
        ),
        (
            0.09646076681806523,
            0.01,
            0.4798896504144996,
            1.379008574103742,
            -3.290069515436081,
            2.324710524099774,
        ),
        (
            -0.001780011052225777,
            -0.0008164344596567469,
            0.007880878010261995,
            -0.1447110071732629,
            0.5823571654525552,
            -0.4580821059291869,
            1 / 66,
        ),
        (
            (1.0, -2.763706197274826, 2.9132554618219126, -1.0530884977290216),
            (0.0, 0.1317, -0.2234, 0.1017),
            (0.0, 3.9302962368947516, -5.941033872131505, 2.490627285651253),
            (0.0, -12.411077166933676, 30.33818863028232, -16.548102889244902),
            (0.0, 37.50931341651104, -88.1789048947664, 47.37952196281928),
            (0.0, -27.896526289197286, 65.09189467479366, -34.87065786149661),
            (0.0, 1.5, -4.0, 2.5),
        ),
    )
