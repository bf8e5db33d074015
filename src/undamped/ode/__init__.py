"""Solvers of ODEs: explicit, implicit, symplectic, Lie-group, reversible, hyper."""

from undamped.ode.iterate import Reached, iterate
from undamped.ode.loop.control import StepControl
from undamped.ode.loop.dense import DenseOutput
from undamped.ode.loop.events import Event
from undamped.ode.methods.adams import ExplicitAdams, ImplicitAdams
from undamped.ode.methods.explicit.dopri5 import Dopri5
from undamped.ode.methods.explicit.dopri8 import Dopri8
from undamped.ode.methods.explicit.fehlberg2 import Fehlberg2
from undamped.ode.methods.explicit.heun2 import Heun2
from undamped.ode.methods.explicit.heun3 import Heun3
from undamped.ode.methods.explicit.low_order import RK4, Bosh3, Euler, Heun, Midpoint
from undamped.ode.methods.explicit.tsit5 import Tsit5
from undamped.ode.methods.hyper.solver import CorrectionNetwork, HyperSolver
from undamped.ode.methods.implicit.auto import Auto
from undamped.ode.methods.implicit.diagonal import (
    SDIRK2,
    SDIRK4,
    TRBDF2,
    ImplicitEuler,
    ImplicitMidpoint,
    Trapezoid,
)
from undamped.ode.methods.implicit.gauss import Gauss4, Gauss6
from undamped.ode.methods.implicit.radau import Radau3, Radau5
from undamped.ode.methods.implicit.rodas import Rodas5P
from undamped.ode.methods.lie.magnus import Magnus4
from undamped.ode.methods.lie.rotating import LinearRotating, Rotating
from undamped.ode.methods.lie.steps import RKMK4, Cayley, LieEuler, LieMidpoint
from undamped.ode.methods.reversible.leapfrogs import AsynchronousLeapfrog, ReversibleHeun
from undamped.ode.methods.reversible.mccallum_foster import McCallumFoster
from undamped.ode.methods.solver import Solver
from undamped.ode.methods.symplectic.phase import Separable
from undamped.ode.methods.symplectic.separable import Leapfrog, SymplecticEuler, Yoshida4
from undamped.ode.methods.symplectic.tao import Tao
from undamped.ode.odeint import odeint, odeint_adjoint, odeint_dense, odeint_event
from undamped.ode.record import Statistics, Status
from undamped.ode.settings import Settings
from undamped.ode.solution import Solution
from undamped.ode.solve import solve

__all__ = [
    "RK4",
    "RKMK4",
    "SDIRK2",
    "SDIRK4",
    "TRBDF2",
    "AsynchronousLeapfrog",
    "Auto",
    "Bosh3",
    "Cayley",
    "CorrectionNetwork",
    "DenseOutput",
    "Dopri5",
    "Dopri8",
    "Euler",
    "Event",
    "ExplicitAdams",
    "Fehlberg2",
    "Gauss4",
    "Gauss6",
    "Heun",
    "Heun2",
    "Heun3",
    "HyperSolver",
    "ImplicitAdams",
    "ImplicitEuler",
    "ImplicitMidpoint",
    "Leapfrog",
    "LieEuler",
    "LieMidpoint",
    "LinearRotating",
    "Magnus4",
    "McCallumFoster",
    "Midpoint",
    "Radau3",
    "Radau5",
    "Reached",
    "ReversibleHeun",
    "Rodas5P",
    "Rotating",
    "Separable",
    "Settings",
    "Solution",
    "Solver",
    "Statistics",
    "Status",
    "StepControl",
    "SymplecticEuler",
    "Tao",
    "Trapezoid",
    "Tsit5",
    "Yoshida4",
    "iterate",
    "odeint",
    "odeint_adjoint",
    "odeint_dense",
    "odeint_event",
    "solve",
]
