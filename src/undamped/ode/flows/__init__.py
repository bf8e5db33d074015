"""Flows: what integrates a field, from an input to where it ends."""

from undamped.ode.flows.continuous_flow import ContinuousFlow, FlowResult
from undamped.ode.flows.neural_ode import NeuralODE, StackedODE
from undamped.ode.flows.stable_residual import StableResidual

__all__ = ["ContinuousFlow", "FlowResult", "NeuralODE", "StableResidual", "StackedODE"]
