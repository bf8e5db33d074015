"""Solvers of ordinary differential equations: explicit, implicit, symplectic, reversible, hyper."""

from undamped.solvers.control import StepControl
from undamped.solvers.dense import DenseOutput
from undamped.solvers.explicit.dopri5 import Dopri5
from undamped.solvers.explicit.dopri8 import Dopri8
from undamped.solvers.explicit.low_order import RK4, Bosh3, Euler, Heun, Midpoint
from undamped.solvers.explicit.tsit5 import Tsit5
from undamped.solvers.hyper import CorrectionNetwork, HyperSolver
from undamped.solvers.implicit.diagonal import SDIRK4, ImplicitEuler, ImplicitMidpoint
from undamped.solvers.implicit.radau import Radau5
from undamped.solvers.iterate import Reached, iterate
from undamped.solvers.odeint import odeint
from undamped.solvers.reversible.leapfrogs import AsynchronousLeapfrog, ReversibleHeun
from undamped.solvers.reversible.mccallum_foster import McCallumFoster
from undamped.solvers.settings import Settings
from undamped.solvers.solution import Solution
from undamped.solvers.solve import solve
from undamped.solvers.solver import Solver
from undamped.solvers.symplectic.phase import Separable
from undamped.solvers.symplectic.separable import Leapfrog, SymplecticEuler, Yoshida4
from undamped.solvers.symplectic.tao import Tao
from undamped.solvers.trace import Statistics, Status

__all__ = [
    "RK4",
    "SDIRK4",
    "AsynchronousLeapfrog",
    "Bosh3",
    "CorrectionNetwork",
    "DenseOutput",
    "Dopri5",
    "Dopri8",
    "Euler",
    "Heun",
    "HyperSolver",
    "ImplicitEuler",
    "ImplicitMidpoint",
    "Leapfrog",
    "McCallumFoster",
    "Midpoint",
    "Radau5",
    "Reached",
    "ReversibleHeun",
    "Separable",
    "Settings",
    "Solution",
    "Solver",
    "Statistics",
    "Status",
    "StepControl",
    "SymplecticEuler",
    "Tao",
    "Tsit5",
    "Yoshida4",
    "iterate",
    "odeint",
    "solve",
]
