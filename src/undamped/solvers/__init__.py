"""Solvers of ODEs: explicit, implicit, symplectic, Lie-group, reversible, hyper."""

from undamped.solvers.iterate import Reached, iterate
from undamped.solvers.loop.control import StepControl
from undamped.solvers.loop.dense import DenseOutput
from undamped.solvers.loop.events import Event
from undamped.solvers.methods.adams import ExplicitAdams, ImplicitAdams
from undamped.solvers.methods.explicit.dopri5 import Dopri5
from undamped.solvers.methods.explicit.dopri8 import Dopri8
from undamped.solvers.methods.explicit.fehlberg2 import Fehlberg2
from undamped.solvers.methods.explicit.heun2 import Heun2
from undamped.solvers.methods.explicit.heun3 import Heun3
from undamped.solvers.methods.explicit.low_order import RK4, Bosh3, Euler, Heun, Midpoint
from undamped.solvers.methods.explicit.tsit5 import Tsit5
from undamped.solvers.methods.hyper.solver import CorrectionNetwork, HyperSolver
from undamped.solvers.methods.implicit.auto import Auto
from undamped.solvers.methods.implicit.diagonal import (
    SDIRK2,
    SDIRK4,
    TRBDF2,
    ImplicitEuler,
    ImplicitMidpoint,
    Trapezoid,
)
from undamped.solvers.methods.implicit.gauss import Gauss4, Gauss6
from undamped.solvers.methods.implicit.radau import Radau3, Radau5
from undamped.solvers.methods.implicit.rodas import Rodas5P
from undamped.solvers.methods.lie.magnus import Magnus4
from undamped.solvers.methods.lie.rotating import LinearRotating, Rotating
from undamped.solvers.methods.lie.steps import RKMK4, Cayley, LieEuler, LieMidpoint
from undamped.solvers.methods.reversible.leapfrogs import AsynchronousLeapfrog, ReversibleHeun
from undamped.solvers.methods.reversible.mccallum_foster import McCallumFoster
from undamped.solvers.methods.solver import Solver
from undamped.solvers.methods.symplectic.phase import Separable
from undamped.solvers.methods.symplectic.separable import Leapfrog, SymplecticEuler, Yoshida4
from undamped.solvers.methods.symplectic.tao import Tao
from undamped.solvers.odeint import odeint, odeint_adjoint, odeint_dense, odeint_event
from undamped.solvers.record import Statistics, Status
from undamped.solvers.settings import Settings
from undamped.solvers.solution import Solution
from undamped.solvers.solve import solve

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
