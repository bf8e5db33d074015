"""Flows: what integrates a field, from an input to where it ends."""

from undamped.flows.continuous_flow import ContinuousFlow, FlowResult
from undamped.flows.neural_ode import NeuralODE
from undamped.flows.stable_residual import StableResidual
from undamped.flows.stacked import StackedODE

__all__ = ["ContinuousFlow", "FlowResult", "NeuralODE", "StableResidual", "StackedODE"]
