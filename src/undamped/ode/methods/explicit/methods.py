"""The explicit Runge–Kutta methods: each is a tableau."""

from __future__ import annotations

from operator import sub

from undamped.ode.methods.explicit.runge_kutta import RungeKutta
from undamped.ode.methods.solver import register_solver
from undamped.ode.methods.stages import Tableau, table


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
        (0.0, 0.5, 0.5, 1.0), ((0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)), (1 / 6, 1 / 3, 1 / 3, 1 / 6)
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
    tableau = Tableau((0.0, 1 / 3, 2 / 3), ((1 / 3,), (0.0, 2 / 3)), (1 / 4, 0.0, 3 / 4))


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


@register_solver("dopri5")
class Dopri5(RungeKutta):
    """Dormand–Prince 5(4): the usual choice for fields that are not stiff.

    Reference:
        J. R. Dormand, P. J. Prince. A family of embedded Runge–Kutta formulae. 1980. The
        polynomial inside a step is L. F. Shampine's, 1986.
    """

    order = 5
    error_order = 4
    dense = True
    tableau = Tableau(
        (0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0),
        (
            (1 / 5,),
            (3 / 40, 9 / 40),
            (44 / 45, -56 / 15, 32 / 9),
            (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
            (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        ),
        (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
        (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40),
        table("""
            1 -8048581381/2820520608 8663915743/2820520608 -12715105075/11282082432;
            0 0 0 0;
            0 131558114200/32700410799 -68118460800/10900136933 87487479700/32700410799;
            0 -1754552775/470086768 14199869525/1410260304 -10690763975/1880347072;
            0 127303824393/49829197408 -318862633887/49829197408 701980252875/199316789632;
            0 -282668133/205662961 2019193451/616988883 -1453857185/822651844;
            0 40617522/29380423 -110615467/29380423 69997945/29380423;
        """),
    )


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
    _WEIGHTS, _ERROR = table("""
        0.09646076681806523 0.01 0.4798896504144996 1.379008574103742 -3.290069515436081
            2.324710524099774;
        -0.001780011052225777 -0.0008164344596567469 0.007880878010261995 -0.1447110071732629
            0.5823571654525552 -0.4580821059291869 1/66;
    """)
    tableau = Tableau(
        (0.0, 0.161, 0.327, 0.9, 0.9800255409045097, 1.0),
        table("""
            0.161;
            -0.008480655492356989 0.335480655492357;
            2.8971530571054935 -6.359448489975075 4.3622954328695815;
            5.325864828439257 -11.748883564062828 7.4955393428898365 -0.09249506636175525;
            5.86145544294642 -12.92096931784711 8.159367898576159 -0.071584973281401
                -0.028269050394068383;
        """),
        _WEIGHTS,
        _ERROR,
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


@register_solver("dopri8")
class Dopri8(RungeKutta):
    """Prince–Dormand 8(7) with thirteen stages: for smooth fields and tight tolerances.

    Reference:
        P. J. Prince, J. R. Dormand. High order embedded Runge–Kutta formulae. 1981.
    """

    order = 8
    error_order = 7
    _NODES, _WEIGHTS, _COMPANION = table("""
        0 1/18 1/12 1/8 5/16 3/8 59/400 93/200 5490023248/9719169821 13/20 1201146811/1299019798
            1 1;
        14005451/335480064 0 0 0 0 -59238493/1068277825 181606767/758867731 561292985/797845732
            -1041891430/1371343529 760417239/1151165299 118820643/751138087 -528747749/2220607170
            1/4;
        13451932/455176623 0 0 0 0 -808719846/976000145 1757004468/5645159321 656045339/265891186
            -3867574721/1518517206 465885868/322736535 53011238/667516719 2/45 0;
    """)
    tableau = Tableau(
        _NODES,
        table("""
            1/18;
            1/48 1/16;
            1/32 0 3/32;
            5/16 0 -75/64 75/64;
            3/80 0 0 3/16 3/20;
            29443841/614563906 0 0 77736538/692538347 -28693883/1125000000 23124283/1800000000;
            16016141/946692911 0 0 61564180/158732637 22789713/633445777 545815736/2771057229
                -180193667/1043307555;
            39632708/573591083 0 0 -433636366/683701615 -421739975/2616292301 100302831/723423059
                790204164/839813087 800635310/3783071287;
            246121993/1340847787 0 0 -37695042795/15268766246 -309121744/1061227803
                -12992083/490766935 6005943493/2108947869 393006217/1396673457
                123872331/1001029789;
            -1028468189/846180014 0 0 8478235783/508512852 1311729495/1432422823
                -10304129995/1701304382 -48777925059/3047939560 15336726248/1032824649
                -45442868181/3398467696 3065993473/597172653;
            185892177/718116043 0 0 -3185094517/667107341 -477755414/1098053517
                -703635378/230739211 5731566787/1027545527 5232866602/850066563
                -4093664535/808688257 3962137247/1805957418 65686358/487910083;
            403863854/491063109 0 0 -5068492393/434740067 -411421997/543043805 652783627/914296604
                11173962825/925320556 -13158990841/6184727034 3936647629/1978049680
                -160528059/685178525 248638103/1413531060 0;
        """),
        _WEIGHTS,
        tuple(map(sub, _WEIGHTS, _COMPANION)),
    )
