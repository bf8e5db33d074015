"""Solvers of ordinary differential equations, fields, and neural ODEs.

Methods are explicit, implicit, symplectic, on Lie groups, reversible or learned.
"""

from undamped._base.lazy import lazy_names
from undamped._base.registry import solvers

# Not on demand, since their modules have the same names.
from undamped.ode.odeint import odeint as odeint
from undamped.ode.solve import solve as solve

_NAMES = {
    "ContinuousFlow": "undamped.ode.flows.continuous_flow",
    "CorrectionNetwork": "undamped.ode.methods.hyper",
    "DenseOutput": "undamped.ode.loop.dense",
    "Event": "undamped.ode.loop.events",
    "FlowResult": "undamped.ode.flows.continuous_flow",
    "LinearRotating": "undamped.ode.methods.lie",
    "NeuralODE": "undamped.ode.flows.neural_ode",
    "Rotating": "undamped.ode.methods.lie",
    "Separable": "undamped.ode.methods.symplectic",
    "Settings": "undamped.ode.settings",
    "Solution": "undamped.ode.record",
    "Solver": "undamped.ode.methods.solver",
    "StableResidual": "undamped.ode.flows.stable_residual",
    "Reached": "undamped.ode.solve",
    "StackedODE": "undamped.ode.flows.neural_ode",
    "Statistics": "undamped.ode.record",
    "Status": "undamped.ode.record",
    "StepControl": "undamped.ode.loop.control",
    "iterate": "undamped.ode.solve",
    "PartialSolutionWarning": "undamped.ode.odeint",
    "odeint": "undamped.ode.odeint",
    "odeint_adjoint": "undamped.ode.odeint",
    "odeint_dense": "undamped.ode.odeint",
    "odeint_event": "undamped.ode.odeint",
    "solve": "undamped.ode.solve",
}
_CLASSES = solvers.classes_in(__name__)

__getattr__, __dir__ = lazy_names(__name__, {**_NAMES, **_CLASSES})
